// Tables of spec/engine.md section 6, row by row.
#include "fathom/cache/replay.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

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
  // With a hit: 20 encoder windows of 127 before min(h, first row with a decoder window key). The specification has
  // min(h, L - 2,420) there, 127 rows too late: docs/decisions/0009.
  EXPECT_EQ(plan_replay(kFlash, ReplayMode::halo, 100'000, 99'968).start, 100'000 - 2'420 - 127 - 2'540);
  EXPECT_EQ(plan_replay(kFlash, ReplayMode::halo, 100'000, 51'200).start, 51'200 - 2'540);
  EXPECT_EQ(plan_replay(kFlash, ReplayMode::halo, 100'000, 51'200).store_from, 51'200);
  EXPECT_EQ(plan_replay(kFlash, ReplayMode::halo, 6'000, 5'888).start, 6'000 - 2'420 - 127 - 2'540);
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

// The same table through plan_prefill, with every column.
TEST(PlanPrefill, SaysWhatIsComputedRestoredAndReplayed) {
  struct Row {
    int64_t length, hit;
    bool snapshot;
    int64_t start, valid_start, encoder_rows, replay_rows, decoder_rows;
    bool seam;
  };
  const Row table[] = {
      {5'300, 0, false, 0, 0, 5'300, 0, 140, false},
      {5'300, 5'120, true, 5'120, 0, 180, 0, 140, false},
      {5'300, 5'120, false, 4'992, 4'992, 308, 128, 140, true},
      {5'300, 5'248, true, 5'120, 5'120, 180, 128, 140, true},
      {5'300, 5'248, false, 5'120, 5'120, 180, 128, 140, true},
      {5'249, 5'248, false, 5'109, 5'109, 140, 139, 140, true},
      {100'000, 99'968, false, 99'840, 99'840, 160, 128, 140, true},
  };
  for (const Row& row : table) {
    const auto snapshot = row.snapshot ? std::optional(row.hit) : std::nullopt;
    const PrefillPlan plan = plan_prefill(kFlash, ReplayMode::compact, row.length, row.hit, snapshot);
    SCOPED_TRACE(std::to_string(row.length) + " " + std::to_string(row.hit));
    EXPECT_EQ(plan.replay.start, row.start);
    EXPECT_EQ(plan.valid_start(), row.valid_start);
    EXPECT_EQ(plan.encoder_rows, row.encoder_rows);
    EXPECT_EQ(plan.replay_rows, row.replay_rows);
    EXPECT_EQ(plan.decoder_rows, row.decoder_rows);
    EXPECT_EQ(plan.seam, row.seam);
    EXPECT_EQ(plan.restore_at, row.start == row.hit && row.hit > 0 ? snapshot : std::nullopt);
    EXPECT_EQ(plan.hit, row.hit);
  }
}

// Row 4 of the table: a snapshot one block earlier makes the same rows exact.
TEST(PlanPrefill, ASnapshotBelowTheHitSavesTheSeam) {
  const PrefillPlan plan = plan_prefill(kFlash, ReplayMode::compact, 5'300, 5'248, 5'120);
  EXPECT_EQ(plan.replay.start, 5'120);
  EXPECT_EQ(plan.restore_at, 5'120);
  EXPECT_EQ(plan.valid_start(), 0);
  EXPECT_EQ(plan.replay_rows, 128);
  EXPECT_FALSE(plan.seam);
  // Snapshots lie at multiples of 128: less than 128 rows more than the replay are worth it, 128 are not.
  const PrefillPlan late = plan_prefill(kFlash, ReplayMode::compact, 5'249, 5'248, 4'992);
  EXPECT_EQ(late.replay.start, 4'992);  // instead of 5,109
  EXPECT_FALSE(late.seam);
  EXPECT_EQ(plan_prefill(kFlash, ReplayMode::compact, 5'300, 5'248, 4'992).restore_at, std::nullopt);
}

TEST(PlanPrefill, ModesThatAreExactHaveNoSeam) {
  for (const int64_t hit : {0, 256, 4'992}) {
    EXPECT_FALSE(plan_prefill(kFlash, ReplayMode::halo, 5'300, hit).seam);
    EXPECT_FALSE(plan_prefill(kFlash, ReplayMode::off, 5'300, hit).seam);
  }
  const PrefillPlan off = plan_prefill(kFlash, ReplayMode::off, 5'300, 5'120, 5'120);
  EXPECT_EQ(off.hit, 0);
  EXPECT_EQ(off.encoder_rows, 5'300);
  EXPECT_EQ(off.decoder_rows, 5'300);
  // halo with a snapshot where its exact rows may begin, at or below L - 2,420 - 127.
  const PrefillPlan halo = plan_prefill(kFlash, ReplayMode::halo, 10'000, 9'984, 7'424);
  EXPECT_EQ(halo.replay.start, 7'424);
  EXPECT_EQ(halo.valid_start(), 0);
  EXPECT_EQ(plan_prefill(kFlash, ReplayMode::halo, 10'000, 9'984, 7'552).restore_at, std::nullopt);
}

// What useful_snapshots names is used, and what lies beside it is not; a snapshot costs less than a block of rows, and
// the last one that is low enough is useful.
TEST(PlanPrefill, TheUsefulSnapshotsAreThoseThatAreUsed) {
  for (const ReplayShape& shape : {kFlash, kMini, ReplayShape{16, 0, 4, 4}}) {
    for (const auto mode : {ReplayMode::mask, ReplayMode::compact, ReplayMode::halo, ReplayMode::off}) {
      for (int64_t length = 2; length < 6'000; length += 61) {
        for (const int64_t hit : {length / 384 * 128, (length - 1) / 128 * 128}) {
          const SnapshotRange range = useful_snapshots(shape, mode, length, hit);
          const PrefillPlan without = plan_prefill(shape, mode, length, hit);
          const int64_t kept = mode == ReplayMode::halo ? halo_rows(shape) + shape.window - 1 : compact_rows(shape);
          if (hit > 128 && mode != ReplayMode::off && length - kept >= 128) {
            ASSERT_EQ(range.highest, std::min(hit, (length - kept) / 128 * 128));
            ASSERT_LE(range.lowest, range.highest);
          }
          for (int64_t at = 128; at <= hit; at += 128) {
            const PrefillPlan plan = plan_prefill(shape, mode, length, hit, at);
            const bool useful = at >= range.lowest && at <= range.highest;
            ASSERT_EQ(plan.restore_at.has_value(), useful) << length << " " << hit << " " << at;
            ASSERT_LT(plan.encoder_rows, without.encoder_rows + 128);
            ASSERT_TRUE(!useful || plan.valid_start() == 0);
          }
        }
      }
    }
  }
}

// The cone of dependencies, layer by layer, in a network that is only windows: which (layer, row) values are exact when
// keys below `encoder_cut` are invisible. halo must give exact kept rows; with the specification's 127 rows fewer it
// does not.
TEST(PlanPrefill, HaloIsExactLayerByLayer) {
  const ReplayShape shape{16, 2, 4, 4};
  const int64_t length = 700, hit = 640;
  const PrefillPlan plan = plan_prefill(shape, ReplayMode::halo, length, hit);
  const auto exact_after_encoder = [&](int64_t start) {
    std::vector<bool> exact(size_t(length), true);
    for (int64_t p = 0; p < start; ++p) exact[size_t(p)] = false;  // not computed: counts as wrong for who reads it
    for (int layer = 0; layer < shape.encoder_layers; ++layer) {
      std::vector<bool> next(size_t(length), false);
      for (int64_t p = start; p < length; ++p) {
        next[size_t(p)] = true;
        for (int64_t k = std::max<int64_t>(0, p - shape.window + 1); k <= p; ++k) {
          if (!exact[size_t(k)]) next[size_t(p)] = false;
        }
      }
      exact = next;
    }
    return exact;
  };
  const auto all_exact_from = [&](const std::vector<bool>& exact, int64_t first) {
    return std::all_of(exact.begin() + first, exact.end(), [](bool one) { return one; });
  };
  ASSERT_GT(plan.replay.start, 0);
  EXPECT_TRUE(all_exact_from(exact_after_encoder(plan.replay.start), plan.replay.decoder_window_from));
  EXPECT_TRUE(all_exact_from(exact_after_encoder(plan.replay.start), hit));
  EXPECT_FALSE(all_exact_from(exact_after_encoder(plan.replay.start + 1), plan.replay.decoder_window_from));
  const int64_t of_specification = plan.replay.start + shape.window - 1;
  EXPECT_FALSE(all_exact_from(exact_after_encoder(of_specification), plan.replay.decoder_window_from));
}

TEST(PlanPrefill, WindowsAreWholeOnlyAboveEveryCut) {
  const PrefillPlan seam = plan_prefill(kFlash, ReplayMode::compact, 5'300, 5'120);  // start 4,992
  EXPECT_TRUE(windows_complete(kFlash, ReplayMode::compact, seam.replay, 5'120));
  EXPECT_FALSE(windows_complete(kFlash, ReplayMode::compact, seam.replay, 4'992));
  const PrefillPlan late = plan_prefill(kFlash, ReplayMode::compact, 5'249, 5'248);  // start 5,109
  EXPECT_FALSE(windows_complete(kFlash, ReplayMode::compact, late.replay, 5'120));
  EXPECT_TRUE(windows_complete(kFlash, ReplayMode::compact, late.replay, 5'248));
  const PrefillPlan halo = plan_prefill(kFlash, ReplayMode::halo, 10'000, 9'984);  // start 4,913, exact from 7,453
  EXPECT_FALSE(windows_complete(kFlash, ReplayMode::halo, halo.replay, 7'552));
  EXPECT_TRUE(windows_complete(kFlash, ReplayMode::halo, halo.replay, 7'680));
  const PrefillPlan cold = plan_prefill(kFlash, ReplayMode::compact, 5'300);
  EXPECT_TRUE(windows_complete(kFlash, ReplayMode::compact, cold.replay, 128));
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
