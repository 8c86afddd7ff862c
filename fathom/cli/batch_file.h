// fathom/cli/batch_file.h
// The two files of `generate --input A --output B`. Answers are appended line by line, each with one write, in the
// order in which they finish. So a run that is killed at any point leaves whole lines and at most one torn one at the
// end;
// --resume cuts that one, reads which lines are answered, and asks only the others: nothing is lost and nothing
// doubled.
#pragma once
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "fathom/base/json.h"
#include "fathom/base/result.h"

namespace fathom::cli {

/// One line of the input that is not blank.
struct BatchLine {
  int64_t number = 0;  // in the file, from 1
  std::string_view text;
  std::string id;  // JSON text of its id: the line's own, or its number when it has none or not one of its own
  std::optional<Error> error;  // no JSON object, or an id that an earlier line has
};

/// Ids depend on the input alone, not on what was answered before: a second run gives every line the same id.
/// `bytes` must outlive the lines.
std::vector<BatchLine> read_batch_lines(std::string_view bytes, const std::string& path);

/// Appends whole lines to a file that nobody else appends to.
class BatchOutput {
 public:
  /// Without `resume` the file must be empty or absent. With it, a torn last line is cut, and `answered()` holds the
  /// ids of the whole ones. Errors: usage (file not empty, in use by another run), bad_input (a whole line that is not
  /// ours).
  static Result<BatchOutput> open(const std::string& path, bool resume);
  BatchOutput(BatchOutput&& other) noexcept;
  BatchOutput& operator=(BatchOutput&& other) noexcept;
  BatchOutput(const BatchOutput&) = delete;
  BatchOutput& operator=(const BatchOutput&) = delete;
  ~BatchOutput();

  bool answered(const std::string& id) const { return answered_.contains(id); }
  int64_t answered_count() const { return int64_t(answered_.size()); }
  /// Of those, the ones that hold an error.
  const std::set<std::string>& failed() const { return failed_; }
  int64_t cut_bytes() const { return cut_bytes_; }

  /// `{"id":ID,KEY:VALUE}` and a line break; `value` is JSON of one line. Errors: failed with the system's reason (a
  /// full disk).
  Result<void> append(const std::string& id, std::string_view key, std::string_view value);
  /// Everything appended is on the disk afterwards.
  Result<void> sync();

 private:
  BatchOutput() = default;
  int descriptor_ = -1;
  std::string path_;
  std::set<std::string> answered_, failed_;
  int64_t cut_bytes_ = 0;
};

}  // namespace fathom::cli
