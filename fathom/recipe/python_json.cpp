#include "fathom/recipe/python_json.h"

#include <charconv>
#include <cmath>
#include <cstdint>
#include <string_view>

namespace fathom::recipe {
namespace {

// Is this number, which no double holds, too small rather than too large? Its mantissa is not zero.
bool underflows(std::string_view text) {
  int64_t exponent = 0;  // of the leading digit that is not zero
  bool seen = false, after_point = false;
  size_t i = text.front() == '-' ? 1 : 0;
  for (; i < text.size() && (text[i] | 0x20) != 'e'; ++i) {
    if (text[i] == '.') {
      after_point = true;
    } else if (!after_point) {
      exponent += seen;
      seen |= text[i] != '0';
    } else if (!seen) {
      --exponent;
      seen = text[i] != '0';
    }
  }
  if (i == text.size()) return exponent < 0;
  int64_t written = 0;
  const char* begin = text.data() + i + 1;
  if (*begin == '+') ++begin;
  if (std::from_chars(begin, text.data() + text.size(), written).ec != std::errc()) return *begin == '-';
  return written < -exponent;
}

// As repr() writes a finite double: the shortest digits that read back as it; an exponent of at least two digits when
// the decimal point would stand more than 16 digits behind the first digit or more than four zeros before it.
void append_repr(std::string& out, double value) {
  char digits[32];
  const auto form = value == 0 || (std::abs(value) >= 1e-4 && std::abs(value) < 1e16) ? std::chars_format::fixed
                                                                                      : std::chars_format::scientific;
  char* const end = std::to_chars(digits, digits + sizeof digits, value, form).ptr;
  const std::string_view text(digits, size_t(end - digits));
  out += text;
  if (form == std::chars_format::fixed && text.find('.') == std::string_view::npos) out += ".0";
}

void append_number(std::string& out, const std::string& text) {
  const char* const end = text.data() + text.size();
  if (text != "-0") {  // serde and Python agree that this one is a double
    int64_t integer = 0;
    auto [stop, error] = std::from_chars(text.data(), end, integer);
    if (error == std::errc() && stop == end) {
      out += text;
      return;
    }
    uint64_t large = 0;
    const auto [large_stop, large_error] = std::from_chars(text.data(), end, large);
    if (large_error == std::errc() && large_stop == end) {
      out += text;
      return;
    }
  }
  double value = 0;
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc()) {
    append_repr(out, value);
  } else if (underflows(text)) {
    out += text.front() == '-' ? "-0.0" : "0.0";
  } else {
    out += text;
  }
}

void append(std::string& out, const Json& value, std::string_view comma, std::string_view colon) {
  switch (value.kind) {
    case Json::Kind::null: out += "null"; return;
    case Json::Kind::boolean: out += value.boolean ? "true" : "false"; return;
    case Json::Kind::number: append_number(out, value.text); return;
    case Json::Kind::string: append_json_string(out, value.text); return;
    case Json::Kind::array: {
      out += '[';
      for (size_t i = 0; i < value.items.size(); ++i) {
        if (i) out += comma;
        append(out, value.items[i], comma, colon);
      }
      out += ']';
      return;
    }
    case Json::Kind::object: {
      out += '{';
      for (size_t i = 0; i < value.fields.size(); ++i) {
        if (i) out += comma;
        append_json_string(out, value.fields[i].first);
        out += colon;
        append(out, value.fields[i].second, comma, colon);
      }
      out += '}';
      return;
    }
  }
}

}  // namespace

void append_python_json(std::string& out, const Json& value) { append(out, value, ", ", ": "); }
void append_compact_json(std::string& out, const Json& value) { append(out, value, ",", ":"); }

}  // namespace fathom::recipe
