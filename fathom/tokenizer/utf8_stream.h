// fathom/tokenizer/utf8_stream.h
// Text from tokens that arrive one by one. A token may end in the middle of a character; such an end is held back until
// the rest comes, so that what is shown is always valid UTF-8.
#pragma once
#include <string>
#include <string_view>

namespace fathom {

/// One for each answer; not shared by threads.
class Utf8Stream {
 public:
  /// Takes the bytes of a token and gives all text that is now complete. Bytes that can never become a character are
  /// U+FFFD at once. Only the last character matters: what may join it (marks, ZWJ) is not waited for.
  /// Source: spec/tokenizer.md 6.
  std::string push(std::string_view bytes);
  /// The same, appended: allocates nothing but the growth of `out`.
  void push(std::string_view bytes, std::string& out);

  /// The beginning of an unfinished character, 0 to 3 bytes. At the end of an answer it is dropped.
  std::string_view held() const { return held_; }

 private:
  std::string held_;
};

}  // namespace fathom
