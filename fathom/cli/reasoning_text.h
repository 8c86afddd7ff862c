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

  void write(const std::string& text) {
    if (text.empty()) return;
    print_note(dim_ ? "\x1b[2m" + text + "\x1b[0m" : text);
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
};

}  // namespace fathom::cli
