// fathom/recipe/token_spellings.h
// The special tokens of a prompt and how they are spelt. Any spelling may be replaced, for a tokenizer that names them
// otherwise; converter, renderer and parser all follow the same table. Source: spec/recipe.md 6, vectors fixed_texts.
#pragma once
#include <array>
#include <string>
#include <string_view>

namespace fathom::recipe {

enum class SpecialToken {
  bos,
  eos,
  thinking_start,
  thinking_end,
  system,
  user,
  assistant,
  latest_reminder,
  dsml,
  image,
  ref,
  ref_end,
  box,
  box_end,
  point,
  point_end,
  polygon,
  polygon_end,
};
inline constexpr int kSpecialTokens = 18;

/// "bos", "thinking_start", …: the names in options and vectors.
std::string_view name_of(SpecialToken token);

struct TokenSpellings {
  std::array<std::string, kSpecialTokens> spelling;

  /// The published spellings.
  TokenSpellings();
  const std::string& operator[](SpecialToken token) const { return spelling[size_t(token)]; }
  std::string& operator[](SpecialToken token) { return spelling[size_t(token)]; }

  friend bool operator==(const TokenSpellings&, const TokenSpellings&) = default;
};

}  // namespace fathom::recipe
