#include "fathom/recipe/json_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>

namespace fathom::recipe {
namespace {

constexpr uint64_t kOnes = 0x0101010101010101, kHighs = 0x8080808080808080;

/// Highs where a byte of `word` must be escaped. The lowest set one is exact; bytes above it may be wrong (a borrow).
uint64_t escaped_bytes(uint64_t word) {
  const auto zero_bytes = [](uint64_t w) { return (w - kOnes) & ~w & kHighs; };
  const uint64_t controls = (word - kOnes * 0x20) & ~word & kHighs;
  return controls | zero_bytes(word ^ (kOnes * '"')) | zero_bytes(word ^ (kOnes * '\\'));
}

/// How many bytes of `text` need no escape. Eight at a time: most text has none at all.
size_t plain_run(std::string_view text) {
  size_t i = 0;
  for (; i + 8 <= text.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, text.data() + i, 8);
    if (escaped_bytes(word)) break;
  }
  while (i < text.size() && uint8_t(text[i]) >= 0x20 && text[i] != '"' && text[i] != '\\') ++i;
  return i;
}

void append_escape(std::string& out, char c) {
  static constexpr char kHex[] = "0123456789abcdef";
  switch (c) {
    case '"': out += "\\\""; return;
    case '\\': out += "\\\\"; return;
    case '\n': out += "\\n"; return;
    case '\r': out += "\\r"; return;
    case '\t': out += "\\t"; return;
    case '\b': out += "\\b"; return;
    case '\f': out += "\\f"; return;
    default:
      out += "\\u00";
      out += kHex[uint8_t(c) >> 4];
      out += kHex[uint8_t(c) & 15];
  }
}

/// `lowest` and `highest`: decimal exponents of the first digit between which no exponent is written.
template <class Float>
void append_shortest(std::string& out, Float value, int lowest, int highest) {
  if (!std::isfinite(value)) {
    out += "null";
    return;
  }
  char text[32];  // "d.dddde±xx", shortest
  const char* const end = std::to_chars(text, text + sizeof text, value, std::chars_format::scientific).ptr;
  const char* at = text;
  if (*at == '-') out += *at++;
  char digits[24];
  int count = 0;
  for (; *at != 'e'; ++at) {
    if (*at != '.') digits[count++] = *at;
  }
  at += at[1] == '+' ? 2 : 1;
  int exponent = 0;
  std::from_chars(at, end, exponent);

  if (exponent < lowest || exponent > highest) {
    out += digits[0];
    if (count > 1) out.append(1, '.').append(digits + 1, size_t(count - 1));
    out += exponent < 0 ? "e" : "e+";
    append_integer(out, exponent);
  } else if (exponent < 0) {
    out.append("0.").append(size_t(-exponent - 1), '0').append(digits, size_t(count));
  } else {
    const int whole = exponent + 1;  // digits before the point
    out.append(digits, size_t(std::min(count, whole)));
    if (count <= whole) {
      out.append(size_t(whole - count), '0').append(".0");
    } else {
      out.append(1, '.').append(digits + whole, size_t(count - whole));
    }
  }
}

template <class Integer>
bool append_if_whole(std::string& out, const std::string& text) {
  Integer value;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text == "-0") return false;
  out += text;
  return true;
}

/// The double nearest to the text of a JSON number; infinite when it is too large for one.
double nearest_double(const std::string& number) {
  double value = 0;
  const auto error = std::from_chars(number.data(), number.data() + number.size(), value).ec;
  return error == std::errc() ? value : std::strtod(number.c_str(), nullptr);  // from_chars says nothing of tiny ones
}

void append_respelt(std::string& out, const Json& number) {
  if (append_if_whole<int64_t>(out, number.text) || append_if_whole<uint64_t>(out, number.text)) return;
  append_number(out, nearest_double(number.text));
}

/// `json` is valid. Looks at the text: a value that a later one of the same key replaces is no longer in the tree.
bool numbers_fit_doubles(std::string_view json) {
  for (size_t i = 0; i < json.size(); ++i) {
    if (json[i] == '"') {
      for (++i; json[i] != '"'; ++i) i += json[i] == '\\';
    } else if (json[i] >= '0' && json[i] <= '9') {
      const size_t end = std::min(json.find_first_of(",]} \n\r\t", i), json.size());
      if (std::isinf(nearest_double(std::string(json.substr(i, end - i))))) return false;
      i = end;
    }
  }
  return true;
}

}  // namespace

void append_escaped(std::string& out, std::string_view text) {
  for (;;) {
    const size_t run = plain_run(text);
    out.append(text.data(), run);
    if (run == text.size()) return;
    append_escape(out, text[run]);
    text.remove_prefix(run + 1);
  }
}

void append_quoted(std::string& out, std::string_view text) {
  out += '"';
  append_escaped(out, text);
  out += '"';
}

void append_integer(std::string& out, int64_t value) {
  char text[24];
  out.append(text, std::to_chars(text, text + sizeof text, value).ptr);
}

void append_number(std::string& out, float value) { append_shortest(out, value, -6, 12); }
void append_number(std::string& out, double value) { append_shortest(out, value, -5, 15); }

void append_value(std::string& out, const Json& value, Policy policy) {
  switch (value.kind) {
    case Json::Kind::null: out += "null"; return;
    case Json::Kind::boolean: out += value.boolean ? "true" : "false"; return;
    case Json::Kind::number:
      if (policy == Policy::strict) {
        append_respelt(out, value);
      } else {
        out += value.text;
      }
      return;
    case Json::Kind::string: append_quoted(out, value.text); return;
    case Json::Kind::array:
      out += '[';
      for (size_t i = 0; i < value.items.size(); ++i) {
        if (i) out += ',';
        append_value(out, value.items[i], policy);
      }
      out += ']';
      return;
    case Json::Kind::object:
      out += '{';
      for (size_t i = 0; i < value.fields.size(); ++i) {
        if (i) out += ',';
        append_quoted(out, value.fields[i].first);
        out += ':';
        append_value(out, value.fields[i].second, policy);
      }
      out += '}';
      return;
  }
}

bool append_argument_object(std::string& out, std::string_view arguments, Policy policy) {
  const auto json = parse_json(arguments, "arguments");
  if (!json || !json->is_object()) return false;
  if (policy == Policy::strict && !numbers_fit_doubles(arguments)) return false;
  append_value(out, *json, policy);
  return true;
}

}  // namespace fathom::recipe
