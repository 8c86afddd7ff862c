// fathom/checkpoint/json_scanner.h
// JSON read once, front to back, without a tree: headers of a full checkpoint hold 96,085 entries in 12 MB, and a tree
// of them would take longer to build than everything else that opening does. Private to this room. Strict RFC 8259;
// every call either consumes what it names or records the first mistake and stays where it is.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace fathom {

class JsonScanner {
 public:
  explicit JsonScanner(std::string_view text) : text_(text) {}

  /// Consumes `mark` (and blanks before it); false and a mistake when something else stands there.
  bool expect(char mark);
  /// Consumes `mark` when it comes next.
  bool accept(char mark);
  /// A string, unescaped. Control characters, bad escapes and bytes that are no UTF-8 are mistakes.
  bool string(std::string& out);
  /// A non-negative integer of at most 18 digits, without sign, fraction or exponent.
  bool integer(int64_t& out);
  /// Any one value, read and dropped; nesting to `depth`.
  bool skip_value(int depth = 32);
  /// Only blanks are left.
  bool at_end();

  bool failed() const { return mistake_ != nullptr; }
  const char* mistake() const { return mistake_ ? mistake_ : ""; }
  int64_t position() const { return int64_t(at_); }

  /// Calls body() at the start of each value of an object, with the key; body consumes the value and returns success.
  template <class Body>
  bool object(Body&& body) {
    if (!expect('{')) return false;
    if (accept('}')) return true;
    do {
      std::string key;
      if (!string(key) || !expect(':') || !body(key)) return false;
    } while (accept(','));
    return expect('}');
  }
  template <class Body>
  bool array(Body&& body) {
    if (!expect('[')) return false;
    if (accept(']')) return true;
    do {
      if (!body()) return false;
    } while (accept(','));
    return expect(']');
  }

  bool fail(const char* mistake) {
    if (!mistake_) mistake_ = mistake;
    return false;
  }

 private:
  void skip_blanks();
  bool escape(std::string& out);
  std::optional<uint32_t> hex4();
  bool number();
  bool word(std::string_view expected);

  std::string_view text_;
  size_t at_ = 0;
  const char* mistake_ = nullptr;
};

}  // namespace fathom
