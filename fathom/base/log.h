// fathom/base/log.h
// What a running process tells its operator, a line an event: `level=info step=8123 prompt_rows=2048 step_ms=11.9`, or
// the same as a JSON object. Lines are written by a thread of the log; whoever logs only puts the line into a bounded
// queue. When that is full the oldest line goes, and before the next one that is written stands how many did: a slow
// terminal or a full disk never holds up the engine. A level that is off costs one comparison; nothing is formatted.
//
// Never text of prompts or answers, never keys. Why not spdlog: docs/decisions/0012-metrics-and-log-are-ours.md.
// Source: spec/engine.md R-2; design/style.md 5; design/cli.md 1 (--log-level).
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

namespace fathom {

enum class LogLevel { error, warn, info, debug, trace };
const char* name_of(LogLevel level);
std::optional<LogLevel> log_level_of(std::string_view name);

/// One `key=value`. Lives as long as the call that it is passed to. Units stand in the key: wait_ms, kv_bytes.
struct LogField {
  std::string_view key;
  std::variant<int64_t, double, bool, std::string_view> value;

  template <class T>
  requires std::is_integral_v<T> &&(!std::is_same_v<T, bool>)LogField(std::string_view k, T v)
      : key(k), value(int64_t(v)) {}
  LogField(std::string_view k, double v) : key(k), value(v) {}
  LogField(std::string_view k, bool v) : key(k), value(v) {}
  LogField(std::string_view k, std::string_view v) : key(k), value(v) {}
  LogField(std::string_view k, const char* v) : key(k), value(std::string_view(v)) {}
  LogField(std::string_view k, const std::string& v) : key(k), value(std::string_view(v)) {}
};

enum class LogFormat { human, json };

/// One event as one line without its end. `text` is a sentence or key=value pairs, may be empty, and comes first; in
/// JSON it is the field "message". Texts with blanks, quotes or control characters are quoted as in JSON, so an event
/// never makes two lines. Numbers have six significant digits. `time`: RFC 3339, empty: none. Pure.
std::string log_line(LogFormat format, std::string_view time, LogLevel level, std::string_view text,
                     std::span<const LogField> fields);

struct LogOptions {
  LogLevel level = LogLevel::info;
  LogFormat format = LogFormat::human;
  bool times = true;                                      // every line begins with the time of its event, UTC
  int queue_lines = 8192;                                 // that wait to be written
  std::function<void(std::string_view line)> write = {};  // with its end, on the log's thread; none: stderr
};

/// Any number of threads may log; moves, does not copy. Its destructor writes what waits.
class Log {
 public:
  explicit Log(LogOptions options);
  Log(Log&&) noexcept;
  Log& operator=(Log&&) noexcept;
  ~Log();

  bool on(LogLevel level) const { return level <= level_->load(std::memory_order_relaxed); }
  void set_level(LogLevel level) { level_->store(level, std::memory_order_relaxed); }

  void write(LogLevel level, std::string_view text) { write(level, text, std::span<const LogField>()); }
  void write(LogLevel level, std::string_view text, std::initializer_list<LogField> fields) {
    write(level, text, std::span(fields.begin(), fields.size()));
  }
  void write(LogLevel level, std::string_view text, std::span<const LogField> fields) {
    if (on(level)) put(level, text, fields);
  }

  /// Lines that were dropped since the beginning.
  int64_t dropped() const;
  /// Returns when everything that was logged before is written.
  void flush();

 private:
  void put(LogLevel level, std::string_view text, std::span<const LogField> fields);
  struct State;
  std::unique_ptr<State> state_;
  std::unique_ptr<std::atomic<LogLevel>> level_;
};

}  // namespace fathom
