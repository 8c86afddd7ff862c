// fathom/tokenizer/unicode/fold_table.h
// What NFKC, NFD, removal of marks and lower case together make of a character, as generated data; fold.h applies it.
#pragma once
#include <cstdint>
#include <span>

namespace fathom::unicode {

/// The characters first, first + step, ... last (step 1 or 2) become one character, `value` further, or nothing when
/// `length` is 0. With step 0, first ... last become `length` characters each, one behind the other from
/// fold_strings()[value] on.
struct FoldRun {
  char32_t first;
  char32_t last;
  uint8_t step;
  uint8_t length;
  int32_t value;
};

/// Ascending and disjoint. Characters in no run stay as they are; Hangul syllables are in none (they are computed).
std::span<const FoldRun> fold_runs();
std::span<const char32_t> fold_strings();

}  // namespace fathom::unicode
