#include "fathom/backend/cpu/best_of.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "fathom/backend/cpu/isa.h"
#include "fathom/backend/owned_values.h"

namespace fathom::cpu {
namespace {

using BestOf = int32_t (*)(const float*, int64_t, int64_t, const int32_t*, int32_t*);

std::vector<BestOf> variants() {
  std::vector<BestOf> all;
  if (detected_processor().isa >= Isa::avx2) all.push_back(best_of_avx2);
  if (detected_processor().isa >= Isa::avx512) all.push_back(best_of_avx512);
  return all;
}

// By sorting: falling value, then rising index.
std::vector<int32_t> sorted_choice(const std::vector<float>& values, int64_t count) {
  std::vector<int32_t> choice(values.size());
  std::iota(choice.begin(), choice.end(), 0);
  std::erase_if(choice, [&](int32_t i) { return !(values[size_t(i)] > -INFINITY); });
  std::stable_sort(choice.begin(), choice.end(),
                   [&](int32_t a, int32_t b) { return values[size_t(a)] > values[size_t(b)]; });
  choice.resize(std::min(choice.size(), size_t(count)));
  std::sort(choice.begin(), choice.end());
  choice.resize(size_t(count), -1);
  return choice;
}

void expect_best(const std::vector<float>& values, int64_t count) {
  const std::vector<int32_t> want = sorted_choice(values, count);
  std::vector<int32_t> names(values.size());
  for (size_t i = 0; i < names.size(); ++i) names[i] = int32_t(10 * i + 3);
  for (const BestOf best_of : variants()) {
    std::vector<int32_t> got(size_t(count), 77), named(size_t(count), 77);
    const int32_t chosen = best_of(values.data(), int64_t(values.size()), count, nullptr, got.data());
    EXPECT_EQ(got, want) << values.size() << " values, " << count;
    EXPECT_EQ(chosen, std::count_if(want.begin(), want.end(), [](int32_t i) { return i >= 0; }));
    best_of(values.data(), int64_t(values.size()), count, names.data(), named.data());
    for (size_t i = 0; i < want.size(); ++i) EXPECT_EQ(named[i], want[i] < 0 ? -1 : 10 * want[i] + 3);
  }
}

// Around a vector, around the few that AVX2 counts, and above what AVX-512 keeps in its list at once.
constexpr int64_t kSizes[] = {0, 1, 15, 16, 17, 64, 65, 500, 2047, 2100, 10000};

TEST(BestOfTest, TheLargestAreChosenFromAnyNumber) {
  for (const int64_t n : kSizes) {
    for (const int64_t count : {1, 16, 64, 600}) expect_best(noise(n, uint64_t(n)), count);
  }
}

TEST(BestOfTest, EqualValuesGoToTheLowerIndex) {
  for (const int64_t n : kSizes) {
    std::vector<float> few = noise(n, 1);
    for (float& value : few) value = std::round(value * 3);  // seven values, and -0 beside +0
    for (const int64_t count : {1, 16, 64, 600}) {
      expect_best(few, count);
      expect_best(std::vector<float>(size_t(n), -2.5f), count);
    }
  }
}

TEST(BestOfTest, RisingAndFallingValuesAreTheWorstCases) {
  std::vector<float> values(10000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = float(i) - 5000;
  expect_best(values, 64);
  std::reverse(values.begin(), values.end());
  expect_best(values, 64);
}

TEST(BestOfTest, NanAndMinusInfinityAreNeverChosen) {
  for (const int64_t n : kSizes) {
    std::vector<float> values = noise(n, 2);
    for (size_t i = 0; i < values.size(); ++i) {
      if (i % 3 == 0) values[i] = i % 2 == 0 ? NAN : -INFINITY;
      if (i % 50 == 1) values[i] = INFINITY;
    }
    for (const int64_t count : {1, 64, 600}) expect_best(values, count);
    expect_best(std::vector<float>(size_t(n), NAN), 5);
  }
}

TEST(BestOfTest, TheLargestOfEachBlock) {
  for (const int64_t block : {1, 3, 8}) {
    for (const int64_t n : kSizes) {
      std::vector<float> values = noise(n, 3);
      for (size_t i = 0; i < values.size(); i += 5) values[i] = NAN;
      const int64_t blocks = (n + block - 1) / block;
      std::vector<float> want(size_t(blocks), -INFINITY);
      for (int64_t i = 0; i < n; ++i) {
        float& best = want[size_t(i / block)];
        if (values[size_t(i)] > best) best = values[size_t(i)];
      }
      std::vector<float> got(size_t(blocks), 7.0f);
      if (detected_processor().isa < Isa::avx2) continue;
      best_of_blocks_avx2(values.data(), n, block, got.data());
      EXPECT_EQ(got, want);
      if (detected_processor().isa < Isa::avx512) continue;
      best_of_blocks_avx512(values.data(), n, block, got.data());
      EXPECT_EQ(got, want);
    }
  }
}

}  // namespace
}  // namespace fathom::cpu
