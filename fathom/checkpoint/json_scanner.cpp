#include "fathom/checkpoint/json_scanner.h"

namespace fathom {
namespace {

// What stands for itself in a string.
bool is_plain(char c) { return uint8_t(c) >= 0x20 && uint8_t(c) < 0x80 && c != '"' && c != '\\'; }

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Bytes of the well-formed UTF-8 sequence that `text` begins with, 0 when there is none (RFC 3629).
size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? uint8_t(text[i]) : uint8_t(0); };
  const auto tail = [&](size_t i) { return byte(i) >= 0x80 && byte(i) < 0xc0; };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first < 0xe0) return tail(1) ? 2 : 0;
  if (first >= 0xe0 && first < 0xf0) {
    const bool overlong = first == 0xe0 && byte(1) < 0xa0, surrogate = first == 0xed && byte(1) >= 0xa0;
    return tail(1) && tail(2) && !overlong && !surrogate ? 3 : 0;
  }
  if (first >= 0xf0 && first < 0xf5) {
    const bool overlong = first == 0xf0 && byte(1) < 0x90, beyond = first == 0xf4 && byte(1) >= 0x90;
    return tail(1) && tail(2) && tail(3) && !overlong && !beyond ? 4 : 0;
  }
  return 0;
}

void append_utf8(std::string& out, uint32_t code) {
  if (code < 0x80) {
    out += char(code);
  } else if (code < 0x800) {
    out += char(0xc0 | code >> 6);
    out += char(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    out += char(0xe0 | code >> 12);
    out += char(0x80 | (code >> 6 & 0x3f));
    out += char(0x80 | (code & 0x3f));
  } else {
    out += char(0xf0 | code >> 18);
    out += char(0x80 | (code >> 12 & 0x3f));
    out += char(0x80 | (code >> 6 & 0x3f));
    out += char(0x80 | (code & 0x3f));
  }
}

}  // namespace

void JsonScanner::skip_blanks() {
  while (at_ < text_.size()) {
    const char c = text_[at_];
    if (c != ' ' && c != '\n' && c != '\t' && c != '\r') return;
    ++at_;
  }
}

bool JsonScanner::accept(char mark) {
  skip_blanks();
  if (at_ >= text_.size() || text_[at_] != mark) return false;
  ++at_;
  return true;
}

bool JsonScanner::expect(char mark) {
  if (accept(mark)) return true;
  switch (mark) {
    case '{': return fail("an object is expected");
    case '}': return fail("a comma or a closing brace is expected");
    case '[': return fail("a list is expected");
    case ']': return fail("a comma or a closing bracket is expected");
    case ':': return fail("a colon is expected");
    default: return fail("a string is expected");
  }
}

bool JsonScanner::at_end() {
  skip_blanks();
  return at_ == text_.size() || fail("nothing may follow the closing brace");
}

std::optional<uint32_t> JsonScanner::hex4() {
  if (text_.size() - at_ < 4) return {};
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i) {
    const char c = text_[at_ + size_t(i)];
    const uint32_t digit = is_digit(c)            ? uint32_t(c - '0')
                           : c >= 'a' && c <= 'f' ? uint32_t(c - 'a' + 10)
                           : c >= 'A' && c <= 'F' ? uint32_t(c - 'A' + 10)
                                                  : 16u;
    if (digit > 15) return {};
    value = value << 4 | digit;
  }
  at_ += 4;
  return value;
}

// After the backslash.
bool JsonScanner::escape(std::string& out) {
  if (at_ >= text_.size()) return fail("a string has no end");
  const char c = text_[at_++];
  switch (c) {
    case '"':
    case '\\':
    case '/': out += c; return true;
    case 'b': out += '\b'; return true;
    case 'f': out += '\f'; return true;
    case 'n': out += '\n'; return true;
    case 'r': out += '\r'; return true;
    case 't': out += '\t'; return true;
    case 'u': break;
    default: return fail("unknown escape in a string");
  }
  const auto unit = hex4();
  if (!unit) return fail("\\u needs four hexadecimal digits");
  if (*unit < 0xd800 || *unit > 0xdfff) {
    append_utf8(out, *unit);
    return true;
  }
  if (*unit > 0xdbff || text_.substr(at_, 2) != "\\u") return fail("unpaired surrogate in a string");
  at_ += 2;
  const auto low = hex4();
  if (!low || *low < 0xdc00 || *low > 0xdfff) return fail("unpaired surrogate in a string");
  append_utf8(out, 0x10000 + ((*unit - 0xd800) << 10) + (*low - 0xdc00));
  return true;
}

bool JsonScanner::string(std::string& out) {
  out.clear();
  if (!expect('"')) return false;
  while (at_ < text_.size()) {
    size_t plain = at_;  // names are long runs of plain ASCII
    while (plain < text_.size() && is_plain(text_[plain])) ++plain;
    out.append(text_.substr(at_, plain - at_));
    at_ = plain;
    if (at_ == text_.size()) break;
    const char c = text_[at_];
    if (c == '"') {
      ++at_;
      return true;
    }
    if (c == '\\') {
      ++at_;
      if (!escape(out)) return false;
      continue;
    }
    if (uint8_t(c) < 0x20) return fail("control character in a string");
    const size_t length = utf8_length(text_.substr(at_, 4));
    if (length == 0) return fail("a string is not UTF-8");
    out.append(text_.substr(at_, length));
    at_ += length;
  }
  return fail("a string has no end");
}

bool JsonScanner::integer(int64_t& out) {
  skip_blanks();
  const size_t begin = at_;
  int64_t value = 0;
  while (at_ < text_.size() && is_digit(text_[at_])) {
    if (at_ - begin == 18) return fail("a number has more than 18 digits");
    value = value * 10 + (text_[at_++] - '0');
  }
  if (at_ == begin || (text_[begin] == '0' && at_ - begin > 1)) return fail("a non-negative integer is expected");
  if (at_ < text_.size() && (text_[at_] == '.' || text_[at_] == 'e' || text_[at_] == 'E')) {
    return fail("a non-negative integer is expected");
  }
  out = value;
  return true;
}

bool JsonScanner::number() {
  if (at_ < text_.size() && text_[at_] == '-') ++at_;
  const auto digits = [this] {
    const size_t begin = at_;
    while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
    return at_ - begin;
  };
  const bool zero = at_ < text_.size() && text_[at_] == '0';
  const size_t whole = digits();
  if (whole == 0 || (zero && whole > 1)) return fail("a value is expected");
  if (at_ < text_.size() && text_[at_] == '.') {
    ++at_;
    if (digits() == 0) return fail("digits are expected behind the point");
  }
  if (at_ < text_.size() && (text_[at_] == 'e' || text_[at_] == 'E')) {
    ++at_;
    if (at_ < text_.size() && (text_[at_] == '+' || text_[at_] == '-')) ++at_;
    if (digits() == 0) return fail("digits are expected in the exponent");
  }
  return true;
}

bool JsonScanner::word(std::string_view expected) {
  if (text_.substr(at_, expected.size()) != expected) return fail("a value is expected");
  at_ += expected.size();
  return true;
}

bool JsonScanner::skip_value(int depth) {
  if (depth == 0) return fail("values are nested too deeply");
  skip_blanks();
  if (at_ >= text_.size()) return fail("a value is expected");
  std::string dropped;
  switch (text_[at_]) {
    case '"': return string(dropped);
    case '{': return object([&](const std::string&) { return skip_value(depth - 1); });
    case '[': return array([&] { return skip_value(depth - 1); });
    case 't': return word("true");
    case 'f': return word("false");
    case 'n': return word("null");
    default: return number();
  }
}

}  // namespace fathom
