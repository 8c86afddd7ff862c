// fathom/tokenizer/unicode/category_table.h
// General categories of Unicode 16.0 as generated data; character_class.h is what to ask.
#pragma once
#include <cstdint>
#include <span>

namespace fathom::unicode {

enum class Category : uint8_t { other, letter, mark, number, punctuation, symbol, white_space };

/// Runs in ascending order that cover all of U+0000-10FFFF: (first code point << 4) | Category; a run ends where the
/// next begins. `white_space` is the property White_Space and wins over the category.
std::span<const uint32_t> category_runs();

}  // namespace fathom::unicode
