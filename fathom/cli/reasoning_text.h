// fathom/cli/reasoning_text.h
// Reasoning on stderr: dimmed where colours are allowed, and ended by a line break before the answer begins.
#pragma once
#include <string>
#include <string_view>

#include "fathom/cli/terminal.h"

namespace fathom::cli {

/// Whether --reasoning asks for it on stderr: `show` always, nothing said only where a person looks on.
inline bool shows_reasoning(std::string_view option) {
  return option == "show" || (option.empty() && stderr_is_terminal());
}

class ReasoningText {
 public:
  explicit ReasoningText(bool wanted) : wanted_(wanted), dim_(colours_on_stderr()) {}
  bool wanted() const { return wanted_; }

  void write(std::string_view text) {
    if (text.empty()) return;
    if (dim_) {
      line_ = "\x1b[2m";
      line_ += text;
      line_ += "\x1b[0m";
      print_note(line_);
    } else {
      print_note(text);
    }
    open_ = true;
    ends_line_ = text.ends_with('\n');
  }
  /// Begins a fresh line, if something was written since the last one.
  void end() {
    if (open_ && !ends_line_) print_note("\n");
    open_ = false;
  }

 private:
  bool wanted_, dim_;
  bool open_ = false, ends_line_ = false;
  std::string line_;  // keeps its memory
};

}  // namespace fathom::cli
