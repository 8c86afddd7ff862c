// fathom/tokenizer/unicode/utf8.h
// UTF-8 in both directions. Ill-formed bytes follow The Unicode Standard 3.9, "substitution of maximal subparts", as
// Python's and Rust's replacing decoders do: one U+FFFD for each longest beginning of a character that breaks off.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace fathom::unicode {

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

/// What stands at the front of some bytes: a whole character; bytes that no continuation can save; or the beginning of
/// a character that the end of the bytes cuts off. `length` is 1 to 4 bytes.
struct Utf8Step {
  enum class Kind : uint8_t { valid, invalid, incomplete };
  Kind kind;
  int length;
};

/// `bytes` must not be empty.
Utf8Step step_utf8(std::string_view bytes);

/// Length of the longest valid prefix: bytes.size() when all is well. Cost: about a byte a cycle, ASCII 8 a cycle.
size_t valid_utf8_prefix(std::string_view bytes);

/// Appends `bytes`, each ill-formed part replaced by U+FFFD; a cut-off end too.
void append_replacing(std::string& out, std::string_view bytes);

/// The character that begins at `at`; valid UTF-8 only, nothing is checked.
inline char32_t decode_utf8(const char* at, int& length) {
  const auto byte = [at](int i) { return char32_t(uint8_t(at[i])); };
  if (byte(0) < 0x80) return length = 1, byte(0);
  if (byte(0) < 0xE0) return length = 2, (byte(0) & 0x1F) << 6 | (byte(1) & 0x3F);
  if (byte(0) < 0xF0) return length = 3, (byte(0) & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
  return length = 4, (byte(0) & 7) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
}

void append_utf8(std::string& out, char32_t c);

}  // namespace fathom::unicode
