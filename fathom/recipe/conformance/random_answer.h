// fathom/recipe/conformance/random_answer.h
// Random model outputs: reasoning, text, calls in both spellings, and mistakes that models make in them; and random
// ways to cut a text into chunks.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "fathom/recipe/conformance/dice.h"

namespace fathom::recipe {

std::string random_answer(uint64_t seed);

/// `text` in pieces, in order, none empty; cuts fall on characters, or anywhere when `inside_characters`.
std::vector<std::string> random_pieces(Dice& dice, const std::string& text, bool inside_characters);

}  // namespace fathom::recipe
