// Tables of spec/engine.md section 6, row by row.
#include "fathom/cache/replay.h"

#include <gtest/gtest.h>

namespace fathom {
namespace {

constexpr ReplayShape kFlash{128, 6, 20, 20};
constexpr ReplayShape kMini{32, 6, 5, 5};

TEST(Replay, SizesOfFlashAreThoseOfTheSpecification) {
  EXPECT_EQ(ring_capacity(kFlash), 134);
  EXPECT_EQ(compact_rows(kFlash), 140);
  EXPECT_EQ(halo_rows(kFlash), 2'420);
  EXPECT_EQ(halo_rows({128, 0, 20, 20}), 2'414);  // without rows that may be taken back
  // golden/tiny has windows of 16 and 4 decoder layers: W + (D - 2)(W - 1) = 46.
  EXPECT_EQ(halo_rows({16, 0, 4, 4}), 46);
}

TEST(Replay, NamesAreReadAsTheyArePrinted) {
  for (const auto mode : {ReplayMode::off, ReplayMode::mask, ReplayMode::compact, ReplayMode::halo}) {
    EXPECT_EQ(replay_mode_of(name_of(mode)), mode);
  }
  EXPECT_EQ(replay_mode_of("on"), std::nullopt);
}

// Section 6.1: kept rows of the decoder half, in a prompt without a hit. Chunks do not matter: the cut is a position.
TEST(Replay, CompactRunsTheLastRowsOfThePrompt) {
  struct Row {
    int64_t length, first_kept;
  };
  for (const auto& [length, first_kept] : {Row{1000, 860}, Row{3000, 2860}, Row{100, 0}, Row{140, 0}, Row{141, 1}}) {
    const Replay plan = plan_replay(kFlash, ReplayMode::compact, length);
    EXPECT_EQ(plan.start, 0);
    EXPECT_EQ(plan.encoder_cut, 0);
    EXPECT_EQ(plan.store_from, 0);
    EXPECT_EQ(plan.decoder_from, first_kept) << length;
    EXPECT_EQ(plan.decoder_cut, first_kept) << length;  // row 860 sees one key, itself
    EXPECT_EQ(plan.decoder_window_from, first_kept) << length;
    EXPECT_EQ(plan.first_decoder_cut, first_kept) << length;
  }
}

TEST(Replay, MaskRunsEveryRowAndHidesTheSameKeys) {
  const Replay plan = plan_replay(kFlash, ReplayMode::mask, 1000);
  EXPECT_EQ(plan.decoder_from, 0);
  EXPECT_EQ(plan.decoder_window_from, 0);
  EXPECT_EQ(plan.decoder_cut, 860);
  EXPECT_EQ(plan.first_decoder_cut, 860);
}

TEST(Replay, OffIsThePlainPrefillAndUsesNoHit) {
  EXPECT_EQ(plan_replay(kFlash, ReplayMode::off, 5300), Replay{});
  EXPECT_EQ(plan_replay(kFlash, ReplayMode::off, 5300, 5120, true), Replay{});
}

TEST(Replay, HaloKeepsTheConeOfTheLastRow) {
  const Replay plan = plan_replay(kFlash, ReplayMode::halo, 100'000);
  EXPECT_EQ(plan.start, 0);
  EXPECT_EQ(plan.decoder_from, 100'000 - 2'420);
  EXPECT_EQ(plan.decoder_cut, 100'000 - 2'420);
  EXPECT_EQ(plan.decoder_window_from, 100'000 - 2'420 - 127);  // layer 20 projects the keys of 127 rows before
  EXPECT_EQ(plan.first_decoder_cut, 100'000 - 2'420 - 127);    // and sees them
  // With a hit: 20 encoder windows of 127 before min(h, L - 2,420).
  EXPECT_EQ(plan_replay(kFlash, ReplayMode::halo, 100'000, 99'968).start, 100'000 - 2'420 - 2'540);
  EXPECT_EQ(plan_replay(kFlash, ReplayMode::halo, 100'000, 51'200).start, 51'200 - 2'540);
  EXPECT_EQ(plan_replay(kFlash, ReplayMode::halo, 100'000, 51'200).store_from, 51'200);
  EXPECT_EQ(plan_replay(kFlash, ReplayMode::halo, 5'000, 4'992).start, 5'000 - 2'420 - 2'540);
  EXPECT_EQ(plan_replay(kFlash, ReplayMode::halo, 4'000, 3'968).start, 0);
  EXPECT_EQ(plan_replay(kFlash, ReplayMode::halo, 2'000).decoder_from, 0);
}

// Section 6.2, the whole table, for compact.
TEST(Replay, AHitReplaysTheRowsOfTheTable) {
  struct Row {
    int64_t length, hit;
    bool snapshot;
    int64_t start, encoder_rows, replay_rows, decoder_from;
  };
  const Row table[] = {
      {5'300, 0, false, 0, 5'300, 0, 5'160},
      {5'300, 5'120, true, 5'120, 180, 0, 5'160},
      {5'300, 5'120, false, 4'992, 308, 128, 5'160},
      {5'300, 5'248, true, 5'120, 180, 128, 5'160},  // the tail is shorter than K
      {5'300, 5'248, false, 5'120, 180, 128, 5'160},
      {5'249, 5'248, false, 5'109, 140, 139, 5'109},
      {100'000, 99'968, false, 99'840, 160, 128, 99'860},
  };
  for (const Row& row : table) {
    const Replay plan = plan_replay(kFlash, ReplayMode::compact, row.length, row.hit, row.snapshot);
    EXPECT_EQ(plan.start, row.start) << row.length << " " << row.hit;
    EXPECT_EQ(row.length - plan.start, row.encoder_rows);
    EXPECT_EQ(plan.store_from - plan.start, row.replay_rows);
    EXPECT_EQ(plan.decoder_from, row.decoder_from);
    EXPECT_EQ(plan.store_from, row.hit);
    // Nothing below the start is visible, unless the windows at the hit were restored.
    EXPECT_EQ(plan.encoder_cut, plan.start == row.hit ? 0 : row.start);
  }
}

TEST(Replay, HitsOfOneBlockAreNotUsed) {
  EXPECT_EQ(plan_replay(kFlash, ReplayMode::compact, 300, 128), plan_replay(kFlash, ReplayMode::compact, 300));
  EXPECT_EQ(plan_replay(kFlash, ReplayMode::compact, 300, 256).store_from, 256);
}

// Section 6.2: a turn with u uncached tokens costs at most u + 139 encoder rows and 140 decoder rows.
TEST(Replay, NoTurnReplaysMoreThan139Rows) {
  int64_t worst = 0;
  for (int64_t hit = 256; hit <= 2'048; hit += 128) {
    for (int64_t fresh = 1; fresh <= 300; ++fresh) {
      for (const bool snapshot : {false, true}) {
        const Replay plan = plan_replay(kFlash, ReplayMode::compact, hit + fresh, hit, snapshot);
        ASSERT_GE(plan.start, 0);
        ASSERT_LE(plan.start, plan.store_from);
        ASSERT_LE(plan.start, plan.decoder_from);
        ASSERT_LE(hit + fresh - plan.decoder_from, 140);
        worst = std::max(worst, hit - plan.start);
      }
    }
  }
  EXPECT_EQ(worst, 139);
}

TEST(Replay, EveryPlanOfAnyShapeIsOrdered) {
  for (const ReplayShape& shape : {kFlash, kMini, ReplayShape{16, 1, 4, 4}, ReplayShape{8, 1, 3, 1}}) {
    for (const auto mode : {ReplayMode::off, ReplayMode::mask, ReplayMode::compact, ReplayMode::halo}) {
      for (int64_t length = 1; length < 3'000; length += 7) {
        for (const int64_t hit : {int64_t(0), length / 256 * 128, (length - 1) / 128 * 128}) {
          const Replay plan = plan_replay(shape, mode, length, hit);
          ASSERT_LE(0, plan.start);
          ASSERT_LE(plan.start, plan.store_from);
          ASSERT_LT(plan.store_from, length);
          ASSERT_LE(plan.decoder_window_from, plan.decoder_from);
          ASSERT_LE(plan.decoder_from, plan.decoder_cut);
          ASSERT_LT(plan.decoder_cut, length);  // the last row runs the decoder and sees itself
        }
      }
    }
  }
}

TEST(Replay, KCanBeGiven) {
  EXPECT_EQ(plan_replay(kMini, ReplayMode::compact, 641, 0, false, 40).decoder_from, 601);
  EXPECT_EQ(plan_replay(kMini, ReplayMode::compact, 641).decoder_from, 641 - 44);
}

TEST(Replay, AModelWithoutDecoderHalfRunsEveryRow) {
  EXPECT_EQ(plan_replay({32, 1, 4, 0}, ReplayMode::compact, 500), Replay{});
}

}  // namespace
}  // namespace fathom
