#include "fathom/engine/cache_plan.h"

#include <gtest/gtest.h>

namespace fathom {
namespace {

constexpr int64_t kGiB = int64_t(1) << 30;

// V4.1 Flash: blocks of 114,048 bytes, slots of 3,128,928 bytes.
CacheQuestion flash(int64_t free_bytes, int64_t context, int sequences) {
  return {free_bytes, 114'048, 3'128'928, context, 1'048'576, sequences};
}

// Case mem-01: 48 GiB less weights, workspace and fixed parts leave 1.7 GiB; 262,144 tokens need 0.22 GiB and fit.
TEST(CachePlan, AContextThatFitsIsTaken) {
  const int64_t free = int64_t(1.7 * double(kGiB));
  const auto plan = plan_cache(flash(free, 262'144, 1));
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->context, 262'144);
  EXPECT_EQ(plan->blocks, 2'048);
  EXPECT_NEAR(double(plan->cache_bytes) / double(kGiB), 0.22, 0.01);
}

TEST(CachePlan, AContextThatDoesNotFitIsRefusedWithTheLargestThatDoes) {
  const auto plan = plan_cache(flash(kGiB / 10, 262'144, 1));
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().code, ErrorCode::out_of_memory);
  // (107,374,182 - 2 slots - 1 dummy block) / 114,048 = 885 blocks of 128 tokens.
  EXPECT_EQ(to_string(plan.error()),
            "context of 262,144 tokens needs 223 MiB of cache, 97 MiB are free beside the state of 1 sequence "
            "(--context): the largest that fits is 113,280; pass a smaller value or fewer --sequences");
  EXPECT_TRUE(plan_cache(flash(kGiB / 10, 113'280, 1)).ok());
  EXPECT_FALSE(plan_cache(flash(kGiB / 10, 113'281, 1)).ok());
}

TEST(CachePlan, WithoutAWishItIsWhatFitsAtMostTheModels) {
  EXPECT_EQ(plan_cache(flash(kGiB / 10, 0, 1))->context, 113'280);
  EXPECT_EQ(plan_cache(flash(100 * kGiB, 0, 1))->context, 1'048'576);
}

TEST(CachePlan, BlocksCoverAllSequencesAsFarAsTheyFit) {
  EXPECT_EQ(plan_cache(flash(100 * kGiB, 4'096, 16))->blocks, 16 * 32);
  const auto tight = plan_cache(flash(kGiB, 262'144, 16));  // one fits whole, sixteen share
  ASSERT_TRUE(tight.ok());
  EXPECT_GE(tight->blocks, 2'048);
  EXPECT_LT(tight->blocks, 16 * 2'048);
  EXPECT_LE(tight->cache_bytes, kGiB);
}

TEST(CachePlan, TooManySequencesAreRefusedWithTheNumberThatFits) {
  const auto plan = plan_cache(flash(kGiB / 10, 0, 64));
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().code, ErrorCode::out_of_memory);
  EXPECT_EQ(plan.error().where, "--sequences");
  EXPECT_NE(plan.error().remedy.find("at most 33 fit"), std::string::npos) << plan.error().remedy;
  EXPECT_TRUE(plan_cache(flash(kGiB / 10, 0, 33)).ok());
  EXPECT_FALSE(plan_cache(flash(kGiB / 10, 0, 34)).ok());
  EXPECT_NE(plan_cache(flash(-5, 0, 1)).error().remedy.find("not even one"), std::string::npos);
}

TEST(CachePlan, AContextBeyondTheModelsIsAMistake) {
  const auto plan = plan_cache(flash(100 * kGiB, 1'200'000, 1));
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().code, ErrorCode::usage);
  EXPECT_EQ(to_string(plan.error()),
            "context of 1,200,000 tokens exceeds the model's 1,048,576 (--context): pass a smaller value or leave the "
            "option out");
}

}  // namespace
}  // namespace fathom
