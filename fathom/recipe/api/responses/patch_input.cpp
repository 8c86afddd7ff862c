#include "fathom/recipe/api/responses/patch_input.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <utility>

namespace fathom::recipe {
namespace {

constexpr std::string_view kBeginning = R"({"input":")";

bool between_parts(size_t matched) { return matched <= 1 || matched == 8 || matched == 9; }
bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }
bool is_hex(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

uint32_t hex_of(std::string_view digits) {
  uint32_t value = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  return value;
}

void append_utf8(std::string& out, uint32_t code) {
  if (code < 0x80) {
    out += char(code);
    return;
  }
  if (code < 0x800) {
    out += char(0xc0 | (code >> 6));
  } else {
    if (code < 0x10000) {
      out += char(0xe0 | (code >> 12));
    } else {
      out += char(0xf0 | (code >> 18));
      out += char(0x80 | ((code >> 12) & 0x3f));
    }
    out += char(0x80 | ((code >> 6) & 0x3f));
  }
  out += char(0x80 | (code & 0x3f));
}

/// The character of a two-character escape; 0: there is none.
char simple_escape(char c) {
  switch (c) {
    case '"':
    case '\\':
    case '/': return c;
    case 'b': return '\b';
    case 'f': return '\f';
    case 'n': return '\n';
    case 'r': return '\r';
    case 't': return '\t';
    default: return 0;
  }
}

}  // namespace

void PatchInput::push(std::string_view arguments, std::string& out) {
  switch (stage_) {
    case Stage::prefix: return push_prefix(arguments, out);
    case Stage::value: return push_value(arguments, out);
    case Stage::done: return;
    case Stage::raw: out += arguments; return;
  }
}

void PatchInput::finish(std::string& out) {
  out += held_;
  held_.clear();
}

void PatchInput::push_prefix(std::string_view arguments, std::string& out) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == kBeginning[matched_]) {
      if (++matched_ == kBeginning.size()) {
        held_.clear();
        stage_ = Stage::value;
        return push_value(arguments.substr(i + 1), out);
      }
    } else if (!between_parts(matched_) || !is_blank(arguments[i])) {
      stage_ = Stage::raw;
      out.append(held_).append(arguments);
      held_.clear();
      return;
    }
  }
  held_ += arguments;
}

void PatchInput::push_value(std::string_view arguments, std::string& out) {
  for (size_t i = 0; i < arguments.size();) {
    if (!held_.empty()) {
      push_escape(arguments[i++], out);
      continue;
    }
    const size_t end = std::min(arguments.find_first_of("\"\\", i), arguments.size());
    out += arguments.substr(i, end - i);
    i = end;
    if (i == arguments.size()) return;
    if (arguments[i++] == '"') {
      stage_ = Stage::done;
      return;
    }
    held_ = '\\';
  }
}

void PatchInput::push_escape(char c, std::string& out) {
  const size_t at = held_.size();  // place of `c` in \uXXXX\uXXXX
  held_ += c;
  if (at == 1 && c == 'u') return;
  if (at == 1 || (at == 6 && c != '\\') || (at == 7 && c != 'u')) {
    const char simple = at == 1 ? simple_escape(c) : char(0);
    if (simple) {
      out += simple;
    } else {
      out += held_;
    }
    held_.clear();
    return;
  }
  if (at == 6 || at == 7) return;
  if (is_hex(c)) {
    if (at != 5 && at != 11) return;
    const uint32_t high = hex_of(std::string_view(held_).substr(2, 4));
    if (at == 5 && high >= 0xd800 && high < 0xdc00) return;  // the other half must follow
    if (at == 5 && (high < 0xd800 || high >= 0xe000)) {
      append_utf8(out, high);
      held_.clear();
      return;
    }
    const uint32_t low = at == 11 ? hex_of(std::string_view(held_).substr(8, 4)) : 0;
    if (low >= 0xdc00 && low < 0xe000) {
      append_utf8(out, 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00));
      held_.clear();
      return;
    }
  }
  finish(out);
}

}  // namespace fathom::recipe
