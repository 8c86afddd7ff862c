// fathom/cli/terminal.h
// What a person sees: numbers, tables, progress, colours. Results go to stdout, everything else to stderr; progress and
// colours appear only on a terminal. Contract: design/cli.md 1.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fathom/base/result.h"
#include "fathom/checkpoint/tensor_spec.h"

namespace fathom::cli {

using fathom::with_commas;  // "1,234,567"
/// A fixed number of decimals.
std::string fixed(double value, int decimals);
/// Three significant digits or so, never an exponent for what people meet: "0.00123", "12.3", "4,560".
std::string brief(double value);
/// "510.29 GB", "19.2 MB", "512 B": decimal units, as the specification counts.
std::string size_text(int64_t bytes);
/// "3.21 ms", "0.42 s", "3 min 05 s", "2 h 10 min".
std::string duration_text(double seconds);

bool stdout_is_terminal();
bool stderr_is_terminal();
/// Dim text for stderr (colours only on a terminal and without NO_COLOR); the text itself otherwise.
bool colours_on_stderr();
bool colours_on_stdout();
/// Columns of the terminal on `descriptor`, 80 when unknown.
int terminal_columns(int descriptor);

/// Columns that `text` takes on a terminal: one a character, two for East Asian wide ones, none for combining marks.
int display_width(std::string_view text);

/// A table for people: columns padded to their widest cell. Numbers go right, words left.
class Table {
 public:
  enum class Side { left, right };
  struct Column {
    std::string title;
    Side side = Side::left;
  };
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  bool empty() const { return rows_.empty(); }
  /// Every line ends with a newline, none with blanks.
  std::string text() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

/// Writes to stdout at once. Errors: failed with the system's reason (a full disk, a closed pipe).
Result<void> print(std::string_view text);
/// Writes to stderr; errors there have nowhere to go.
void print_note(std::string_view text);

/// One line on stderr that says done, total, rate and time left; nothing when stderr is no terminal. Redraws at most
/// ten times a second.
class Progress {
 public:
  /// `unit` in the plural: "answers". `total` 0: unknown.
  Progress(std::string what, std::string unit, int64_t total);
  ~Progress() { finish(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  /// `extra` stands at the end of the line.
  void update(int64_t done, std::string_view extra = {});
  /// Removes the line.
  void finish();
  /// What the line says. `fresh` of the `done` fell in these `seconds`: the rate counts what this run did. Pure.
  static std::string line(std::string_view what, std::string_view unit, int64_t done, int64_t total, int64_t fresh,
                          double seconds, std::string_view extra, int columns);

 private:
  std::string what_, unit_;
  int64_t total_ = 0;
  int64_t first_ = -1;  // done before we began, not counted in the rate
  bool shown_ = false, on_ = false;
  std::chrono::steady_clock::time_point begin_, last_{};
};

}  // namespace fathom::cli
