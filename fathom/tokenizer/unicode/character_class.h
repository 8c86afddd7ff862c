// fathom/tokenizer/unicode/character_class.h
// What the splitting rules of the tokenizer distinguish, for every code point. Letters and marks always go together in
// the rules, and so do punctuation and symbols; the CJK ranges of stage 2 are a piece of their own, so a letter inside
// them is another class than one outside, and no run crosses the border by accident.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

namespace fathom::unicode {

enum class CharacterClass : uint8_t {
  other,       // control, format, unassigned, private
  letter,      // L or M
  symbol,      // P or S
  number,      // N
  blank,       // White_Space but for CR and LF
  line_break,  // CR, LF
  cjk_letter,  // L or M within U+4E00-9FA5, 3040-309F, 30A0-30FF
  cjk_symbol,  // P or S there
  cjk_other,   // unassigned there
};

inline constexpr bool is_cjk(CharacterClass c) { return c >= CharacterClass::cjk_letter; }

/// A two-stage table: 4352 block numbers and the distinct blocks of 256 code points (70 KB in all), expanded from the
/// generated runs at first use (about 50 us). Immutable, shared by threads.
class CharacterClasses {
 public:
  static const CharacterClasses& get();

  /// `c` must be at most U+10FFFF.
  CharacterClass of(char32_t c) const { return blocks_[block_of_[c >> 8]][c & 0xFF]; }

 private:
  CharacterClasses();
  std::array<uint16_t, 0x1100> block_of_;
  std::vector<std::array<CharacterClass, 256>> blocks_;
};

}  // namespace fathom::unicode
