// fathom/recipe/image_layout.h
// How large an image is shown to the model and how many tokens that takes. Pure arithmetic in doubles.
// Source: spec/recipe.md 5 (sizing).
#pragma once
#include <cstdint>
#include <vector>

#include "fathom/base/result.h"
#include "fathom/recipe/conversation.h"

namespace fathom::recipe {

struct ImageLayout {
  int width = 0, height = 0;  // pixels to resize to: multiples of 14 (patch)
  int tokens = 0;             // start, rows of (image tokens and one newline), end

  friend bool operator==(const ImageLayout&, const ImageLayout&) = default;
};

inline constexpr int kMostImageSide = 8192;     // of a decoded source; larger ones are refused before decoding
inline constexpr int kMostResizedSide = 16380;  // of a resized image: what WebP holds

struct ImageLimits {
  int source_side = kMostImageSide;  // of the source image
  int low_detail_side = 512;         // detail low: larger images are scaled down to it first
};

/// The size and token count of a source image. Errors: out_of_range, with the normative text, for a side < 1 or >
/// limits.source_side; failed when the repeated pass does not converge.
Result<ImageLayout> lay_out_image(int64_t width, int64_t height, ImageDetail detail, const ImageLimits& limits = {});

/// The token count of an image that has been resized already (no scaling for detail, no clamp to kMostResizedSide).
/// Errors: as above, for sides < 1 or > 2^24.
Result<ImageLayout> count_image_tokens(int64_t width, int64_t height);

/// Tokens that the images take beyond one placeholder each.
int64_t image_token_adjustment(const std::vector<ImageLayout>& images);

}  // namespace fathom::recipe
