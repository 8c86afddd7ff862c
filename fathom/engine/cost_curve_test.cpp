// Cost curves against spec/engine.md 7.3: measuring, the file on disk, correction while running.
#include "fathom/engine/cost_curve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace fathom {
namespace {

using testing::ElementsAre;

// ---------------------------------------------------------------------------------------------------------- measuring
TEST(CostCurve, OneWarmRunThenFiveOfWhichTheExtremesAreDropped) {
  std::vector<int> calls;
  const double times[] = {900, 4, 1, 3, 100, 2};  // the warm-up counts nothing
  const std::vector<int> sizes = {1, 8};
  const auto curve = measure_cost_curve(sizes, [&](int rows) -> Result<double> {
    calls.push_back(rows);
    return times[(calls.size() - 1) % 6] * rows;
  });
  ASSERT_TRUE(curve.ok());
  EXPECT_THAT(*curve, ElementsAre(CostPoint{1, 3.0}, CostPoint{8, 24.0}));  // (2 + 3 + 4) / 3
  EXPECT_THAT(calls, ElementsAre(1, 1, 1, 1, 1, 1, 8, 8, 8, 8, 8, 8));
}

TEST(CostCurve, AFailingStepEndsTheMeasuringWithItsError) {
  const std::vector<int> sizes = {1, 2};
  for (int bad = 0; bad < 12; ++bad) {  // the n-th call fails
    int call = 0;
    const auto curve = measure_cost_curve(sizes, [&](int) -> Result<double> {
      if (call++ == bad) return Error{ErrorCode::failed, "device lost", "", ""};
      return 1.0;
    });
    ASSERT_FALSE(curve.ok());
    EXPECT_EQ(curve.error().message, "device lost");
  }
  EXPECT_FALSE(measure_cost_curve(sizes, [](int) -> Result<double> { return 0.0; }).ok());
  EXPECT_FALSE(measure_cost_curve(sizes, timed_by_clock([](int) -> Result<void> {
                                    return Error{ErrorCode::failed, "device lost", "", ""};
                                  }))
                   .ok());
  const std::vector<int> one = {1};
  EXPECT_TRUE(measure_cost_curve(one, timed_by_clock([](int) -> Result<void> {
                                   std::vector<double> work(10'000, 1);
                                   return work.back() > 0 ? Result<void>{} : Error{};
                                 }))
                  .ok());
}

// ------------------------------------------------------------------------------------------------------------ on disk
class CostCurveFile : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::remove_all(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string store(int64_t now, const CostCurve& curve) {
    auto path = store_cost_curve(folder_, key_, curve, now);
    EXPECT_TRUE(path.ok());
    return *path;
  }
  size_t files() const {
    return size_t(std::distance(std::filesystem::directory_iterator(folder_), std::filesystem::directory_iterator{}));
  }

  const std::string folder_ =
      testing::TempDir() + "cost_curve_test_" + testing::UnitTest::GetInstance()->current_test_info()->name();
  CostCurveKey key_ = [] {
    CostCurveKey key;
    key.fields.set("unit", Json::of("ms"));
    key.fields.set("threads", Json::of(2));
    return key;
  }();
  const CostCurve curve_ = {{1, 10.1}, {8, 1.0 / 3}, {256, 1e-9}};
};

TEST_F(CostCurveFile, WhatWasStoredIsReadBackToTheLastBitForAnHour) {
  EXPECT_FALSE(load_cost_curve(folder_, key_, 1'000).curve) << "no folder holds nothing";
  const std::string path = store(1'000, curve_);
  const std::string name = std::filesystem::path(path).filename().string();
  EXPECT_THAT(name,
              testing::MatchesRegex("[0-9a-f]+\\.[0-9a-f]+-[0-9a-f]+-4[0-9a-f]+-[89ab][0-9a-f]+-[0-9a-f]+\\.1000"));
  EXPECT_EQ(name.substr(0, 65), key_.digest() + ".");
  EXPECT_EQ(load_cost_curve(folder_, key_, 1'000).curve, curve_);
  EXPECT_EQ(load_cost_curve(folder_, key_, 1'000 + 3'600).curve, curve_);
  EXPECT_FALSE(load_cost_curve(folder_, key_, 1'000 + 3'601).curve);
  EXPECT_EQ(files(), 1u) << "kept a while for whoever still reads it";
  (void)load_cost_curve(folder_, key_, 1'000 + 3'600 + 7'200);
  EXPECT_EQ(files(), 1u);
  (void)load_cost_curve(folder_, key_, 1'000 + 3'600 + 7'201);
  EXPECT_EQ(files(), 0u);
}

TEST_F(CostCurveFile, TheNewestCounts) {
  store(1'000, {{1, 1.0}});
  store(1'200, {{1, 2.0}});
  store(1'100, {{1, 3.0}});
  EXPECT_EQ(load_cost_curve(folder_, key_, 1'300).curve, (CostCurve{{1, 2.0}}));
}

TEST_F(CostCurveFile, AnotherMachineOrThreadCountIsAnotherCurve) {
  store(1'000, curve_);
  key_.fields.set("threads", Json::of(3));
  const StoredCurve other = load_cost_curve(folder_, key_, 1'000);
  EXPECT_FALSE(other.curve);
  EXPECT_TRUE(other.notes.empty());
}

TEST_F(CostCurveFile, ADamagedFileIsIgnoredWithANoteAndAnOlderOneServes) {
  store(1'000, curve_);
  for (const char* text : {"", "{", "[]", "{\"key\":{}}", "{\"key\":{\"unit\":\"ms\",\"threads\":2}}",
                           "{\"key\":{\"unit\":\"ms\",\"threads\":2},\"points\":[]}",
                           "{\"key\":{\"unit\":\"ms\",\"threads\":2},\"points\":[[1]]}",
                           "{\"key\":{\"unit\":\"ms\",\"threads\":2},\"points\":[[1,-3]]}",
                           "{\"key\":{\"unit\":\"ms\",\"threads\":2},\"points\":[[8,1],[8,1]]}",
                           "{\"key\":{\"unit\":\"ms\",\"threads\":9},\"points\":[[8,1]]}"}) {
    const std::string path = store(1'500, {{1, 7.0}});
    std::ofstream(path, std::ios::trunc) << text;
    const StoredCurve got = load_cost_curve(folder_, key_, 1'600);
    EXPECT_EQ(got.curve, curve_) << text;
    ASSERT_EQ(got.notes.size(), 1u) << text;
    EXPECT_NE(got.notes[0].find(path), std::string::npos) << got.notes[0];
    std::filesystem::remove(path);
  }
}

TEST_F(CostCurveFile, AFileOfTheFutureIsNotBelieved) {
  store(2'000, curve_);
  const StoredCurve got = load_cost_curve(folder_, key_, 1'999);
  EXPECT_FALSE(got.curve);
  EXPECT_EQ(got.notes.size(), 1u);
}

TEST_F(CostCurveFile, FilesOfOthersAreLeftAlone) {
  store(1'000, curve_);
  std::ofstream(folder_ + "/notes.txt") << "mine";
  std::filesystem::create_directory(folder_ + "/" + key_.digest());
  (void)load_cost_curve(folder_, key_, 1'000'000);
  EXPECT_EQ(files(), 2u);
}

TEST_F(CostCurveFile, AFolderThatCannotBeMadeIsNamed) {
  std::ofstream(folder_) << "a file";
  const auto path = store_cost_curve(folder_ + "/in/it", key_, curve_, 1);
  ASSERT_FALSE(path.ok());
  EXPECT_EQ(path.error().where, folder_ + "/in/it");
}

// --------------------------------------------------------------------------------------------------------- correction
TEST(CostCorrection, SamplerTimeIsTheMedianOfTheLastNineOfThatNumberOfSequences) {
  CostCorrection correction({{1, 1.0}, {64, 2.0}});
  EXPECT_EQ(correction.sampler_milliseconds(4), 0);
  for (const double time : {9.0, 9.0, 9.0, 9.0}) correction.record(4, 8, 1, time);
  correction.record(2, 8, 1, 1);
  EXPECT_EQ(correction.sampler_milliseconds(4), 9) << "four are too few: the global median";
  EXPECT_EQ(correction.sampler_milliseconds(2), 9);
  EXPECT_EQ(correction.sampler_milliseconds(77), 9);
  for (const double time : {1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 100.0}) correction.record(4, 8, 1, time);
  EXPECT_EQ(correction.sampler_milliseconds(4), 5);
  EXPECT_EQ(correction.cost(4).sampler_milliseconds, 5);
}

TEST(CostCorrection, TheSlopeIsTheMedianOverSizesOfTheirMedians) {
  CostCorrection correction({{10, 10.0}, {20, 11.0}, {30, 12.0}, {40, 13.0}});
  for (int i = 0; i < 9; ++i) correction.record(1, 10, 10 + 10 * 0.5, 0);
  EXPECT_EQ(correction.slope_milliseconds(), 0) << "nine steps of a size are too few";
  for (int i = 0; i < 10; ++i) {
    correction.record(1, 10, 10 + 10 * 0.1, 0);                // with the nine: 0.1 in the middle
    correction.record(1, 20, i < 3 ? 500 : 11 + 20 * 0.2, 0);  // outliers do not count
    correction.record(1, 30, 12 + 30 * 0.3, 0);
    correction.record(1, 99, 1'000, 0);  // beyond the curve
    if (i < 9) correction.record(1, 40, 13 + 40 * 9.0, 0);
  }
  for (int i = 0; i < CostCorrection::kEvery; ++i) correction.record(1, 99, 1, 0);
  EXPECT_NEAR(correction.slope_milliseconds(), 0.2, 1e-12);
}

// The window forgets: after 5,000 steps of another kind nothing of the first is left.
TEST(CostCorrection, OldStepsAreForgotten) {
  CostCorrection correction({{10, 10.0}});
  for (int i = 0; i < 3'000; ++i) correction.record(1, 10, 10 + 10 * 0.5, 3);
  EXPECT_NEAR(correction.slope_milliseconds(), 0.5, 1e-12);
  for (int i = 0; i < 5'056; ++i) correction.record(1, 10, 10 + 10 * 0.25, 1);
  EXPECT_NEAR(correction.slope_milliseconds(), 0.25, 1e-12);
  EXPECT_EQ(correction.sampler_milliseconds(9), 1);
}

TEST(CostCorrection, ACorrectedCurvePredictsWhatIsMeasured) {
  const CostCurve start = {{4, 10.0}, {8, 10.5}, {16, 12.0}};
  CostCorrection correction(start, false);
  const auto truth = [](int rows) { return 10 + 0.125 * (rows - 4) + 0.04 * rows; };  // long contexts
  for (int i = 0; i < 400; ++i) {
    for (const int rows : {4, 8, 16}) correction.record(4, rows, truth(rows), 0.7);
  }
  // 8 rows lie off the line of the start curve by 0 (10.5 = 10 + 0.5), 16 by 0.5.
  EXPECT_NEAR(step_milliseconds(correction.cost(4), 8), truth(8) + 0.7, 0.1);
  EXPECT_NEAR(step_milliseconds(correction.cost(4), 4), truth(4) + 0.7, 0.1);
}

}  // namespace
}  // namespace fathom
