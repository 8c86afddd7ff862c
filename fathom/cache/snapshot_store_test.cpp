// engine.md R-21: snapshots of encoder windows in host memory.
#include "fathom/cache/snapshot_store.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "fathom/cache/prefix_fixture.h"

namespace fathom {
namespace {

using std::chrono::seconds;

constexpr int64_t kBytes = 64;

class Snapshots : public testing::Test {
 protected:
  CachePools pools{40, 8};
  int32_t root = pools.prefixes.open_root(root_of("salt"), xxh3_key, 0);
  int64_t each = kBytes + 256 * 4 + int64_t(framed_root(root_of("salt")).size());  // of a prefix of 256 ids

  bool put(SnapshotStore& store, PrefixChain chain, const std::vector<int32_t>& ids, int64_t position, uint8_t value) {
    return store.put(pools.prefixes, chain, ids, position, [&](auto bytes) { std::ranges::fill(bytes, value); });
  }
  std::optional<SnapshotView> latest(SnapshotStore& store, const std::vector<int32_t>& ids, SnapshotRange range,
                                     bool exact_only = false) {
    PrefixChain chain = chain_of(root);
    return store.latest(pools.prefixes, chain, ids, range, exact_only);
  }
};

TEST_F(Snapshots, TheLastOneInRangeIsFound) {
  SnapshotStore store(kBytes, {.budget_bytes = 1 << 20});
  const auto ids = tokens_from(0, 1'000);
  for (const int64_t position : {256, 384, 640}) {
    EXPECT_TRUE(put(store, chain_of(root), ids, position, uint8_t(position / 128)));
  }
  EXPECT_EQ(latest(store, ids, {128, 896})->position, 640);
  EXPECT_EQ(latest(store, ids, {128, 512})->position, 384);
  EXPECT_EQ(latest(store, ids, {256, 256})->position, 256);
  EXPECT_EQ(latest(store, ids, {256, 256})->bytes[kBytes - 1], 2);
  EXPECT_FALSE(latest(store, ids, {768, 896}));
  EXPECT_FALSE(latest(store, ids, {}));
  auto other = ids;
  other[300] = -1;
  EXPECT_EQ(latest(store, other, {128, 896})->position, 256);
  EXPECT_TRUE(store.verify().ok());
}

TEST_F(Snapshots, TheBudgetHoldsAndTheLongestUnusedGoes) {
  SnapshotStore store(kBytes, {.budget_bytes = 3 * each});
  for (int32_t i = 0; i < 3; ++i) ASSERT_TRUE(put(store, chain_of(root), tokens_from(1'000 * i, 256), 256, 1));
  EXPECT_EQ(store.bytes(), 3 * each);
  ASSERT_TRUE(latest(store, tokens_from(0, 256), {128, 256}));  // used again
  ASSERT_TRUE(put(store, chain_of(root), tokens_from(9'000, 256), 256, 1));
  EXPECT_EQ(store.size(), 3);
  EXPECT_TRUE(latest(store, tokens_from(0, 256), {128, 256}));
  EXPECT_FALSE(latest(store, tokens_from(1'000, 256), {128, 256}));
  EXPECT_TRUE(store.verify().ok());
  EXPECT_EQ(store.statistics().evicted, 1);
  // One that alone is larger than the budget is not kept and throws nothing out.
  EXPECT_FALSE(put(store, chain_of(root), tokens_from(0, 2'048), 2'048, 1));
  EXPECT_EQ(store.size(), 3);
  SnapshotStore none(kBytes, {});
  EXPECT_FALSE(put(none, chain_of(root), tokens_from(0, 256), 256, 1));
}

TEST_F(Snapshots, AreGoneAfterMinutesOrWhenDropped) {
  SnapshotStore store(kBytes, {.budget_bytes = 1 << 20, .time_to_live = seconds(300)});
  store.advance(seconds(10));
  ASSERT_TRUE(put(store, chain_of(root), tokens_from(0, 256), 256, 1));
  ASSERT_TRUE(put(store, chain_of(root), tokens_from(1'000, 256), 256, 1));
  store.advance(seconds(310));
  EXPECT_EQ(store.size(), 2);
  ASSERT_TRUE(latest(store, tokens_from(0, 256), {128, 256}));
  store.advance(seconds(311));
  EXPECT_EQ(store.size(), 1);
  EXPECT_FALSE(latest(store, tokens_from(1'000, 256), {128, 256}));
  PrefixChain chain = chain_of(root);
  pools.prefixes.extend_keys(chain, tokens_from(0, 256), 2);
  store.drop(chain.keys[0]);  // nothing lies there
  EXPECT_EQ(store.size(), 1);
  store.drop(chain.keys[1]);
  EXPECT_EQ(store.size(), 0);
  EXPECT_EQ(store.bytes(), 0);
  EXPECT_TRUE(store.verify().ok());
}

TEST_F(Snapshots, OneWithFewerSeamsReplacesTheOther) {
  SnapshotStore store(kBytes, {.budget_bytes = 1 << 20});
  const auto ids = tokens_from(0, 256);
  PrefixChain replayed = chain_of(root);
  replayed.seams = 2;
  ASSERT_TRUE(put(store, replayed, ids, 256, 1));
  EXPECT_EQ(latest(store, ids, {128, 256})->seams, 2);
  EXPECT_FALSE(latest(store, ids, {128, 256}, true));
  ASSERT_TRUE(put(store, chain_of(root), ids, 256, 7));
  EXPECT_EQ(latest(store, ids, {128, 256}, true)->bytes[0], 7);
  ASSERT_TRUE(put(store, replayed, ids, 256, 1));  // does not spoil it
  EXPECT_EQ(latest(store, ids, {128, 256}, true)->bytes[0], 7);
  EXPECT_EQ(store.size(), 1);
}

// A snapshot is confirmed by the ids before it, so it needs no block, and a collision of keys finds nothing.
TEST_F(Snapshots, AreConfirmedByTheirIds) {
  SnapshotStore store(kBytes, {.budget_bytes = 1 << 20});
  const KeyHash constant = [](std::span<const uint8_t>) { return PrefixKey{}; };
  root = pools.prefixes.open_root(root_of("salt"), constant, 0);
  ASSERT_TRUE(put(store, chain_of(root), tokens_from(0, 256), 256, 1));
  EXPECT_FALSE(put(store, chain_of(root), tokens_from(1'000, 256), 256, 2));
  EXPECT_TRUE(latest(store, tokens_from(0, 256), {256, 256}));
  EXPECT_FALSE(latest(store, tokens_from(1'000, 256), {256, 256}));
  const int32_t mine = root;
  root = pools.prefixes.open_root(root_of("other tenant"), constant, 0);
  EXPECT_FALSE(latest(store, tokens_from(0, 256), {256, 256}));
  root = mine;
  EXPECT_TRUE(latest(store, tokens_from(0, 256), {256, 256}));
}

// The whole path: a prompt that continues an earlier one starts exactly at the snapshot.
TEST_F(Snapshots, AHitWithASnapshotNeedsNoReplayAndHasNoSeam) {
  SnapshotStore store(kBytes, {.budget_bytes = 1 << 20});
  const auto turn = tokens_from(0, 1'025);
  TestRequest first = admit(pools, root, turn);
  commit(pools, first);
  ASSERT_TRUE(windows_complete(kFlashShape, ReplayMode::compact, first.plan.replay, 1'024));
  ASSERT_TRUE(put(store, first.chain, turn, 1'024, 5));
  free_sequence(pools, first.cache);
  TestRequest next = admit(pools, root, turn + tokens_from(50'000, 300), ReplayMode::compact, &store);
  EXPECT_EQ(next.plan.hit, 1'024);
  EXPECT_EQ(next.plan.restore_at, 1'024);
  EXPECT_EQ(next.plan.replay_rows, 0);
  EXPECT_EQ(next.chain.seams, 0);
  free_sequence(pools, next.cache);
  TestRequest without = admit(pools, root, turn + tokens_from(60'000, 300));
  EXPECT_EQ(without.plan.replay_rows, 128);
  EXPECT_EQ(without.chain.seams, 1);
}

}  // namespace
}  // namespace fathom
