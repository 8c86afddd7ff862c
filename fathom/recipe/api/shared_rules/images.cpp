// Image URLs, judged by their spelling. A data URL is read as the WHATWG Fetch standard says: blanks and control
// characters around it do not count, tabs and line breaks count nowhere, a fragment is cut off, the body is
// percent-decoded, base64 is "forgiving" (ASCII white space skipped, padding optional, spare bits ignored).
#include <array>

#include "fathom/recipe/api/shared_rules.h"

namespace fathom::recipe {
namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? char(c + ('a' - 'A')) : c; }

bool begins_without_case(std::string_view text, std::string_view lower_case) {
  if (text.size() < lower_case.size()) return false;
  for (size_t i = 0; i < lower_case.size(); ++i) {
    if (lower(text[i]) != lower_case[i]) return false;
  }
  return true;
}

bool skipped_in_urls(char c) { return c == '\t' || c == '\n' || c == '\r'; }

std::string_view without(std::string_view text, std::string_view blanks) {
  const size_t begin = text.find_first_not_of(blanks);
  return begin == text.npos ? "" : text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

struct DataUrl {
  std::string type;       // lower case, without parameters
  bool base64 = false;    // the header ends so
  std::string_view body;  // without the fragment, still encoded
};

std::optional<DataUrl> split_data_url(std::string_view url) {
  while (!url.empty() && uint8_t(url.front()) <= ' ') url.remove_prefix(1);
  while (!url.empty() && uint8_t(url.back()) <= ' ') url.remove_suffix(1);
  for (const char expected : std::string_view("data:")) {
    while (!url.empty() && skipped_in_urls(url.front())) url.remove_prefix(1);
    if (url.empty() || lower(url.front()) != expected) return {};
    url.remove_prefix(1);
  }
  const size_t comma = url.find_first_of(",#");
  if (comma == url.npos || url[comma] == '#') return {};
  std::string header;
  for (const char c : url.substr(0, comma)) {
    if (!skipped_in_urls(c)) header += lower(c);
  }
  DataUrl result;
  std::string_view rest = without(header, " \f");
  constexpr std::string_view kMark = "base64";
  if (rest.size() > kMark.size() && rest.substr(rest.size() - kMark.size()) == kMark) {
    std::string_view before = rest.substr(0, rest.size() - kMark.size());
    while (!before.empty() && before.back() == ' ') before.remove_suffix(1);
    result.base64 = !before.empty() && before.back() == ';';
  }
  result.type = without(rest.substr(0, rest.find(';')), " ");
  result.body = url.substr(comma + 1);
  result.body = result.body.substr(0, result.body.find('#'));
  return result;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char low = lower(c);
  return low >= 'a' && low <= 'f' ? low - 'a' + 10 : -1;
}

enum class Sign : uint8_t { other, digit, blank, padding, percent };
constexpr std::array<Sign, 256> kSigns = [] {
  std::array<Sign, 256> signs{};
  for (const char c : std::string_view("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")) {
    signs[uint8_t(c)] = Sign::digit;
  }
  for (const char c : std::string_view(" \t\n\r\f")) signs[uint8_t(c)] = Sign::blank;
  signs['='] = Sign::padding;
  signs['%'] = Sign::percent;
  return signs;
}();

bool valid_base64(std::string_view body) {
  size_t digits = 0, padding = 0;
  for (size_t i = 0; i < body.size(); ++i) {
    Sign sign = kSigns[uint8_t(body[i])];
    if (sign == Sign::percent && i + 2 < body.size() && hex_digit(body[i + 1]) >= 0 && hex_digit(body[i + 2]) >= 0) {
      sign = kSigns[size_t(hex_digit(body[i + 1]) * 16 + hex_digit(body[i + 2]))];
      i += 2;
    }
    switch (sign) {
      case Sign::digit:
        if (padding > 0) return false;
        ++digits;
        break;
      case Sign::blank: break;
      case Sign::padding: ++padding; break;
      case Sign::percent:
      case Sign::other: return false;
    }
  }
  if (padding > 0 && (padding > 2 || (digits + padding) % 4 != 0)) return false;
  return digits % 4 != 1;
}

}  // namespace

ImageUrl judge_data_url(std::string_view url) {
  const auto parts = split_data_url(url);
  if (!parts) return ImageUrl::bad_format;
  bool known = false;
  for (const char* type : {"image/png", "image/jpeg", "image/jpg", "image/gif", "image/webp"}) {
    known = known || parts->type == type;
  }
  if (!known) return ImageUrl::bad_type;
  return !parts->base64 || valid_base64(parts->body) ? ImageUrl::data : ImageUrl::bad_base64;
}

bool is_web_url(std::string_view url) { return begins_without_case(url, "http"); }

ImageUrl judge_image_url(std::string_view url) {
  if (is_web_url(url)) return url.size() > kMostUrlBytes ? ImageUrl::too_long : ImageUrl::web;
  // The mark is looked for as it is usually spelt, anywhere: that refuses percent-encoded images, nearly.
  if (url.find("base64,") == url.npos) return ImageUrl::bad_format;
  return judge_data_url(url);
}

}  // namespace fathom::recipe
