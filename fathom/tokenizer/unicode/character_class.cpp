#include "fathom/tokenizer/unicode/character_class.h"

#include <map>

#include "fathom/tokenizer/unicode/category_table.h"

namespace fathom::unicode {
namespace {

using enum CharacterClass;

constexpr bool in_cjk_ranges(char32_t c) { return (c >= 0x4E00 && c <= 0x9FA5) || (c >= 0x3040 && c <= 0x30FF); }

constexpr CharacterClass classify(char32_t c, Category category) {
  const bool cjk = in_cjk_ranges(c);
  switch (category) {
    case Category::letter:
    case Category::mark: return cjk ? cjk_letter : letter;
    case Category::punctuation:
    case Category::symbol: return cjk ? cjk_symbol : symbol;
    case Category::number: return number;  // none within the CJK ranges
    case Category::white_space: return c == '\r' || c == '\n' ? line_break : blank;
    case Category::other: break;
  }
  return cjk ? cjk_other : other;
}

}  // namespace

const CharacterClasses& CharacterClasses::get() {
  static const CharacterClasses classes;
  return classes;
}

CharacterClasses::CharacterClasses() {
  const auto runs = category_runs();
  std::map<std::array<CharacterClass, 256>, uint16_t> known;
  const auto end_of = [&](size_t i) { return i + 1 < runs.size() ? runs[i + 1] >> 4 : 0x110000u; };
  size_t run = 0;
  for (char32_t block = 0; block < block_of_.size(); ++block) {
    const char32_t first = block << 8, last = first | 0xFF;
    while (first >= end_of(run)) ++run;
    // Most blocks lie within one run and look like the block before (unassigned planes, ideographs, syllables).
    const bool whole = last < end_of(run) && in_cjk_ranges(first) == in_cjk_ranges(last);
    const CharacterClass only = classify(first, Category(runs[run] & 0xF));
    std::array<CharacterClass, 256> row;
    if (whole) {
      row.fill(only);
    } else {
      for (char32_t c = first; c <= last; ++c) {
        while (c >= end_of(run)) ++run;
        row[c & 0xFF] = classify(c, Category(runs[run] & 0xF));
      }
    }
    if (block > 0 && row == blocks_[block_of_[block - 1]]) {
      block_of_[block] = block_of_[block - 1];
      continue;
    }
    const auto [at, fresh] = known.emplace(row, uint16_t(blocks_.size()));
    if (fresh) blocks_.push_back(row);
    block_of_[block] = at->second;
  }
}

}  // namespace fathom::unicode
