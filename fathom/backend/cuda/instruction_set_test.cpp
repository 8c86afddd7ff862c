#include "fathom/backend/cuda/instruction_set.h"

#include <gmock/gmock.h>

namespace fathom::cuda {
namespace {

using testing::HasSubstr;

TEST(InstructionSetTest, HopperRunsTheKernelsOfSm90aInEveryBuild) {
  for (const bool sm100 : {false, true}) {
    const auto chosen = choose_instruction_set("NVIDIA H200", {9, 0}, sm100);
    ASSERT_TRUE(chosen.ok());
    EXPECT_EQ(*chosen, InstructionSet::sm_90a);
  }
  EXPECT_EQ(untested(InstructionSet::sm_90a), "");
}

TEST(InstructionSetTest, BlackwellRunsTheKernelsOfSm100aAndIsToldThatTheyAreUntested) {
  const auto chosen = choose_instruction_set("NVIDIA B200", {10, 0}, true);
  ASSERT_TRUE(chosen.ok());
  EXPECT_EQ(*chosen, InstructionSet::sm_100a);
  EXPECT_THAT(std::string(untested(*chosen)), HasSubstr("native, untested"));
}

TEST(InstructionSetTest, ABuildWithoutSm100aSaysWhichBuildHasIt) {
  const auto refused = choose_instruction_set("NVIDIA B200", {10, 0}, false);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::unsupported);
  EXPECT_EQ(to_string(refused.error()),
            "the GPU NVIDIA B200 has compute capability 10.0 (--backend cuda): this build's kernels are for 9.0 (H100, "
            "H200): build with the preset cuda-sm100, whose kernels for 10.0 are untested, or use --backend cpu");
}

// 8.9: no wgmma. 10.3 and 12.0: code for sm_100a runs on 10.0 alone, so B300 and consumers' Blackwells do not run it.
TEST(InstructionSetTest, OtherCapabilitiesAreRefusedWithWhatTheBuildHas) {
  for (const Capability other : {Capability{8, 0}, {8, 9}, {9, 1}, {10, 1}, {10, 3}, {11, 0}, {12, 0}, {12, 1}}) {
    SCOPED_TRACE(testing::Message() << other.major << "." << other.minor);
    const auto without = choose_instruction_set("GPU", other, false), with = choose_instruction_set("GPU", other, true);
    ASSERT_FALSE(without.ok());
    ASSERT_FALSE(with.ok());
    EXPECT_EQ(without.error().code, ErrorCode::unsupported);
    EXPECT_THAT(to_string(without.error()), HasSubstr("built for 9.0 (H100, H200): use such a GPU"));
    EXPECT_THAT(to_string(with.error()), HasSubstr("built for 9.0 (H100, H200) and 10.0 (B200, GB200)"));
  }
}

}  // namespace
}  // namespace fathom::cuda
