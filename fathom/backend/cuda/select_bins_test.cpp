// Bins of scores (select_bins.cuh), the device's own text on the processor: what counts, candidates and the last levels
// of a choice (select_best.cu) rest on. A bin's bounds are where only the upper 14 bits of a float change, so floats
// with all upper 16 bits, with the first, the last and some lower bits, have all bounds and their neighbours.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "fathom/backend/cuda/machine_model.h"
#define cuda cuda_model
#include "fathom/backend/cuda/select_bins.cuh"
#undef cuda

namespace fathom::cuda_model {
namespace {

/// What may be chosen, in rising order: from the least number to infinity, zero with both signs.
std::vector<float> scores_of_all_magnitudes() {
  std::vector<float> out;
  std::minstd_rand random(1);
  for (uint32_t upper = 0; upper <= 0x7f80; ++upper) {
    const auto some = uint32_t(2 + random() % 0xfffc);
    for (const uint32_t lower : {0u, 1u, some, some + 1, 0xfffeu, 0xffffu}) {
      if (upper < 0x7f80 || lower == 0) out.push_back(__uint_as_float(upper << 16 | lower));
    }
  }
  const size_t positive = out.size() - 1;  // without infinity
  for (size_t i = 0; i < positive; ++i) out.push_back(-out[i]);
  std::sort(out.begin(), out.end());
  return out;
}

TEST(SelectBinsTest, BinsRiseWithTheScore) {
  int before = 0;
  for (const float v : scores_of_all_magnitudes()) {
    const int bin = bin_of(v);
    ASSERT_TRUE(bin >= before && bin < kBins) << v << " is in bin " << bin << ", those below in " << before;
    before = bin;
  }
  EXPECT_EQ(bin_of(-0.0f), bin_of(0.0f));
}

// Two bits of mantissa, five near one: neighbouring numbers of one exponent are told apart by these.
TEST(SelectBinsTest, BinsTellUpperBitsOfTheMantissa) {
  for (int exponent = -126; exponent < 128; ++exponent) {
    const int parts = exponent >= -16 && exponent < 16 ? 32 : 4;
    for (int i = 1; i < parts; ++i) {
      const float v = std::ldexp(1 + float(i) / float(parts), exponent), before = std::nextafter(v, 0.0f);
      EXPECT_EQ(bin_of(v), bin_of(before) + 1) << v;
      EXPECT_EQ(bin_of(-v), bin_of(-before) - 1) << -v;
    }
  }
}

TEST(SelectBinsTest, TheLeastOfABinIsItsLeastNumber) {
  for (const float v : scores_of_all_magnitudes()) {
    const int bin = bin_of(v);
    const float least = least_of(bin), before = std::nextafter(least, -INFINITY);
    ASSERT_LE(least, v) << "bin " << bin;
    ASSERT_EQ(bin_of(least), bin);
    ASSERT_TRUE(before == -INFINITY || bin_of(before) < bin) << before;
  }
  EXPECT_EQ(least_of(-1), std::numeric_limits<float>::lowest());  // of all
}

TEST(SelectBinsTest, KeysRiseWithTheScore) {
  uint32_t before = 0;
  float last = -INFINITY;
  for (const float v : scores_of_all_magnitudes()) {
    ASSERT_TRUE(v == last ? score_key(v) == before : score_key(v) > before) << v;
    before = score_key(v), last = v;
  }
  for (const float never : {-INFINITY, NAN, -NAN}) EXPECT_EQ(score_key(never), 0u);
}

// The ranks of a bin's scores, and no others, begin with what is known of it; those of scores above are larger.
TEST(SelectBinsTest, WhatIsKnownOfABinTellsItsRanksFromOthers) {
  const std::vector<float> scores = scores_of_all_magnitudes();
  for (size_t i = 0; i < scores.size(); ++i) {
    const int bin = bin_of(scores[i]);
    const Known known = known_of(bin);
    ASSERT_TRUE(known.bits > 0 && known.bits < 32);
    // Its own, and those around: next to it or a bound away.
    for (const size_t other : {i, i - 1, i + 1, i - 7, i + 7, i - 40, i + 40, scores.size() - 1 - i}) {
      if (other >= scores.size()) continue;
      for (const uint32_t index : {0u, 77u, ~0u}) {
        const uint64_t upper = rank_of(score_key(scores[other]), index) >> (64 - known.bits);
        const int at = bin_of(scores[other]);
        ASSERT_EQ(upper < known.prefix, at < bin) << scores[i] << ", " << scores[other];
        ASSERT_EQ(upper > known.prefix, at > bin) << scores[i] << ", " << scores[other];
      }
    }
    // No bit more is common: the least key of a bin has zeros behind.
    ASSERT_EQ(score_key(least_of(bin)), known.prefix << (32 - known.bits));
  }
}

// As select_best.cu chooses: the bin that holds the last of the wanted, then ranks with its prefix.
TEST(SelectBinsTest, TheLastOfTheWantedIsFoundInItsBin) {
  std::mt19937 random(3);
  for (int kind = 0; kind < 6; ++kind) {
    std::vector<float> scores(3000);
    for (float& v : scores) {
      v = float(int32_t(random())) * 0x1p-31f;
      if (kind == 1) v = std::ldexp(v, int(random() % 270) - 135);
      if (kind == 2) v = random() % 10 > 0 ? 0 : -v * v;
      if (kind == 3) v = random() % 2 > 0 ? 0.0f : -0.0f;
      if (kind == 4) v = 0x1.8p40f + float(random() % 64) * 0x1p30f;
      if (kind == 5) v = v < 0.9f ? -INFINITY : v > 0.95f ? INFINITY : -v;
    }
    std::vector<uint64_t> ranks;
    std::vector<int> counts(kBins);
    for (size_t i = 0; i < scores.size(); ++i) {
      if (!(scores[i] > -INFINITY)) continue;
      ranks.push_back(rank_of(score_key(scores[i]), uint32_t(i)));
      ++counts[size_t(bin_of(scores[i]))];
    }
    std::sort(ranks.rbegin(), ranks.rend());
    for (const size_t wanted : {size_t(1), size_t(2), size_t(17), ranks.size() / 2, ranks.size() - 1, ranks.size()}) {
      int bin = kBins;
      size_t above = 0, reached = 0;
      while (reached < wanted) above = reached, reached += size_t(counts[size_t(--bin)]);
      const Known known = known_of(bin);
      const auto beyond = std::count_if(ranks.begin(), ranks.end(),
                                        [&](uint64_t rank) { return rank >> (64 - known.bits) > known.prefix; });
      EXPECT_EQ(size_t(beyond), above) << "kind " << kind << ", " << wanted << " wanted";
      EXPECT_EQ(ranks[wanted - 1] >> (64 - known.bits), known.prefix) << "kind " << kind << ", " << wanted << " wanted";
      const auto passed_on = std::count_if(scores.begin(), scores.end(), [&](float v) { return v >= least_of(bin); });
      EXPECT_EQ(size_t(passed_on), reached) << "kind " << kind << ", " << wanted << " wanted";
    }
  }
}

}  // namespace
}  // namespace fathom::cuda_model
