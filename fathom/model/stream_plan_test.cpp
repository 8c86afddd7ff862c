#include "fathom/model/stream_plan.h"

#include <gtest/gtest.h>

#include "fathom/model/presets.h"

namespace fathom {
namespace {

ModelConfig slice() {
  return *preset_config("flash-slice", {.encoder_layers = 2, .decoder_layers = 2, .experts = 32, .engram_vocab = 1000});
}

// Products cost next to nothing, so that only the disk counts.
StreamHardware only_disk(int64_t limit) {
  StreamHardware hardware;
  for (ProductSpeed* speed : {&hardware.fp4, &hardware.fp8, &hardware.bf16}) speed->at = {1e-18, 1e-18, 1e-18, 1e-18};
  hardware.disk_bytes_per_second = 1e9;
  hardware.cache_bytes_per_second = 10e9;
  hardware.limit_bytes = limit;
  return hardware;
}

TEST(StreamPlan, AnExpertOfFlashTakesItsBytesAndOnePageMore) {
  EXPECT_EQ(expert_page_bytes(ModelConfig{}), 18'800'640 + (2 << 20));
}

// spec/memory.md 6: 6 of 32 experts a row and layer, 4 layers; what does not fit is read.
TEST(StreamPlan, ATokenReadsWhatIsNotResident) {
  const ModelConfig config = slice();
  const int64_t piece = expert_page_bytes(config);
  for (const double share : {0.25, 0.5, 0.75}) {
    const auto p = predict_streamed_decode(config, only_disk(int64_t(share * 128) * piece), 1, 64);
    EXPECT_EQ(p.used, 24);
    // At most what fits; at least the hot set, where what is left beside it is less than a step uses.
    EXPECT_LE(p.hit_ratio, share + 0.02);
    EXPECT_GE(p.hit_ratio, 0.75 * share - 0.02);
    EXPECT_NEAR(p.disk_bytes, (1 - p.hit_ratio) * 24 * double(piece), 0.01 * p.disk_bytes);
    EXPECT_NEAR(p.seconds, p.disk_bytes / 1e9, 0.02 * p.seconds);
    EXPECT_NEAR(p.wait_seconds, p.seconds, 0.02 * p.seconds);
  }
}

TEST(StreamPlan, WhatFitsIsNeverRead) {
  const ModelConfig config = slice();
  const auto p = predict_streamed_decode(config, only_disk(200 * expert_page_bytes(config)), 1, 64);
  EXPECT_EQ(p.hit_ratio, 1);
  EXPECT_EQ(p.disk_bytes, 0);
  EXPECT_EQ(p.wait_seconds, 0);
}

TEST(StreamPlan, ThePageCacheReadsInsteadOfTheDisk) {
  const ModelConfig config = slice();
  StreamHardware hardware = only_disk(32 * expert_page_bytes(config));
  const double disk = predict_streamed_decode(config, hardware, 1, 64).seconds;
  hardware.page_cache_bytes = int64_t(1) << 40;
  const auto cached = predict_streamed_decode(config, hardware, 1, 64);
  EXPECT_EQ(cached.disk_bytes, 0);
  EXPECT_NEAR(cached.seconds, disk / 10, 0.02 * disk);
}

// A prompt uses every expert once; the last layer runs one row. The disk works through, so the time is its time.
TEST(StreamPlan, APromptReadsEachExpertOnceAndTheHotSetNotAtAll) {
  const ModelConfig config = slice();
  const int64_t piece = expert_page_bytes(config);
  const auto p = predict_streamed_prefill(config, only_disk(40 * piece), 512, 140, 2048);
  EXPECT_NEAR(p.used, 3 * 32 + 6, 0.5);
  const double missed = p.disk_bytes / double(piece);
  EXPECT_GE(missed, 102 - 40);
  EXPECT_LE(missed, 102 - 20);
  EXPECT_NEAR(p.seconds, p.disk_bytes / 1e9, 0.1 * p.seconds);
}

// Where arithmetic takes longer than the disk, the disk hides behind it: the sum would be twice as long.
TEST(StreamPlan, TheDiskReadsWhileExpertsAreComputed) {
  const ModelConfig config = slice();
  StreamHardware hardware = only_disk(40 * expert_page_bytes(config));
  const double piece_seconds = double(expert_page_bytes(config)) / 1e9;
  const double parameters = 3.0 * 5120 * 2304, rows = 512 * 6 / 32.0;
  hardware.fp4.at = {1e-18, 1e-18, 1e-18, 1e-18};
  for (size_t i = 0; i < 4; ++i) hardware.fp4.at[i] = 1.2 * piece_seconds / parameters * ProductSpeed::kRows[i] / rows;
  const auto p = predict_streamed_prefill(config, hardware, 512, 512, 2048);
  const double computing = 3 * 32 * 1.2 * piece_seconds;
  EXPECT_LT(p.seconds, 1.15 * computing);
  EXPECT_LT(p.wait_seconds, 0.15 * computing);
}

TEST(StreamPlan, MoreRowsTakeLongerAndLessEach) {
  const ModelConfig config = slice();
  const StreamHardware hardware = only_disk(40 * expert_page_bytes(config));
  const auto one = predict_streamed_decode(config, hardware, 1, 64),
             four = predict_streamed_decode(config, hardware, 4, 64);
  EXPECT_GT(four.seconds, one.seconds);
  EXPECT_LT(four.seconds, 4 * one.seconds);
}

TEST(StreamPlan, ProductsBetweenMeasuredRowsLieOnALine) {
  ProductSpeed speed;
  speed.at = {1, 8, 64, 512};
  for (const double rows : {1.0, 3.0, 8.0, 20.0, 64.0, 300.0, 512.0, 2048.0})
    EXPECT_DOUBLE_EQ(speed.seconds(2, rows), 2 * rows);
}

// Slots of a device take an expert's bytes, without pages.
TEST(StreamPlan, OverABusAnExpertTakesItsOwnBytes) {
  const ModelConfig config = slice();
  StreamHardware hardware = only_disk(40 * int64_t(18'800'640));
  hardware.piece_bytes = 18'800'640;
  hardware.disk_bytes_per_second = 50e9;
  const auto p = predict_streamed_decode(config, hardware, 1, 64);
  EXPECT_NEAR(p.disk_bytes, (1 - p.hit_ratio) * 24 * 18'800'640, 1);
  EXPECT_NEAR(p.seconds, p.disk_bytes / 50e9, 0.02 * p.seconds);
}

}  // namespace
}  // namespace fathom
