// The arithmetic of spec/recipe.md 5. A pass enlarges what is too small, rounds up to whole patches, and shrinks what
// would take too many tokens. Rounding can move a result across one of these limits, so the pass is repeated on its own
// result until that stands still.
#include "fathom/recipe/image_layout.h"

#include <algorithm>
#include <cmath>

namespace fathom::recipe {
namespace {

constexpr int64_t kPatch = 14;              // pixels a side
constexpr int64_t kMerge = 3;               // patches a side that become one token
constexpr int64_t kCell = kPatch * kMerge;  // pixels a side of one token
constexpr int64_t kMostTokens = 1024;
constexpr int64_t kLeastPixels = 544 * 544;
constexpr int64_t kMostSide = int64_t(1) << 24;  // so that products are exact in doubles and in int64_t
constexpr int kMostPasses = 64;                  // at most 8 were seen

struct Size {
  int64_t width, height;

  friend bool operator==(const Size&, const Size&) = default;
};

int64_t divided_up(int64_t value, int64_t by) { return (value + by - 1) / by; }

int64_t tokens_of(Size size) { return divided_up(size.height, kCell) * (divided_up(size.width, kCell) + 1) + 2; }

Size one_pass(Size size) {
  if (size.width * size.height < kLeastPixels) {
    const double scale = std::sqrt(double(kLeastPixels) / double(size.width * size.height));
    size = {int64_t(double(size.width) * scale), int64_t(double(size.height) * scale)};
  }
  const Size whole{divided_up(size.width, kPatch) * kPatch, divided_up(size.height, kPatch) * kPatch};
  if (tokens_of(whole) <= kMostTokens) return whole;

  // The widest row of whole tokens such that rows of this shape, each with a newline, fit between start and end.
  const double shape = double(size.height) / double(size.width);
  const double across = std::sqrt(double(kMostTokens - 2) / shape + 0.25) - 0.5;
  const double down = across * shape;
  if (across < 1) return {kCell, (kMostTokens - 2) / 2 * kCell};
  // One patch, not one cell: seen only through the clamp (a 8192 x 1 image becomes 16380 x 28;
  // docs/recipe-findings.md).
  if (down < 1) return {(kMostTokens - 3) * kCell, kPatch};
  const double scale = std::min(std::floor(across) * double(kCell) / double(size.width),
                                std::floor(down) * double(kCell) / double(size.height));
  return {int64_t(double(size.width) * scale / double(kPatch)) * kPatch,
          int64_t(double(size.height) * scale / double(kPatch)) * kPatch};
}

Result<ImageLayout> settle(Size size, int64_t most_side) {
  for (int pass = 0; pass < kMostPasses; ++pass) {
    const Size before = size;
    size = one_pass(size);
    size = {std::min(size.width, most_side), std::min(size.height, most_side)};
    if (size == before) return ImageLayout{int(size.width), int(size.height), int(tokens_of(size))};
  }
  return Error{
      ErrorCode::failed,
      "the size of an image does not settle at " + std::to_string(size.width) + " x " + std::to_string(size.height), "",
      ""};
}

Error refused() {
  return {ErrorCode::out_of_range,
          "You have uploaded an unsupported image. Please make sure your image is valid and has one of the following "
          "formats: webp, png, jpeg, and gif.",
          "", ""};
}

}  // namespace

Result<ImageLayout> lay_out_image(int64_t width, int64_t height, ImageDetail detail, const ImageLimits& limits) {
  const int64_t longest = std::max(width, height);
  if (std::min(width, height) < 1 || longest > limits.source_side || longest > kMostSide) return refused();
  Size size{width, height};
  if (detail == ImageDetail::low && longest > limits.low_detail_side) {
    const double scale = double(limits.low_detail_side) / double(longest);
    size = {std::max<int64_t>(std::llround(double(width) * scale), 1),
            std::max<int64_t>(std::llround(double(height) * scale), 1)};
  }
  return settle(size, kMostResizedSide);
}

Result<ImageLayout> count_image_tokens(int64_t width, int64_t height) {
  if (std::min(width, height) < 1 || std::max(width, height) > kMostSide) return refused();
  return settle({width, height}, kMostSide);
}

int64_t image_token_adjustment(const std::vector<ImageLayout>& images) {
  int64_t beyond = 0;
  for (const ImageLayout& image : images) beyond += image.tokens - 1;
  return beyond;
}

}  // namespace fathom::recipe
