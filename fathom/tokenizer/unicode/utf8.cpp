#include "fathom/tokenizer/unicode/utf8.h"

#include <cstring>

namespace fathom::unicode {

Utf8Step step_utf8(std::string_view bytes) {
  using enum Utf8Step::Kind;
  const auto lead = uint8_t(bytes[0]);
  if (lead < 0x80) return {valid, 1};
  if (lead < 0xC2 || lead > 0xF4) return {invalid, 1};
  const int length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The second byte carries what the lead byte leaves open: over-long forms, surrogates, beyond U+10FFFF (table 3-7).
  const uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (int i = 1; i < length; ++i) {
    if (size_t(i) == bytes.size()) return {incomplete, i};
    const auto byte = uint8_t(bytes[size_t(i)]);
    if (byte < (i == 1 ? low : 0x80) || byte > (i == 1 ? high : 0xBF)) return {invalid, i};
  }
  return {valid, length};
}

size_t valid_utf8_prefix(std::string_view bytes) {
  size_t i = 0;
  while (i < bytes.size()) {
    if (i + 8 <= bytes.size()) {
      uint64_t word;
      std::memcpy(&word, bytes.data() + i, 8);
      if ((word & 0x8080808080808080u) == 0) {
        i += 8;
        continue;
      }
    }
    const Utf8Step step = step_utf8(bytes.substr(i));
    if (step.kind != Utf8Step::Kind::valid) return i;
    i += size_t(step.length);
  }
  return i;
}

void append_replacing(std::string& out, std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t good = valid_utf8_prefix(bytes);
    out += bytes.substr(0, good);
    bytes.remove_prefix(good);
    if (bytes.empty()) return;
    out += kReplacement;
    bytes.remove_prefix(size_t(step_utf8(bytes).length));
  }
}

void append_utf8(std::string& out, char32_t c) {
  if (c < 0x80) {
    out += char(c);
  } else if (c < 0x800) {
    out += {char(0xC0 | c >> 6), char(0x80 | (c & 0x3F))};
  } else if (c < 0x10000) {
    out += {char(0xE0 | c >> 12), char(0x80 | (c >> 6 & 0x3F)), char(0x80 | (c & 0x3F))};
  } else {
    out += {char(0xF0 | c >> 18), char(0x80 | (c >> 12 & 0x3F)), char(0x80 | (c >> 6 & 0x3F)), char(0x80 | (c & 0x3F))};
  }
}

}  // namespace fathom::unicode
