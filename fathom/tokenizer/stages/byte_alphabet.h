// fathom/tokenizer/stages/byte_alphabet.h
// The printable characters that stand for bytes in tokenizer.json: 0x21-7E, A1-AC and AE-FF for themselves, the other
// 68 bytes in ascending order for U+0100, U+0101, ... We work on bytes and use this at the border only. Source:
// spec/tokenizer.md 4.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace fathom {

/// "Ġthe" -> " the". Nothing when a character is not of the alphabet. `spelling` must be valid UTF-8.
std::optional<std::string> bytes_of_spelling(std::string_view spelling);

/// " the" -> "Ġthe".
std::string spelling_of_bytes(std::string_view bytes);

}  // namespace fathom
