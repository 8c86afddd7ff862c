// The coupled draw against spec/engine.md R-37: its law, its acceptance between two laws, and the figures of section 9.
#include "fathom/backend/race.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "fathom/backend/chi_square.h"
#include "fathom/backend/tables_under_test.h"

namespace fathom {
namespace {

TEST(Race, TimesAreTheLogarithmWithinAFewRoundings) {
  const auto exact = [](uint64_t bits) { return -std::log((static_cast<long double>(bits >> 12) + 0.5L) * 0x1p-52L); };
  // The ends, both sides of the root of 1/2 where the exponent changes, and what is drawn.
  std::vector<uint64_t> all{0, 1, ~uint64_t(0), uint64_t(1) << 63, (uint64_t(1) << 63) - 1, 0xb504f333f9de6484};
  for (uint64_t i = 0; i < 20'000; ++i) {
    const uint64_t bits = race_bits(i, 3, 5);
    all.push_back(bits);
    all.push_back(bits >> (i % 52));
    all.push_back(~(bits >> (i % 52)));
  }
  for (const uint64_t bits : all) {
    const double time = exponential_time(bits);
    EXPECT_GT(time, 0) << bits;
    // A dozen roundings of 2^-53 each; n ln 2 and ln m have opposite signs and at least half of n ln 2 stays.
    EXPECT_NEAR(time, double(exact(bits)), 24 * 0x1p-53 * time) << bits;
  }
}

class RaceTest : public OverTables {
 protected:
  // One row of probabilities, drawn at positions 0, 1, ... by the race.
  std::vector<int32_t> draw(const std::vector<double>& law, uint64_t seed, int64_t draws) {
    std::vector<float> logits;
    for (const double p : law) logits.push_back(p > 0 ? float(std::log(p)) : -INFINITY);
    std::vector<RowSampling> rows(static_cast<size_t>(draws));
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = {.seed = seed, .position = uint32_t(i), .role = kCoupled};
    std::vector<int32_t> ids(size_t(draws), -1);
    Sample op;
    op.logits = View<const float, 2>(logits.data(), {draws, int64_t(logits.size())}, {0, 1});
    op.rows = rows;
    op.ids = view(ids);
    ops().sample(queue, op);
    return ids;
  }
};
INSTANTIATE_TEST_SUITE_P(Tables, RaceTest, all_tables(), table_name);

TEST_P(RaceTest, ATokenWinsAsOftenAsItsLawSays) {
  const std::vector<std::vector<double>> laws{{1, 1}, {0.5, 0.3, 0.2}, {0, 0.9, 0, 0.1}, {0.001, 0.01, 0.1, 0.889}};
  for (size_t i = 0; i < laws.size(); ++i) {
    std::vector<int64_t> seen(laws[i].size(), 0);
    for (const int32_t id : draw(laws[i], 100 + i, 200'000)) ++seen[size_t(id)];
    EXPECT_GT(chi_square_p(seen, laws[i]), 0.001) << i;
  }
  // 37 tokens: blocks of 16 with a tail.
  std::vector<double> wide;
  for (const float x : noise(37, 9)) wide.push_back(std::exp(2.0 * x));
  std::vector<int64_t> seen(37, 0);
  for (const int32_t id : draw(wide, 77, 200'000)) ++seen[size_t(id)];
  EXPECT_GT(chi_square_p(seen, wide), 0.001);
}

// Draws at different positions are independent: pairs of neighbours follow the product law.
TEST_P(RaceTest, NeighbouringPositionsAreIndependent) {
  const std::vector<double> law{0.5, 0.3, 0.2};
  const auto ids = draw(law, 3, 200'000);
  std::vector<int64_t> seen(9, 0);
  for (size_t i = 0; i + 1 < ids.size(); i += 2) ++seen[size_t(ids[i] * 3 + ids[i + 1])];
  std::vector<double> joint;
  for (const double a : law) {
    for (const double b : law) joint.push_back(a * b);
  }
  EXPECT_GT(chi_square_p(seen, joint), 0.001);
}

TEST_P(RaceTest, EqualLawsHaveTheSameWinnerAndATokenThatRisesKeepsWinning) {
  const std::vector<double> law{0.2, 0.3, 0.5}, more{0.2, 0.3, 0.9};
  const auto before = draw(law, 5, 5'000), after = draw(more, 5, 5'000);
  EXPECT_EQ(before, draw(law, 5, 5'000));
  for (size_t i = 0; i < before.size(); ++i) {
    if (before[i] == 2) {
      EXPECT_EQ(after[i], 2);
    }
  }
}

// The table of spec/engine.md 9: 200-way laws, softmax of normal logits and of the same with noise added.
TEST_P(RaceTest, AcceptanceIsThatOfTheSpecificationsSimulation) {
  struct Line {
    double noise, distance, coupled, rejection;
  };
  const Line table[] = {{0.3, .11, .856, .890}, {0.5, .19, .754, .810}, {0.8, .30, .641, .701}, {1.0, .38, .542, .619}};
  constexpr int kLaws = 40;
  constexpr int64_t kDraws = 250;
  for (const Line& line : table) {
    double distance = 0, accepted = 0, least = 0;
    for (int number = 0; number < kLaws; ++number) {
      std::vector<double> p(200), q(200);
      double p_sum = 0, q_sum = 0, own = 0;
      for (uint32_t i = 0; i < 200; ++i) {
        const auto normal = [&](uint32_t which) {
          const double time = exponential_time(random_bits(uint64_t(number), i, 90 + which, 0));
          return std::sqrt(2 * time) *
                 std::cos(double(random_bits(uint64_t(number), i, 95 + which, 0)) * 0x1p-64 * 2 * M_PI);
        };
        const double x = normal(0);
        p_sum += p[i] = std::exp(x);
        q_sum += q[i] = std::exp(x + line.noise * normal(1));
      }
      for (size_t i = 0; i < 200; ++i) {
        p[i] /= p_sum, q[i] /= q_sum;
        own += std::abs(p[i] - q[i]) / 2;
      }
      distance += own / kLaws;
      least += (1 - own) / (1 + own) / kLaws;
      const auto target = draw(p, uint64_t(number), kDraws), draft = draw(q, uint64_t(number), kDraws);
      for (size_t i = 0; i < target.size(); ++i) accepted += (target[i] == draft[i]) / double(kDraws * kLaws);
    }
    // The spec's laws are others of the same kind; the spread of the mean over 40 of them is below 0.01, the error of
    // 10,000 draws 0.005.
    EXPECT_NEAR(distance, line.distance, 0.015);
    EXPECT_NEAR(accepted, line.coupled, 0.02);
    EXPECT_GT(accepted, least) << "(1 - TV) / (1 + TV)";
    EXPECT_LT(accepted, 1 - distance) << "rejection sampling accepts more";
    EXPECT_NEAR(1 - distance, line.rejection, 0.015);
  }
}

}  // namespace
}  // namespace fathom
