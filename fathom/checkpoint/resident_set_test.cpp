#include "fathom/checkpoint/resident_set.h"

#include <gtest/gtest.h>

#include <set>

#include "fathom/base/philox.h"

namespace fathom {
namespace {

using Answer = ResidentSet::Answer;

std::vector<int64_t> equal_pieces(size_t count, int64_t bytes = 10) { return std::vector<int64_t>(count, bytes); }

// Uses a piece and lets it go; true: it was in.
bool touch(ResidentSet& set, int32_t piece) {
  std::vector<int32_t> evicted;
  const Answer answer = set.use(piece, evicted);
  EXPECT_NE(answer, Answer::full);
  set.release(piece);
  return answer == Answer::resident;
}

TEST(ResidentSet, AFewPiecesLeaveInTheOrderOfTheirLastUse) {
  ResidentSet set(equal_pieces(5), 30);  // too few for a hot set
  for (const int32_t piece : {0, 1, 2, 0}) touch(set, piece);
  std::vector<int32_t> evicted;
  EXPECT_EQ(set.use(3, evicted), Answer::admitted);
  EXPECT_EQ(evicted, std::vector<int32_t>{1});
  set.release(3);
  EXPECT_TRUE(set.resident(0) && set.resident(2) && set.resident(3));
  EXPECT_EQ(set.bytes(), 30);
  EXPECT_EQ(set.hot_bytes(), 0);
}

TEST(ResidentSet, WhatIsHeldStaysAndWhatDoesNotFitBesideItWaits) {
  ResidentSet set(equal_pieces(4), 20);
  std::vector<int32_t> evicted;
  EXPECT_EQ(set.use(0, evicted), Answer::admitted);
  EXPECT_EQ(set.use(1, evicted), Answer::admitted);
  EXPECT_EQ(set.use(2, evicted), Answer::full);
  EXPECT_TRUE(evicted.empty());
  EXPECT_FALSE(set.resident(2));
  set.release(0);
  EXPECT_EQ(set.use(2, evicted), Answer::admitted);
  EXPECT_EQ(evicted, std::vector<int32_t>{0});
}

TEST(ResidentSet, OnePieceMayBeHeldTwice) {
  ResidentSet set(equal_pieces(3), 20);
  std::vector<int32_t> evicted;
  set.use(0, evicted);
  EXPECT_EQ(set.use(0, evicted), Answer::resident);
  set.use(1, evicted);
  set.release(0);
  EXPECT_EQ(set.use(2, evicted), Answer::full);
  set.release(0);
  EXPECT_EQ(set.use(2, evicted), Answer::admitted);
}

// Recency alone would find nothing: each piece leaves just before its turn.
TEST(ResidentSet, PiecesThatComeInTurnFindTheHotSet) {
  ResidentSet set(equal_pieces(100), 400);
  int64_t hits = 0;
  for (int turn = 0; turn < 20; ++turn) {
    for (int32_t piece = 0; piece < 100; ++piece) hits += touch(set, piece) && turn >= 10;
  }
  EXPECT_GE(hits, 10 * 30);  // three quarters of the 40 that fit
  EXPECT_LE(hits, 10 * 40);
}

// A uniform choice finds the part that fits, whatever leaves.
TEST(ResidentSet, AUniformChoiceFindsWhatFits) {
  ResidentSet set(equal_pieces(200), 600);
  int64_t hits = 0;
  constexpr int kUses = 40'000;
  for (uint32_t i = 0; i < 2 * kUses; ++i) hits += touch(set, int32_t(philox(1, {i, 0, 0, 0})[0] % 200)) && i >= kUses;
  EXPECT_NEAR(double(hits) / kUses, 0.3, 0.02);  // sqrt(0.3 * 0.7 / 40,000) = 0.0023, and what the set's age adds
}

TEST(ResidentSet, WhatIsUsedMoreBecomesHotAndWhatWasUsedOnceIsForgotten) {
  ResidentSet set(equal_pieces(200), 600);
  for (int32_t piece = 0; piece < 200; ++piece) touch(set, piece);
  // 20 favourites have half of all uses: all of them should be found, and of the others what fits beside them.
  int64_t hits = 0, uses = 0;
  for (uint32_t i = 0; i < 60'000; ++i) {
    const uint32_t random = philox(2, {i, 0, 0, 0})[0];
    const auto piece = int32_t(random % 2 == 0 ? 180 + random / 2 % 20 : random / 2 % 180);
    const bool hit = touch(set, piece);
    if (i >= 30'000 && piece >= 180) ++uses, hits += hit;
  }
  EXPECT_GT(double(hits) / double(uses), 0.99);
}

TEST(ResidentSet, TheLimitHoldsWhateverComesAndPiecesLeaveOnlyUnheld) {
  std::vector<int64_t> bytes;
  for (uint32_t i = 0; i < 60; ++i) bytes.push_back(1 + philox(3, {i, 0, 0, 0})[0] % 50);
  ResidentSet set(bytes, 400);
  std::vector<int32_t> held;
  std::set<int32_t> in;
  int full = 0;
  for (uint32_t i = 0; i < 20'000; ++i) {
    const auto words = philox(4, {i, 0, 0, 0});
    const auto piece = int32_t(words[0] % 60);
    if (words[1] % 3 == 0 && !held.empty()) {
      set.release(held.back());
      held.pop_back();
      continue;
    }
    std::vector<int32_t> evicted;
    const Answer answer = set.use(piece, evicted);
    EXPECT_EQ(answer == Answer::resident, in.contains(piece));
    for (const int32_t gone : evicted) {
      EXPECT_EQ(std::count(held.begin(), held.end(), gone), 0) << "held pieces stay";
      EXPECT_EQ(in.erase(gone), 1u) << "what leaves was in";
    }
    if (answer == Answer::full) {
      EXPECT_FALSE(held.empty()) << "one piece always fits";
      ++full;
    } else {
      in.insert(piece);
      held.push_back(piece);
    }
    int64_t sum = 0;
    for (const int32_t one : in) sum += bytes[size_t(one)];
    ASSERT_EQ(set.bytes(), sum);
    ASSERT_LE(sum, 400);
  }
  EXPECT_GT(full, 0);
}

}  // namespace
}  // namespace fathom
