// fathom/recipe/prompt.h
// Conversation -> prompt text -> token ids. Source: spec/recipe.md 6 and 7.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fathom/base/result.h"
#include "fathom/recipe/conversation.h"
#include "fathom/recipe/policy.h"
#include "fathom/recipe/token_spellings.h"
#include "fathom/tokenizer/tokenizer.h"

namespace fathom::recipe {

/// `special` are the bytes that the renderer itself placed as special tokens, ascending and disjoint; everything else,
/// whatever it spells, is plain text. `images` are in the order of their tokens.
struct Prompt {
  std::string text;
  std::vector<SpecialRange> special;
  std::vector<ImageSource> images;
};

/// Never fails: every Conversation has a prompt.
Prompt render(const Conversation& conversation, ModelVersion version, const TokenSpellings& spellings = {});

/// Each special range becomes the added token of that spelling, each text between ranges is encoded on its own without
/// added tokens. One token an image. Errors: bad_input `special token "X" is not in the added vocabulary`.
Result<std::vector<int32_t>> encode(const Prompt& prompt, const Tokenizer& tokenizer);

/// Repeats the i-th image token (of id `image_id`) `tokens_per_image[i]` times.
/// Errors: usage when the number of images differs.
Result<std::vector<int32_t>> expand_images(std::span<const int32_t> ids, int32_t image_id,
                                           std::span<const int> tokens_per_image);

}  // namespace fathom::recipe
