#include "fathom/tokenizer/stages/byte_alphabet.h"

#include <array>
#include <cstdint>

#include "fathom/tokenizer/unicode/utf8.h"

namespace fathom {
namespace {

constexpr bool stands_for_itself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr int kCharacters = 0x100 + 68;

struct Alphabet {
  std::array<char32_t, 256> character{};
  std::array<int16_t, kCharacters> byte{};  // -1: not of the alphabet

  constexpr Alphabet() {
    for (auto& b : byte) b = -1;
    char32_t next = 0x100;
    for (int b = 0; b < 256; ++b) {
      character[size_t(b)] = stands_for_itself(b) ? char32_t(b) : next++;
      byte[character[size_t(b)]] = int16_t(b);
    }
  }
};

constexpr Alphabet kAlphabet;

}  // namespace

std::optional<std::string> bytes_of_spelling(std::string_view spelling) {
  std::string bytes;
  for (size_t i = 0; i < spelling.size();) {
    int length = 0;
    const char32_t c = unicode::decode_utf8(spelling.data() + i, length);
    if (c >= kCharacters || kAlphabet.byte[c] < 0) return {};
    bytes += char(kAlphabet.byte[c]);
    i += size_t(length);
  }
  return bytes;
}

std::string spelling_of_bytes(std::string_view bytes) {
  std::string out;
  for (const char b : bytes) unicode::append_utf8(out, kAlphabet.character[uint8_t(b)]);
  return out;
}

}  // namespace fathom
