// What the model says of products that are `beside` the one ahead (backend/ops.h) is so: a device trusts it. A table
// looks at every call and then lets the cpu backend make it.
#include <gtest/gtest.h>

#include <optional>
#include <type_traits>

#include "fathom/backend/operation_list.h"
#include "fathom/model/text_under_test.h"

namespace fathom {
namespace {

struct Product {
  const void *x = nullptr, *x_scales = nullptr, *x_row = nullptr, *begin = nullptr;
  int64_t x_rows = 0;
  AnyView out;
  bool beside = false, grouped = false;
};
Product product_of(const Linear& op) {
  return {op.x.values.data, op.x.scales.data, nullptr, nullptr, op.x.rows(), op.out, op.beside, false};
}
Product product_of(const GroupedLinear& op) {
  return {op.x.values.data, op.x.scales.data, op.x_row.data, op.begin.data, op.x.rows(), op.out, op.beside, true};
}

// A table is plain functions, so what they keep is the process's.
Operations looked_at;
std::optional<Product> ahead;  // if the call ahead was a product
int64_t beside = 0, grouped_beside = 0, wrong = 0;

bool inside(const void* address, const AnyView& view) {
  const auto* at = static_cast<const uint8_t*>(address);
  return at >= view.data && at < view.row(view.rows - 1) + bytes_of(view.dtype, view.cols);
}

template <auto entry, class Op>
void look(Queue& queue, const Op& op) {
  if constexpr (std::is_same_v<Op, Linear> || std::is_same_v<Op, GroupedLinear>) {
    const Product now = product_of(op);
    if (now.beside) {
      ++(now.grouped ? grouped_beside : beside);
      const bool same = ahead && ahead->grouped == now.grouped && ahead->x == now.x &&
                        ahead->x_scales == now.x_scales && ahead->x_row == now.x_row && ahead->begin == now.begin &&
                        ahead->x_rows == now.x_rows;
      wrong += !same || inside(now.x, ahead->out) || inside(now.x_row, ahead->out);
    }
    ahead = now;
  } else {
    ahead.reset();
  }
  (looked_at.*entry)(queue, op);
}
template <auto entry, class Op>
void set_look(void (*Operations::*)(Queue&, const Op&), Operations& table) {
  table.*entry = look<entry, Op>;
}

TEST(ProductsBeside, HaveTheInputOfTheProductAheadAndDoNotReadItsResult) {
  const TinyFiles tiny;
  const ModelConfig& config = tiny.config;
  for (const Numerics& numerics : {kReferenceNumerics, kDeepinferNumerics}) {
    Backend backend = *open_backend("cpu");
    looked_at = backend.ops;
    for_each_operation([&]<auto entry>(std::string_view) { set_look<entry>(entry, backend.ops); });
    const auto queue = std::move(*backend.open_queue(2));
    auto model = Model::load(tiny.checkpoint, backend, {numerics, tiny.token_map});
    ASSERT_TRUE(model.ok()) << to_string(model.error());
    beside = grouped_beside = wrong = 0;
    logits_of_text(*model, *queue, backend.memory, 40, 30);
    EXPECT_EQ(wrong, 0) << "of " << beside + grouped_beside << ", " << numerics.name;
    // Two pieces and eight tokens through all layers, eight drafts through the draft stages; in each block wkv and
    // wq_a, the shared expert's two, and gate and up of the routed ones.
    const int64_t blocks = (2 + 8) * config.num_hidden_layers + 8 * config.num_nextn_predict_layers;
    EXPECT_GT(beside, 2 * blocks) << "and a compressor's two, " << numerics.name;
    EXPECT_EQ(grouped_beside, blocks) << numerics.name;
  }
}

}  // namespace
}  // namespace fathom
