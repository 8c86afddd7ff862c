#include "fathom/recipe/python_json.h"

#include <algorithm>
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

struct Form {
  std::string_view comma, colon;
  double smallest;      // below it, and from 1e16 on, a double has an exponent
  int exponent_digits;  // at least so many digits in an exponent
};
constexpr Form kPython = {", ", ": ", 1e-4, 2};  // repr()
constexpr Form kCompact = {",", ":", 1e-5, 1};
constexpr Form kSpaced = {", ", ": ", 1e-5, 1};

// The shortest digits that read back as the double.
void append_double(std::string& out, double value, const Form& form) {
  char digits[32];
  const double size = std::abs(value);
  if (size == 0 || (size >= form.smallest && size < 1e16)) {
    const std::string_view text(
        digits, size_t(std::to_chars(digits, digits + sizeof digits, value, std::chars_format::fixed).ptr - digits));
    out += text;
    if (text.find('.') == std::string_view::npos) out += ".0";
    return;
  }
  const std::string_view text(
      digits, size_t(std::to_chars(digits, digits + sizeof digits, value, std::chars_format::scientific).ptr - digits));
  const size_t exponent = text.find('e') + 2;  // behind the sign, which stands there always; two digits at least
  out += text.substr(0, exponent);
  out += text.substr(exponent + (form.exponent_digits == 1 && text[exponent] == '0'));
}

void append_spelt_number(std::string& out, const std::string& text, const Form& form) {
  const char* const end = text.data() + text.size();
  int64_t integer = 0;
  uint64_t large = 0;
  const auto whole = [end](std::from_chars_result result) { return result.ec == std::errc() && result.ptr == end; };
  const bool fits =
      whole(std::from_chars(text.data(), end, integer)) || whole(std::from_chars(text.data(), end, large));
  double value = 0;
  if (fits && text != "-0") {  // which is a double, as only those have a negative zero
    out += text;
  } else if (std::from_chars(text.data(), end, value).ec == std::errc()) {
    append_double(out, value, form);
  } else if (underflows(text)) {
    out += text.front() == '-' ? "-0.0" : "0.0";
  } else {
    out += text;
  }
}

void append(std::string& out, const Json& value, const Form& form) {
  switch (value.kind) {
    case Json::Kind::null: out += "null"; return;
    case Json::Kind::boolean: out += value.boolean ? "true" : "false"; return;
    case Json::Kind::number: append_spelt_number(out, value.text, form); return;
    case Json::Kind::string: append_json_string(out, value.text); return;
    case Json::Kind::array: {
      out += '[';
      for (size_t i = 0; i < value.items.size(); ++i) {
        if (i) out += form.comma;
        append(out, value.items[i], form);
      }
      out += ']';
      return;
    }
    case Json::Kind::object: {
      out += '{';
      for (size_t i = 0; i < value.fields.size(); ++i) {
        if (i) out += form.comma;
        append_json_string(out, value.fields[i].first);
        out += form.colon;
        append(out, value.fields[i].second, form);
      }
      out += '}';
      return;
    }
  }
}

}  // namespace

void append_python_json(std::string& out, const Json& value) { append(out, value, kPython); }
void append_compact_json(std::string& out, const Json& value) { append(out, value, kCompact); }
void append_spaced_json(std::string& out, const Json& value) { append(out, value, kSpaced); }

bool fits_doubles(const Json& value) {
  const auto fits = [](const Json& item) { return fits_doubles(item); };
  switch (value.kind) {
    case Json::Kind::number: return value.as_double() || underflows(value.text);
    case Json::Kind::array: return std::all_of(value.items.begin(), value.items.end(), fits);
    case Json::Kind::object:
      return std::all_of(value.fields.begin(), value.fields.end(),
                         [](const auto& field) { return fits_doubles(field.second); });
    default: return true;
  }
}

}  // namespace fathom::recipe
