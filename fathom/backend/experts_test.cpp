#include "fathom/backend/tables_under_test.h"

namespace fathom {
namespace {

class ExpertsTest : public OverTables {
 protected:
  struct Choice {
    std::vector<int32_t> experts;
    std::vector<float> weights;
  };
  static Choice choose(const Operations& table, Queue& queue, const Tensor& x, const Tensor& weight,
                       const std::vector<float>& bias, const std::vector<float>& bias_image,
                       const std::vector<uint8_t>& image, int64_t k, float scale) {
    Choice out{std::vector<int32_t>(size_t(x.rows * k), -7), std::vector<float>(size_t(x.rows * k), -7.0f)};
    Gate op;
    op.x = x;
    op.weight = weight;
    op.bias = view(bias);
    op.bias_image = view(bias_image);
    if (!image.empty()) op.image = view(image);
    op.scale = scale;
    op.experts = view(out.experts, k);
    op.weights = view(out.weights, k);
    table.gate(queue, op);
    return out;
  }
};
INSTANTIATE_TEST_SUITE_P(Tables, ExpertsTest, all_tables(), table_name);

// spec/model.md 16.7: sqrt(softplus(x)). Both experts are chosen, so their weights stand as their scores do.
TEST_P(ExpertsTest, ScoresAreRootsOfSoftplus) {
  for (const auto& [logit, score] : std::vector<std::pair<float, double>>{{-20, 4.5399930e-05},
                                                                          {-2, 0.35626958},
                                                                          {-0.5, 0.68853249},
                                                                          {0, 0.83255461},
                                                                          {1, 1.14597630},
                                                                          {3, 1.74602043},
                                                                          {25, 5.0}}) {
    std::vector<float> x(32, 0.0f), weight(64, 0.0f);
    x[0] = 1;
    weight[0] = logit;  // expert 1 has the logit 0
    const auto c = choose(ops(), queue, Tensor(DType::f32, 1, 32, x), Tensor(DType::bf16, 2, 32, weight), {0, 0},
                          {0, 0}, {}, 2, 1.5f);
    const bool swapped = c.experts[0] == 1;
    EXPECT_NEAR(c.weights[swapped] / c.weights[!swapped], score / 0.83255461, 1e-6 * score + 1e-9);
    EXPECT_FLOAT_EQ(c.weights[0] + c.weights[1], 1.5f);
    EXPECT_GE(c.weights[0], c.weights[1]);
  }
}

TEST_P(ExpertsTest, TheBiasChoosesButDoesNotWeigh) {
  const Tensor x(DType::f32, 2, 32), weight(DType::bf16, 4, 32);  // every score is sqrt(ln 2)
  const auto c = choose(ops(), queue, x, weight, {0, 1, 3, 2}, {5, 0, 0, 4}, {0, 1}, 2, 1);
  EXPECT_EQ(c.experts, (std::vector<int32_t>{2, 3, 0, 3}));  // the second row is an image row
  for (const float w : c.weights) EXPECT_FLOAT_EQ(w, 0.5f);
}

TEST_P(ExpertsTest, EqualScoresGoToTheLowerExpert) {
  const Tensor x(DType::bf16, 1, 64), weight(DType::bf16, 40, 64);
  const std::vector<float> none(40, 0.0f);
  EXPECT_EQ(choose(ops(), queue, x, weight, none, none, {}, 6, 1).experts, (std::vector<int32_t>{0, 1, 2, 3, 4, 5}));
}

TEST_P(ExpertsTest, ChoosesAsTheDefinitionDoesRowByRow) {
  for (const auto& [experts, k] : std::vector<std::pair<int64_t, int64_t>>{{16, 2}, {128, 3}, {384, 6}, {7, 1}}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const int64_t hidden = 256;
      const Tensor x = noise(dtype, 20, hidden, 1), weight = noise(DType::bf16, experts, hidden, 2);
      const auto bias = noise(experts, 3), bias_image = noise(experts, 4);
      const auto want = choose(definition(), queue, x, weight, bias, bias_image, {}, k, 1.5f);
      const auto got = choose(ops(), queue, x, weight, bias, bias_image, {}, k, 1.5f);
      EXPECT_EQ(got.experts, want.experts);
      // logits: 256 products of size up to 1; the slope of a score is below 1, of its share below 2
      for (size_t i = 0; i < got.weights.size(); ++i)
        EXPECT_NEAR(got.weights[i], want.weights[i], 1.5 * 2 * 64 * 0x1p-24);
      for (const int64_t r : {0, 19}) {
        Tensor one(dtype, 1, hidden);
        one.bytes = x.row(r);
        const auto alone = choose(ops(), queue, one, weight, bias, bias_image, {}, k, 1.5f);
        EXPECT_TRUE(std::equal(alone.weights.begin(), alone.weights.end(), got.weights.begin() + r * k));
      }
    }
  }
}

// The model's width, widths that end inside a segment of a sum, and rows beyond what one block or one way of cutting
// the sum takes.
TEST_P(ExpertsTest, ChoosesAtTheModelsWidthAndForManyRows) {
  struct Size {
    int64_t rows, hidden, experts, k;
  };
  for (const Size& s : {Size{1, 5120, 384, 6}, Size{9, 5120, 384, 6}, Size{70, 5120, 384, 6}, Size{130, 448, 100, 4},
                        Size{5, 704, 33, 2}, Size{1100, 384, 20, 3}}) {
    const Tensor x = noise(DType::bf16, s.rows, s.hidden, 1), weight = noise(DType::bf16, s.experts, s.hidden, 2);
    const auto bias = noise(s.experts, 3), bias_image = noise(s.experts, 4);
    std::vector<uint8_t> image(size_t(s.rows), 0);
    for (size_t r = 0; r < image.size(); r += 3) image[r] = 1;
    const auto want = choose(definition(), queue, x, weight, bias, bias_image, image, s.k, 1.5f);
    const auto got = choose(ops(), queue, x, weight, bias, bias_image, image, s.k, 1.5f);
    EXPECT_EQ(got.experts, want.experts);
    // A logit is a sum of products of size 1/9 on average, in lanes of an eighth of them; slopes as above.
    const double bound = 1.5 * 2 * (double(s.hidden) / 8 + 32) * std::sqrt(double(s.hidden)) / 3 * 0x1p-24;
    for (size_t i = 0; i < got.weights.size(); ++i) ASSERT_NEAR(got.weights[i], want.weights[i], bound);
    for (const int64_t r : {int64_t(0), s.rows / 2, s.rows - 1}) {
      Tensor one(DType::bf16, 1, s.hidden);
      one.bytes = x.row(r);
      const auto alone = choose(ops(), queue, one, weight, bias, bias_image, {image[size_t(r)]}, s.k, 1.5f);
      EXPECT_TRUE(std::equal(alone.weights.begin(), alone.weights.end(), got.weights.begin() + r * s.k));
    }
  }
}

// Logits of -40 and less give scores that differ in no bias: what is not a number or -inf is not chosen twice.
TEST_P(ExpertsTest, NoExpertIsChosenTwice) {
  const Tensor x(DType::bf16, 2, 64), weight(DType::bf16, 12, 64);
  std::vector<float> bias(12, -INFINITY);
  bias[7] = 1;
  EXPECT_EQ(choose(ops(), queue, x, weight, bias, bias, {}, 4, 1).experts,
            (std::vector<int32_t>{7, 0, 1, 2, 7, 0, 1, 2}));
}

TEST_P(ExpertsTest, ManyAssignmentsAreSortedAsTheDefinitionSortsThem) {
  struct Size {
    int64_t rows, k, experts;
  };
  for (const Size& s : {Size{0, 6, 5}, Size{1, 6, 384}, Size{256, 6, 384}, Size{341, 6, 1}, Size{342, 6, 7},
                        Size{1500, 6, 384}, Size{1024, 2, 2500}, Size{3000, 1, 3}}) {
    std::vector<int32_t> experts;
    std::vector<float> weights = noise(s.rows * s.k, 2);
    for (int64_t a = 0; a < s.rows * s.k; ++a) {
      experts.push_back(int32_t(philox(7, {uint32_t(a), 0, 0, 0})[0] % uint32_t(s.experts)));
    }
    const auto sorted = [&](const Operations& table) {
      struct Sorted {
        std::vector<int32_t> begin, row, place;
        std::vector<float> weight;
        bool operator==(const Sorted&) const = default;
      } out{std::vector<int32_t>(size_t(s.experts + 1), -1), std::vector<int32_t>(experts.size(), -1),
            std::vector<int32_t>(experts.size(), -1), std::vector<float>(experts.size(), -1.0f)};
      GroupByExpert op;
      op.experts = View<const int32_t, 2>(experts.data(), {s.rows, s.k});
      op.weights = View<const float, 2>(weights.data(), {s.rows, s.k});
      op.begin = view(out.begin);
      op.row = view(out.row);
      op.weight = view(out.weight);
      op.place = View<int32_t, 2>(out.place.data(), {s.rows, s.k});
      table.group_by_expert(queue, op);
      return out;
    };
    EXPECT_TRUE(sorted(ops()) == sorted(definition())) << s.rows << " rows";
  }
}

TEST_P(ExpertsTest, AssignmentsAreSortedByExpertThenRowThenSlot) {
  const std::vector<int32_t> experts{3, 0, 1, 3, 3, 1};  // three rows, two slots, expert 2 idle
  const std::vector<float> weights{.1f, .2f, .3f, .4f, .5f, .6f};
  std::vector<int32_t> begin(5, -1), row(6, -1), place(6, -1);
  std::vector<float> weight(6, -1.0f);
  GroupByExpert op;
  op.experts = view(experts, 2);
  op.weights = view(weights, 2);
  op.begin = view(begin);
  op.row = view(row);
  op.weight = view(weight);
  op.place = view(place, 2);
  ops().group_by_expert(queue, op);
  EXPECT_EQ(begin, (std::vector<int32_t>{0, 1, 3, 3, 6}));
  EXPECT_EQ(row, (std::vector<int32_t>{0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(weight, (std::vector<float>{.2f, .3f, .6f, .1f, .4f, .5f}));
  EXPECT_EQ(place, (std::vector<int32_t>{3, 0, 1, 4, 5, 2}));
}

// spec/model.md 16.7.
TEST_P(ExpertsTest, SwiGluClampsTheGateAboveAndTheOtherBothWays) {
  const Tensor gate(DType::f32, 1, 3, {12, -3, -50}), up(DType::f32, 1, 3, {-15, 2, 1});
  Tensor out(DType::f32, 1, 3);
  SwiGlu op;
  op.gate = gate;
  op.up = up;
  op.limit = 10;
  op.out = out.out();
  ops().swiglu(queue, op);
  EXPECT_NEAR(out.at(0, 0), -99.99546, 1e-5);
  EXPECT_NEAR(out.at(0, 1), -0.28455524, 1e-7);
  EXPECT_NEAR(out.at(0, 2), -50 * std::exp(-50.0), 1e-25);
  op.limit = 0;  // no clamp
  ops().swiglu(queue, op);
  EXPECT_NEAR(out.at(0, 0), -180 / (1 + std::exp(-12.0)), 3e-5);
}

TEST_P(ExpertsTest, SwiGluAgreesWithTheDefinitionAndWritesOverItsInput) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const int64_t cols : {1, 17, 128, 2304}) {
      Tensor gate = noise(dtype, 40, cols, 1), up = noise(dtype, 40, cols, 2), want(dtype, 40, cols);
      for (int64_t i = 0; i < 40 * cols; ++i) {
        store(dtype, gate.bytes.data(), i, load(dtype, gate.bytes.data(), i) * 30);
        store(dtype, up.bytes.data(), i, load(dtype, up.bytes.data(), i) * 15);
      }
      const auto weight = noise(40, 3);
      SwiGlu op;
      op.gate = gate;
      op.up = up;
      op.weight = view(weight);
      op.limit = 10;
      op.out = want.out();
      definition().swiglu(queue, op);
      Tensor one_gate(dtype, 1, cols), one_up(dtype, 1, cols);
      one_gate.bytes = gate.row(39);
      one_up.bytes = up.row(39);
      op.out = gate.out();
      ops().swiglu(queue, op);
      for (int64_t r = 0; r < 40; ++r) {
        for (int64_t i = 0; i < cols; ++i) {
          // exp, 1 +, a quotient and two products
          ASSERT_NEAR(gate.at(r, i), want.at(r, i),
                      (8 * 0x1p-24 + 2 * rounding(dtype)) * std::abs(want.at(r, i)) + 1e-30);
        }
      }
      op.gate = one_gate;
      op.up = one_up;
      op.weight = View<const float, 1>(weight.data() + 39, {1});
      op.out = one_up.out();
      ops().swiglu(queue, op);
      EXPECT_EQ(one_up.bytes, gate.row(39));
    }
  }
}

TEST_P(ExpertsTest, TheSumTakesEachRowsAssignmentsAndTheSharedExpert) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const int64_t cols : {1, 17, 256}) {
      const Tensor routed = noise(dtype, 60, cols, 1), shared = noise(dtype, 20, cols, 2);
      std::vector<int32_t> place;
      for (int32_t i = 0; i < 60; ++i) place.push_back(i * 7 % 60);
      Tensor out(dtype, 20, cols);
      Combine op;
      op.routed = routed;
      op.place = view(std::as_const(place), 3);
      op.shared = shared;
      op.out = out.out();
      ops().combine(queue, op);
      for (int64_t r = 0; r < 20; ++r) {
        for (int64_t i = 0; i < cols; ++i) {
          double want = shared.at(r, i);
          for (int64_t slot = 0; slot < 3; ++slot) want += routed.at(place[size_t(3 * r + slot)], i);
          EXPECT_NEAR(out.at(r, i), want, 9 * 0x1p-24 + rounding(dtype) * std::abs(want) + 4 * 0x1p-24);
        }
      }
    }
  }
}

}  // namespace
}  // namespace fathom
