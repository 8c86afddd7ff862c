// Which experts are copied where and in what order, with a lane that copies as late or as early as it may.
#include "fathom/model/moe/expert_slots.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "fathom/base/philox.h"

namespace fathom {
namespace {

constexpr int64_t kPieceBytes = 64;

// What a device may do at its worst. Late: a copy happens when somebody waits for it, so that whoever forgets to wait
// reads what was there before. Early: it happens as soon as its point allows, and what was queued is read as late as
// possible, so that a copy that forgets its point overwrites what is still to be read.
struct WorstCase {
  bool late = false;
  struct Copy {
    void* to;
    const void* from;
    int64_t bytes;
  };
  std::vector<Copy> copies;
  size_t copied = 0;
  std::vector<std::function<void()>> reads;
  size_t read = 0;
  std::vector<size_t> points;  // reads before each

  void copy_until(int64_t number) {
    for (; copied < size_t(number); ++copied)
      std::memcpy(copies[copied].to, copies[copied].from, size_t(copies[copied].bytes));
  }
  void read_until(size_t end) {
    for (; read < end; ++read) reads[read]();
  }
  void queue(std::function<void()> one) {
    reads.push_back(std::move(one));
    if (late) read_until(reads.size());
  }
};

class FakeLane : public CopyLane {
 public:
  explicit FakeLane(WorstCase& w) : w_(w) {}
  int64_t point(Queue&) override {
    w_.points.push_back(w_.reads.size());
    return int64_t(w_.points.size());
  }
  int64_t copy(void* to, const void* from, int64_t bytes, int64_t after) override {
    w_.copies.push_back({to, from, bytes});
    if (!w_.late) {
      if (after > 0) w_.read_until(w_.points[size_t(after) - 1]);
      w_.copy_until(int64_t(w_.copies.size()));
    }
    return int64_t(w_.copies.size());
  }
  void await(Queue&, int64_t copy) override { w_.copy_until(copy); }
  bool done(int64_t copy) override { return size_t(copy) <= w_.copied; }

 private:
  WorstCase& w_;
};

class ExpertSlotsTest : public testing::TestWithParam<bool> {
 protected:
  static constexpr int kPieces = 40;
  ExpertSlotsTest() : weights_(kPieces * kPieceBytes) {
    for (size_t i = 0; i < weights_.size(); ++i) weights_[i] = uint8_t(1 + i / kPieceBytes);
    world_.late = GetParam();
  }
  std::unique_ptr<ExpertSlots> open(int64_t slots) {
    std::vector<const uint8_t*> pieces;
    for (int i = 0; i < kPieces; ++i) pieces.push_back(weights_.data() + i * kPieceBytes);
    auto opened = ExpertSlots::open(reference_backend().memory, std::make_unique<FakeLane>(world_), std::move(pieces),
                                    kPieceBytes, slots);
    check(opened.ok(), "a few slots fit");
    return std::move(*opened);
  }
  // Runs a block that wants these pieces; every one is handed out once and read where it should lie.
  int64_t block(ExpertSlots& slots, std::vector<int32_t> wanted) {
    slots.want(wanted);
    const std::vector<int32_t> order(slots.order().begin(), slots.order().end());
    std::vector<int32_t> sorted = order;
    std::sort(sorted.begin(), sorted.end());
    std::sort(wanted.begin(), wanted.end());
    EXPECT_EQ(sorted, wanted);
    int64_t waves = 0, handed = 0;
    for (auto wave = slots.next(queue_); wave.count > 0; wave = slots.next(queue_), ++waves) {
      EXPECT_EQ(wave.first, handed);
      for (int64_t i = 0; i < wave.count; ++i) {
        const int32_t piece = order[size_t(wave.first + i)];
        const uint8_t* at = slots.place(piece);
        world_.queue([at, piece] {
          for (int64_t b = 0; b < kPieceBytes; ++b) ASSERT_EQ(int(at[b]), piece + 1);
        });
      }
      handed += wave.count;
      slots.release(queue_);
    }
    EXPECT_EQ(handed, int64_t(order.size()));
    return waves;
  }
  void finish() {
    world_.copy_until(int64_t(world_.copies.size()));
    world_.read_until(world_.reads.size());
  }

  WorstCase world_;
  Queue queue_{1};
  std::vector<uint8_t> weights_;
};

TEST_P(ExpertSlotsTest, EveryPieceIsReadWhereItLiesHoweverFewSlotsThereAre) {
  for (const int64_t count : {2, 3, 7, 20, 40}) {
    const auto slots = open(count);
    int64_t wanted_in_all = 0;
    for (uint32_t step = 0; step < 200; ++step) {
      const auto random = [&](uint32_t i) { return philox(uint64_t(count), {step, i, 0, 0})[0]; };
      std::vector<int32_t> wanted, guess;
      const uint32_t share = 1 + random(1000) % 8;
      for (int32_t p = 0; p < kPieces; ++p) {
        if (random(uint32_t(p)) % 8 < share) wanted.push_back(p);
        if (random(uint32_t(100 + p)) % 6 == 0) guess.push_back(p);
      }
      wanted_in_all += int64_t(wanted.size());
      block(*slots, wanted);
      if (step % 3 != 0) slots->expect(guess, step % 3 == 1 ? 2 : kPieces);
    }
    finish();
    const StreamStatistics counts = slots->statistics();
    EXPECT_TRUE(counts.over_bus);
    EXPECT_EQ(counts.uses, wanted_in_all);
    EXPECT_EQ(counts.limit_bytes, count * kPieceBytes);
    EXPECT_LE(counts.resident_bytes, counts.limit_bytes);
    EXPECT_EQ(counts.loaded_bytes, int64_t(world_.copies.size()) * kPieceBytes);
    EXPECT_LE(counts.guesses_used, counts.guesses);
    world_ = WorstCase{GetParam(), {}, 0, {}, 0, {}};
  }
}

TEST_P(ExpertSlotsTest, WhatIsThereComesFirstAndIsNotCopiedAgain) {
  const auto slots = open(10);
  block(*slots, {1, 2, 3});
  finish();
  slots->want(std::vector<int32_t>{3, 9, 1});
  EXPECT_EQ(std::vector<int32_t>(slots->order().begin(), slots->order().end()), (std::vector<int32_t>{3, 1, 9}));
  EXPECT_EQ(slots->next(queue_).count, 2);
  slots->release(queue_);
  EXPECT_EQ(slots->next(queue_).count, 1);
  slots->release(queue_);
  EXPECT_EQ(slots->next(queue_).count, 0);
  EXPECT_EQ(world_.copies.size(), 4u);
  EXPECT_EQ(slots->statistics().hits, 2);
}

TEST_P(ExpertSlotsTest, AGuessCopiesAsMuchAsItMayAndIsCountedWhenItWasRight) {
  const auto slots = open(10);
  block(*slots, {0});
  slots->expect(std::vector<int32_t>{0, 5, 6, 7}, 2);
  EXPECT_EQ(world_.copies.size(), 3u);
  block(*slots, {5, 8});
  finish();
  EXPECT_EQ(slots->statistics().guesses, 2);
  EXPECT_EQ(slots->statistics().guesses_used, 1);
}

INSTANTIATE_TEST_SUITE_P(Copies, ExpertSlotsTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "late" : "early"; });

// One row of Flash misses at most 6; a prompt wants all 384 of a block.
TEST(WaveSize, LeavesLittleToComputeBehindTheLastCopyAndHalfOfTheSlotsToFill) {
  EXPECT_EQ(wave_size(6, 1000), 4);
  EXPECT_EQ(wave_size(384, 1000), 48);
  EXPECT_EQ(wave_size(384, 20), 10);
  EXPECT_EQ(wave_size(384, 2), 1);
  EXPECT_EQ(wave_size(384, 3), 1);
  EXPECT_EQ(wave_size(0, 6), 3);
}

}  // namespace
}  // namespace fathom
