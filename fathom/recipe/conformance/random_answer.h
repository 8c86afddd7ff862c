// fathom/recipe/conformance/random_answer.h
// Random model outputs: reasoning, text, calls in both spellings, mistakes that models make in them and some that none
// should; and random ways to cut a text into chunks. The only generator of outputs: laws, the comparison with
// deepseek-recipe and the tests of the parser use it.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "fathom/recipe/conformance/dice.h"

namespace fathom::recipe {

/// Valid UTF-8.
std::string random_answer(uint64_t seed);

/// Now and then removes bytes, cuts, or puts a byte somewhere, also inside a character.
void damage_bytes(Dice& dice, std::string& text);

/// `text` in pieces, in order, none empty; cuts fall on characters, or anywhere when `inside_characters`.
std::vector<std::string> random_pieces(Dice& dice, const std::string& text, bool inside_characters);

}  // namespace fathom::recipe
