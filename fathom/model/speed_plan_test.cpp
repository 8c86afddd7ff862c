#include "fathom/model/speed_plan.h"

#include <gtest/gtest.h>

namespace fathom {
namespace {

const ModelConfig kFlash;  // the defaults are Flash's

// spec/memory.md 5: decode linear 32.26 G, core 3.221 G from 1,024 tokens on, index by context. The table has four
// digits, so 0.1 %; linear counts norms of rank 2 (Engram q and k) that the table leaves out, far below that.
TEST(SpeedPlan, DecodeFlopsAreThoseOfTheTable) {
  EXPECT_NEAR(decode_flops(kFlash, 4096).linear, 32.26e9, 0.001 * 32.26e9);
  EXPECT_NEAR(decode_flops(kFlash, 4096).attention, 3.221e9, 0.001 * 3.221e9);
  EXPECT_NEAR(decode_flops(kFlash, 4096).index, 0.218e9, 0.005 * 0.218e9);
  EXPECT_NEAR(decode_flops(kFlash, 32768).index, 1.208e9, 0.001 * 1.208e9);
  EXPECT_NEAR(decode_flops(kFlash, 131072).all(), 38.70e9, 0.001 * 38.70e9);
  EXPECT_NEAR(decode_flops(kFlash, 1048576).all(), 57.49e9, 0.001 * 57.49e9);
}

// The same section: average over a prompt.
TEST(SpeedPlan, PrefillFlopsAreThoseOfTheTable) {
  EXPECT_NEAR(prefill_flops(kFlash, 4096).all(), 17.36e9, 0.001 * 17.36e9);
  EXPECT_NEAR(prefill_flops(kFlash, 131072).all(), 18.14e9, 0.001 * 18.14e9);
  EXPECT_NEAR(prefill_flops(kFlash, 1048576).all(), 23.78e9, 0.001 * 23.78e9);
  // 140 rows x (15.15 + 1.678 G), index 0.23 T at 128K, head 1.32 G.
  const double rows = 140, ctx = 131072;
  const double expected = rows * (15.15e9 + 1.678e9 + 8192 * (ctx + 4 * 16384)) + 1.32e9;
  EXPECT_NEAR(replay_flops(kFlash, 140, 131072), expected, 0.002 * expected);
}

// spec/memory.md 6: distinct experts and bytes a step; the table has three or four digits.
TEST(SpeedPlan, BytesOfADecodeStepAreThoseOfTheTable) {
  EXPECT_NEAR(distinct_experts(kFlash, 1), 6.0, 1e-9);
  EXPECT_NEAR(distinct_experts(kFlash, 64), 243.8, 0.1);
  const StepBytes one = decode_bytes(kFlash, 1, 1, 131072);
  EXPECT_EQ(one.shared, 8522921408.0);
  EXPECT_NEAR(one.shared + one.experts, 13.04e9, 0.01e9);
  EXPECT_NEAR(one.cache, 35.0e6, 0.1e6);
  const StepBytes many = decode_bytes(kFlash, 64, 64, 4096);
  EXPECT_NEAR(many.shared + many.experts, 191.9e9, 0.1e9);
  EXPECT_NEAR(many.cache, 64 * 10.1e6, 64 * 0.1e6);
}

// The lower bounds that section 6 works out: 2.72 ms for one row at 4.8 TB/s, 40 ms for 64 rows.
TEST(SpeedPlan, OneDeviceIsBoundByItsMemoryInDecode) {
  Hardware h200{"H200", 1, 141000000000, 4.8e12, 1979e12, 989e12, 450e9, 0, "bound", "bound"};
  const Prediction one = predict_decode(kFlash, h200, 1, 1);
  EXPECT_EQ(one.limit, "bandwidth");
  EXPECT_NEAR(one.seconds, 2.72e-3, 0.02e-3);
  EXPECT_NEAR(predict_decode(kFlash, h200, 64, 1).seconds, 40e-3, 0.3e-3);
}

TEST(SpeedPlan, ALongPromptIsBoundByArithmetic) {
  Hardware h200{"H200", 1, 141000000000, 4.8e12, 1979e12, 989e12, 450e9, 0, "bound", "bound"};
  const Prediction prompt = predict_prefill(kFlash, h200, 131072, 140);
  EXPECT_EQ(prompt.limit, "compute");
  EXPECT_GT(prompt.seconds, 131072 * 15.79e9 / 1979e12);
}

TEST(SpeedPlan, MoreDevicesAreNeverSlowerPerStepUnlessLinksLimit) {
  Hardware one{"H200", 1, 141000000000, 4.8e12, 1979e12, 989e12, 450e9, 0, "bound", "bound"}, eight = one;
  eight.devices = 8;
  EXPECT_LT(predict_decode(kFlash, eight, 64, 4096).seconds, predict_decode(kFlash, one, 64, 4096).seconds);
  eight.link_bytes_per_second = 1e6;
  EXPECT_EQ(predict_decode(kFlash, eight, 64, 4096).limit, "links");
}

}  // namespace
}  // namespace fathom
