#include "fathom/base/json_fault.h"

#include <algorithm>

namespace fathom {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

/// Bytes of the UTF-8 character that `text` begins with; 0: none is complete and valid (RFC 3629).
size_t character_bytes(std::string_view text) {
  const auto at = [&](size_t i) { return i < text.size() ? uint8_t(text[i]) : uint8_t(0); };
  const auto follows = [&](size_t i, uint8_t low = 0x80, uint8_t high = 0xbf) { return at(i) >= low && at(i) <= high; };
  const uint8_t first = at(0);
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first <= 0xdf) return follows(1) ? 2 : 0;
  if ((first & 0xf0) == 0xe0) {
    const bool second = follows(1, first == 0xe0 ? 0xa0 : 0x80, first == 0xed ? 0x9f : 0xbf);
    return second && follows(2) ? 3 : 0;
  }
  if (first >= 0xf0 && first <= 0xf4) {
    const bool second = follows(1, first == 0xf0 ? 0x90 : 0x80, first == 0xf4 ? 0x8f : 0xbf);
    return second && follows(2) && follows(3) ? 4 : 0;
  }
  return 0;
}

std::string shown(std::string_view text) {
  const size_t bytes = text.empty() ? 0 : character_bytes(text);
  if (bytes == 0 || uint8_t(text[0]) < 0x20 || text[0] == 0x7f) {
    static constexpr char kHex[] = "0123456789abcdef";
    const auto byte = text.empty() ? uint8_t(0) : uint8_t(text[0]);
    return std::string("byte 0x") + kHex[byte >> 4] + kHex[byte & 15];
  }
  return "'" + std::string(text.substr(0, bytes)) + "'";
}

class Scan {
 public:
  explicit Scan(std::string_view text) : text_(text) {}

  std::optional<JsonFault> run() {
    bool value_next = true, first = false;  // first: right behind { or [
    while (true) {
      blanks();
      if (value_next) {
        if (!open_.empty() && open_.back() == '{') {
          if (first && take('}')) {
            open_.pop_back();
            value_next = first = false;
            continue;
          }
          if (peek() != '"') return unexpected(first ? "a key in quotes or }" : "a key in quotes");
          if (!string()) return fault_;
          blanks();
          if (!take(':')) return unexpected("a colon");
          blanks();
        } else if (first && take(']')) {
          open_.pop_back();
          value_next = first = false;
          continue;
        }
        first = false;
        const char begin = peek();
        if (begin == '{' || begin == '[') {
          open_ += begin;
          ++at_;
          first = true;
          continue;
        }
        if (!scalar(begin)) return fault_;
        value_next = false;
        continue;
      }
      if (open_.empty()) {
        if (at_ < text_.size()) fail("there is text after the value");
        return fault_;
      }
      const bool object = open_.back() == '{';
      if (take(',')) {
        value_next = true;
      } else if (take(object ? '}' : ']')) {
        open_.pop_back();
      } else {
        return unexpected(object ? "a comma or }" : "a comma or ]");
      }
    }
  }

 private:
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool take(char c) {
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void blanks() { at_ = std::min(text_.find_first_not_of(" \t\r\n", at_), text_.size()); }

  bool fail(std::string what) {
    fault_ = JsonFault{at_, std::move(what)};
    return false;
  }
  bool ends(const char* inside) { return fail(std::string("the text ends inside ") + inside); }
  std::optional<JsonFault> unexpected(const std::string& wanted) {
    if (at_ == text_.size() && open_.empty()) {
      fail("the text has no value");
    } else if (at_ == text_.size()) {
      ends(open_.back() == '{' ? "an object" : "an array");
    } else {
      fail("unexpected " + shown(text_.substr(at_)) + " where " + wanted + " should be");
    }
    return fault_;
  }

  bool scalar(char begin) {
    if (begin == '"') return string();
    if (begin == '-' || is_digit(begin)) return number();
    for (const std::string_view word : {"true", "false", "null"}) {
      if (at_ < text_.size() && word[0] == begin) return atom(word);
    }
    unexpected("a value");
    return false;
  }

  bool atom(std::string_view word) {
    for (const char c : word) {
      if (at_ == text_.size()) return ends("a word");
      if (text_[at_] != c) return fail("unexpected " + shown(text_.substr(at_)) + " inside " + std::string(word));
      ++at_;
    }
    return true;
  }

  bool digits() {
    if (at_ == text_.size()) return ends("a number");
    if (!is_digit(text_[at_])) return fail("unexpected " + shown(text_.substr(at_)) + " inside a number");
    while (is_digit(peek())) ++at_;
    return true;
  }
  bool number() {
    take('-');
    if (take('0')) {
      if (is_digit(peek())) return fail("a number begins with 0");
    } else if (!digits()) {
      return false;
    }
    if (take('.') && !digits()) return false;
    if (take('e') || take('E')) {
      if (!take('+')) take('-');
      return digits();
    }
    return true;
  }

  bool string() {
    for (++at_; at_ < text_.size();) {
      const char c = text_[at_];
      if (c == '"') return ++at_, true;
      if (uint8_t(c) < 0x20)
        return fail(c == '\n' ? "a line ends inside quotes"
                              : shown(text_.substr(at_)) + " inside quotes must be escaped");
      if (c == '\\') {
        if (!escape()) return false;
        continue;
      }
      const size_t bytes = character_bytes(text_.substr(at_));
      if (bytes == 0) return fail(shown(text_.substr(at_)) + " is no UTF-8");
      at_ += bytes;
    }
    return ends("quotes");
  }
  bool escape() {
    ++at_;
    if (at_ == text_.size()) return ends("quotes");
    const char c = text_[at_];
    if (std::string_view("\"\\/bfnrt").find(c) != std::string_view::npos) return ++at_, true;
    if (c != 'u') return fail("\\" + shown(text_.substr(at_)) + " is no escape");
    ++at_;
    for (int i = 0; i < 4; ++i, ++at_) {
      if (at_ == text_.size()) return ends("quotes");
      if (!is_hex(text_[at_]))
        return fail("unexpected " + shown(text_.substr(at_)) + " where a hexadecimal digit of \\u should be");
    }
    return true;
  }

  std::string_view text_;
  size_t at_ = 0;
  std::string open_;  // { and [ around
  std::optional<JsonFault> fault_;
};

}  // namespace

std::optional<JsonFault> find_json_fault(std::string_view text) { return Scan(text).run(); }

std::string describe(const JsonFault& fault, std::string_view text) {
  std::string out = fault.what + " at byte " + std::to_string(fault.byte);
  const std::string_view before = text.substr(0, fault.byte);
  const auto lines = std::count(before.begin(), before.end(), '\n');
  if (lines == 0 && text.find('\n') == std::string_view::npos) return out;
  const size_t begin = before.rfind('\n') + 1;  // npos + 1 is 0
  return out + " (line " + std::to_string(lines + 1) + ", column " + std::to_string(fault.byte - begin + 1) + ")";
}

}  // namespace fathom
