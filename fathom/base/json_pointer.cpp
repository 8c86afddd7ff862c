#include "fathom/base/json_pointer.h"

namespace fathom {
namespace {

int value_of_hex(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = char(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

}  // namespace

std::string pointer_step(std::string_view key) {
  std::string out;
  for (const char c : key) {
    if (c == '~') {
      out += "~0";
    } else if (c == '/') {
      out += "~1";
    } else {
      out += c;
    }
  }
  return out;
}

std::string key_of_step(std::string_view step) {
  std::string out;
  for (size_t i = 0; i < step.size(); ++i) {
    const char next = i + 1 < step.size() ? step[i + 1] : '\0';
    if (step[i] == '~' && (next == '0' || next == '1')) {
      out += next == '0' ? '~' : '/';
      ++i;
    } else {
      out += step[i];
    }
  }
  return out;
}

std::string percent_decoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool whole = text[i] == '%' && i + 2 < text.size();
    const int high = whole ? value_of_hex(text[i + 1]) : -1, low = whole ? value_of_hex(text[i + 2]) : -1;
    if (high >= 0 && low >= 0) {
      out += char(high * 16 + low);
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace fathom
