#include "fathom/net/data_url.h"

#include <algorithm>
#include <array>
#include <optional>

#include "fathom/net/http_message.h"

namespace fathom::net {
namespace {

constexpr int8_t kNoDigit = -1, kBlank = -2;

constexpr std::array<int8_t, 256> kDigits = [] {
  constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::array<int8_t, 256> digits{};
  digits.fill(kNoDigit);
  for (size_t i = 0; i < kAlphabet.size(); ++i) digits[uint8_t(kAlphabet[i])] = int8_t(i);
  for (const char blank : {' ', '\t', '\r', '\n', '\f'}) digits[uint8_t(blank)] = kBlank;
  return digits;
}();

/// Nothing when it is no base64. Stops where it has more than `most` bytes.
std::optional<std::string> from_base64(std::string_view text, size_t most) {
  std::string bytes;
  bytes.reserve(std::min(text.size() / 4 * 3, most) + 3);
  uint32_t bits = 0;
  int digits = 0, padding = 0;
  for (const char c : text) {
    const int8_t digit = kDigits[uint8_t(c)];
    if (digit == kBlank) continue;
    if (c == '=') {
      ++padding;
      continue;
    }
    if (digit == kNoDigit || padding > 0) return {};
    bits = bits << 6 | uint32_t(digit);
    if (++digits == 4) {
      bytes += {char(bits >> 16), char(bits >> 8), char(bits)};
      bits = 0, digits = 0;
      if (bytes.size() > most) return bytes;
    }
  }
  // One digit holds no byte; too much padding belongs to something that is missing.
  if (digits == 1 || padding > 2 || (padding > 0 && digits + padding != 4)) return {};
  if (digits == 2) bytes += char(bits >> 4);
  if (digits == 3) bytes += {char(bits >> 10), char(bits >> 2)};
  return bytes;
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c;
  return out;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

}  // namespace

Result<DataUrl> read_data_url(std::string_view url, int64_t most_bytes) {
  const auto wrong = [](const char* what) {
    return Error{ErrorCode::bad_input, what, "", "send data:image/png;base64, and the content in base64"};
  };
  constexpr std::string_view kScheme = "data:";
  const size_t comma = url.find(',');
  if (!equals_ignoring_case(url.substr(0, kScheme.size()), kScheme)) return wrong("this is no data URL");
  if (comma == std::string_view::npos) return wrong("the data URL has no comma");
  std::string_view head = url.substr(kScheme.size(), comma - kScheme.size());
  const std::string_view content = url.substr(comma + 1);

  DataUrl out;
  bool base64 = false;
  out.media_type = lower(trimmed(head.substr(0, head.find(';'))));
  if (out.media_type.empty()) out.media_type = "text/plain";
  for (size_t at = head.find(';'); at != std::string_view::npos; at = head.find(';')) {
    head.remove_prefix(at + 1);
    base64 = equals_ignoring_case(trimmed(head.substr(0, head.find(';'))), "base64");  // it comes last
  }
  const Error too_long{ErrorCode::out_of_range, "the content is longer than " + std::to_string(most_bytes) + " bytes",
                       "", "use a smaller one"};
  if (base64) {
    auto bytes = from_base64(content, size_t(most_bytes));
    if (!bytes) return wrong("the data URL's content is no base64");
    out.bytes = std::move(*bytes);
  } else {
    if (int64_t(content.size()) / 3 > most_bytes) return too_long;  // three characters a byte at most
    out.bytes = percent_decoded(content, false);
  }
  if (int64_t(out.bytes.size()) > most_bytes) return too_long;
  return out;
}

}  // namespace fathom::net
