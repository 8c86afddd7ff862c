// fathom/cli/answer_text.h
// An answer as people read it: text on stdout as it comes, reasoning on stderr, and each call as a block, one line a
// parameter:
//
//   ┌ set_alarm
//   │ hour: 4
//   │ minute: 37
//   └
//
// The block's head stands there as soon as the model names the function, the rest when the call is whole.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "fathom/base/result.h"
#include "fathom/cli/reasoning_text.h"
#include "fathom/recipe/answer.h"
#include "fathom/recipe/conversation.h"

namespace fathom::cli {

/// The block of a whole call. A text parameter of one line is quoted, a longer one stands below its name.
std::string call_block(const recipe::ToolCall& call);

class AnswerText {
 public:
  /// `reasoning`: show, hide, only, or nothing said, as the option.
  explicit AnswerText(std::string reasoning);
  void show(const recipe::Delta& delta);
  /// Ends the last line.
  void end();
  /// Errors: those of print, the first of them; then nothing more is written.
  const Result<void>& state() const { return state_; }

 private:
  void write(std::string_view text);
  void fresh_line();

  const bool only_reasoning_, frames_dim_;
  ReasoningText reasoning_;
  bool began_ = false, ends_line_ = false;
  std::string arguments_;  // of the open call
  Result<void> state_;
};

}  // namespace fathom::cli
