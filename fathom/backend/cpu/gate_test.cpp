#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "fathom/backend/cpu/isa.h"
#include "fathom/backend/tables_under_test.h"

namespace fathom::cpu {
namespace {

struct Chosen {
  std::vector<int32_t> experts;
  std::vector<float> weights;
};

class GateTest : public testing::TestWithParam<size_t> {
 protected:
  Operations ops = cpu_operations(runnable_processors()[GetParam()]);
  Queue queue{2};

  Chosen run(const Operations& table, const AnyView& x, const AnyView& weight, const std::vector<float>& bias,
             int64_t k) {
    Chosen out{std::vector<int32_t>(size_t(x.rows * k)), std::vector<float>(size_t(x.rows * k))};
    Gate op;
    op.x = x;
    op.weight = weight;
    op.bias = op.bias_image = view(bias);
    op.scale = 2.5f;
    op.experts = view(out.experts, k);
    op.weights = view(out.weights, k);
    table.gate(queue, op);
    return out;
  }
};

INSTANTIATE_TEST_SUITE_P(Processors, GateTest, testing::Range(size_t(0), runnable_processors().size()),
                         [](const auto& info) {
                           const Processor p = runnable_processors()[info.param];
                           return std::string(name_of(p.isa)) + (p.bf16_dot ? "_bf16" : "");
                         });

TEST_P(GateTest, AgreesWithTheDefinitionWhereScoresAreApart) {
  // The miniature's gate and the model's. 97 rows: more than one piece of a loop over rows.
  for (const auto& [experts, hidden, k] : {std::array<int64_t, 3>{16, 256, 2}, {384, 512, 6}, {33, 64, 3}}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const Tensor x = noise(dtype, 97, hidden, 1), weight = noise(DType::bf16, experts, hidden, 2);
      const std::vector<float> bias = noise(experts, 3);
      const Chosen got = run(ops, x, weight, bias, k), want = run(reference_operations(), x, weight, bias, k);
      for (size_t i = 0; i < want.experts.size(); ++i) {
        ASSERT_EQ(got.experts[i], want.experts[i]) << experts << " experts, place " << i;
        // A logit is off by (hidden + hidden / 32 + 1) 2^-24 of the sum of its products, each below 1. A score's
        // relative change is at most half of a logit's (sigmoid is below softplus), and it is rounded within 9 units of
        // 2^-23; a weight has two scores, or sums of them, in it.
        const double logit = double(hidden) * double(hidden + hidden / 32 + 1) * 0x1p-24;
        const double bound = logit + 18 * 0x1p-23;
        ASSERT_NEAR(got.weights[i], want.weights[i], bound * std::abs(want.weights[i]));
      }
    }
  }
}

TEST_P(GateTest, ScoresAreAccurateForEveryLogit) {
  // Two experts with the logits v and 0, and both are chosen: w0 / w1 = sqrt(softplus(v)) / sqrt(log 2).
  Tensor weight(DType::bf16, 2, 1, {1.0f, 0.0f});
  const std::vector<float> bias{0, 0};
  std::vector<float> logits;
  for (float v = -170; v <= 170; v += 0.4375f) logits.push_back(v);
  for (float v = 0x1p-20f; v < 30; v *= 1.7f) logits.insert(logits.end(), {v, -v});
  const Tensor x(DType::f32, int64_t(logits.size()), 1, logits);
  const Chosen got = run(ops, x, weight, bias, 2);
  for (size_t r = 0; r < logits.size(); ++r) {
    const size_t first = got.experts[r * 2] == 0 ? r * 2 : r * 2 + 1;  // where expert 0 stands
    const double v = logits[r];
    const double s = std::sqrt(v > 30 ? v : std::log1p(std::exp(v))), one = std::sqrt(std::log(2.0));
    // e^x/2 within 2 units, its square, log1p and root: 7 units of 2^-23 in all; the weights are rounded once.
    EXPECT_NEAR(got.weights[first], 2.5 * s / (s + one), 2.5 * s / (s + one) * 9 * 0x1p-23) << v;
  }
}

TEST_P(GateTest, EqualScoresGoToTheLowerExpertInAnyVector) {
  const Tensor x = noise(DType::bf16, 5, 64, 1);
  const Tensor weight(DType::bf16, 40, 64, std::vector<float>(40 * 64, 0.25f));
  std::vector<float> bias(40, 0.0f);
  bias[37] = bias[20] = 1;
  const Chosen got = run(ops, x, weight, bias, 4);
  for (size_t r = 0; r < 5; ++r) {
    EXPECT_EQ(std::vector<int32_t>(got.experts.begin() + long(r * 4), got.experts.begin() + long(r * 4 + 4)),
              (std::vector<int32_t>{20, 37, 0, 1}));
  }
}

TEST_P(GateTest, ARowChoosesTheSameAloneAndInAnyBatch) {
  const Tensor x = noise(DType::bf16, 41, 256, 1), weight = noise(DType::bf16, 16, 256, 2);
  const std::vector<float> bias = noise(16, 3);
  const Chosen all = run(ops, x, weight, bias, 2);
  for (const int64_t r : {0, 7, 40}) {
    const Chosen alone = run(ops, AnyView(x).slice(r, 1), weight, bias, 2);
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(alone.experts[i], all.experts[size_t(r) * 2 + i]);
      EXPECT_EQ(alone.weights[i], all.weights[size_t(r) * 2 + i]);
    }
  }
}

// A damaged row must not reach outside the experts, nor take one twice.
TEST_P(GateTest, ARowOfNanStillChoosesDifferentExperts) {
  Tensor x = noise(DType::bf16, 3, 64, 1);
  store(DType::bf16, x.bytes.data(), 64 + 5, std::nan(""));
  const Chosen got = run(ops, x, noise(DType::bf16, 16, 64, 2), noise(16, 3), 4);
  for (size_t r = 0; r < 3; ++r) {
    const std::set<int32_t> chosen(got.experts.begin() + long(r * 4), got.experts.begin() + long(r * 4 + 4));
    EXPECT_EQ(chosen.size(), 4u);
    EXPECT_GE(*chosen.begin(), 0);
    EXPECT_LT(*chosen.rbegin(), 16);
  }
}

}  // namespace
}  // namespace fathom::cpu
