// The arithmetic of images. Fetching and decoding are the caller's: python/fathom_recipe/_images.py.
#include <nanobind/stl/string_view.h>

#include "fathom/recipe/image_layout.h"
#include "python/src/errors.h"
#include "python/src/words.h"

namespace fathom::python {
namespace {

/// (width, height, tokens). ValueError: a side is out of range; RuntimeError: no size settles.
nb::tuple sizes(const Result<recipe::ImageLayout>& layout) {
  if (layout) return nb::make_tuple(layout->width, layout->height, layout->tokens);
  if (layout.error().code == ErrorCode::out_of_range) raise_value_error(layout.error().message);
  raise_runtime_error(layout.error().message);
}

}  // namespace

void bind_images(nb::module_& module) {
  module.def(
      "_lay_out_image",
      [](int64_t width, int64_t height, std::string_view detail, int source_side, int low_detail_side) {
        return sizes(recipe::lay_out_image(width, height, read_detail(detail), {source_side, low_detail_side}));
      },
      "width"_a, "height"_a, "detail"_a, "source_side"_a, "low_detail_side"_a);
  module.def(
      "_count_image_tokens",
      [](int64_t width, int64_t height) { return sizes(recipe::count_image_tokens(width, height)); }, "width"_a,
      "height"_a);
}

}  // namespace fathom::python
