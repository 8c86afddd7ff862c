// engine.md: what is found, by whom, and what goes first.
#include "fathom/cache/prefix_sharing.h"

#include <gtest/gtest.h>

#include "fathom/cache/prefix_fixture.h"

namespace fathom {
namespace {

using std::chrono::seconds;

class PrefixSharing : public testing::Test {
 protected:
  CachePools pools{40, 8};
  int32_t root = pools.prefixes.open_root(root_of("salt"), xxh3_key, 0);

  void expect_consistent(const std::vector<SequenceCache*>& users, const std::vector<int32_t>& more = {}) {
    std::vector<int32_t> blocks = more, slots;
    for (const SequenceCache* cache : users) {
      blocks.insert(blocks.end(), cache->blocks.begin(), cache->blocks.end());
      if (cache->slot != 0) slots.push_back(cache->slot);
    }
    const auto state = verify(pools, blocks, slots);
    EXPECT_TRUE(state.ok()) << to_string(state.error());
  }
};

TEST_F(PrefixSharing, APromptIsFoundUpToItsLastFullBlockButOneRow) {
  const auto prompt = tokens_from(0, 640);
  EXPECT_EQ(run_through(pools, root, prompt), 0);
  expect_consistent({});
  EXPECT_EQ(pools.blocks.available(), 40);
  const auto found = [&](const std::vector<int32_t>& ids) {
    PrefixChain fresh = chain_of(root);
    return pools.prefixes.lookup(fresh, ids, false).tokens();
  };
  EXPECT_EQ(found(prompt), 512);  // 640 is a multiple of 128: one row must be left
  EXPECT_EQ(found(prompt + tokens_from(7, 1)), 640);
  EXPECT_EQ(found(tokens_from(0, 639)), 512);
  EXPECT_EQ(found(tokens_from(0, 513)), 512);
  EXPECT_EQ(found(tokens_from(0, 512)), 384);
  EXPECT_EQ(found(tokens_from(0, 128)), 0);
  EXPECT_EQ(found(tokens_from(0, 1)), 0);
  EXPECT_EQ(found({}), 0);
  EXPECT_EQ(found(tokens_from(1, 640)), 0);
  auto other = prompt;
  other[300] = -5;
  EXPECT_EQ(found(other), 256);  // up to the block with the difference
  other = prompt;
  other[0] = -5;
  EXPECT_EQ(found(other), 0);  // block 1 is the same, its past is not
}

TEST_F(PrefixSharing, OnlyFullCommittedBlocksAreFindable) {
  TestRequest request = admit(pools, root, tokens_from(0, 300));
  std::vector<int32_t> displaced;
  publish(pools, request.cache, request.chain, request.ids, 127, displaced);
  EXPECT_EQ(pools.prefixes.size(), 0);
  publish(pools, request.cache, request.chain, request.ids, 128, displaced);
  EXPECT_EQ(pools.prefixes.size(), 1);
  publish(pools, request.cache, request.chain, request.ids, 300, displaced);
  publish(pools, request.cache, request.chain, request.ids, 300, displaced);
  EXPECT_EQ(pools.prefixes.size(), 2);
  // Tokens behind a stop were run and are not part of the text.
  publish(pools, request.cache, request.chain, request.ids, 390, displaced);
  EXPECT_EQ(pools.prefixes.size(), 2);
  EXPECT_TRUE(displaced.empty());
  EXPECT_FALSE(pools.blocks.writable(request.cache.blocks[1]));
  EXPECT_TRUE(pools.blocks.writable(request.cache.blocks[2]));
  expect_consistent({&request.cache});
}

TEST_F(PrefixSharing, AHitSharesItsBlocksAndKeepsThemFromEviction) {
  run_through(pools, root, tokens_from(0, 400));
  TestRequest second = admit(pools, root, tokens_from(0, 385));
  EXPECT_EQ(second.plan.hit, 384);
  EXPECT_EQ(second.plan.replay.store_from, 384);
  expect_consistent({&second.cache});
  SequenceCache big;
  ASSERT_TRUE(reserve(pools, big, 36 * 128).ok());  // all but the four blocks of `second`
  EXPECT_FALSE(reserve(pools, big, 37 * 128).ok());
  EXPECT_EQ(pools.prefixes.size(), 3);
  expect_consistent({&second.cache, &big});
}

TEST_F(PrefixSharing, TheSecondToPublishABlockUsesTheFirstOnes) {
  TestRequest first = admit(pools, root, tokens_from(0, 300));
  TestRequest second = admit(pools, root, tokens_from(0, 500));
  commit(pools, first);
  std::vector<int32_t> displaced;
  const auto own = second.cache.blocks;
  publish(pools, second.cache, second.chain, second.ids, 500, displaced);
  EXPECT_EQ(displaced, (std::vector<int32_t>{own[0], own[1]}));
  EXPECT_EQ(second.cache.blocks[0], first.cache.blocks[0]);
  EXPECT_EQ(second.cache.blocks[1], first.cache.blocks[1]);
  EXPECT_EQ(second.cache.blocks[2], own[2]);  // nobody had it
  expect_consistent({&first.cache, &second.cache}, displaced);
  EXPECT_EQ(pools.prefixes.total().deduplicated, 2);
  for (const int32_t block : displaced) pools.blocks.release(block);
  free_sequence(pools, first.cache);
  expect_consistent({&second.cache});
  EXPECT_EQ(pools.blocks.idle().size(), 0);
  free_sequence(pools, second.cache);
  expect_consistent({});
  EXPECT_EQ(pools.blocks.idle().size(), 3);
}

TEST_F(PrefixSharing, TheEndOfThePrefixUsedLongestAgoGoesFirst) {
  run_through(pools, root, tokens_from(0, 400));      // 3 blocks
  run_through(pools, root, tokens_from(5'000, 400));  // 3 blocks
  run_through(pools, root, tokens_from(0, 400));      // used again
  const auto found = [&](int32_t first) {
    PrefixChain chain = chain_of(root);
    return pools.prefixes.lookup(chain, tokens_from(first, 400), false).tokens();
  };
  std::vector<std::pair<int64_t, int64_t>> order;
  for (int32_t taken = 34; taken <= 40; ++taken) {
    SequenceCache big;
    ASSERT_TRUE(reserve(pools, big, taken * 128).ok());
    order.push_back({found(0), found(5'000)});
    expect_consistent({&big});
    free_sequence(pools, big);
  }
  EXPECT_EQ(order, (std::vector<std::pair<int64_t, int64_t>>{
                       {384, 384}, {384, 256}, {384, 128}, {384, 0}, {256, 0}, {128, 0}, {0, 0}}));
  EXPECT_EQ(pools.prefixes.total().evicted, 6);
}

TEST_F(PrefixSharing, FreeBlocksAreTakenBeforeIdleOnes) {
  run_through(pools, root, tokens_from(0, 400));
  EXPECT_TRUE(make_room(pools, 37));
  EXPECT_EQ(pools.prefixes.size(), 3);
  EXPECT_TRUE(make_room(pools, 38));
  EXPECT_EQ(pools.prefixes.size(), 2);
  EXPECT_FALSE(make_room(pools, 41));
  EXPECT_EQ(pools.prefixes.size(), 2);
}

TEST_F(PrefixSharing, IdleBlocksOfAnAccountGoAfterItsTimeToLive) {
  const int32_t account = pools.blocks.idle().add_account({.time_to_live = seconds(60)});
  const int32_t other = pools.prefixes.open_root(root_of("short"), xxh3_key, account);
  run_through(pools, root, tokens_from(0, 300));
  run_through(pools, other, tokens_from(0, 300));
  pools.blocks.idle().advance(seconds(60));
  EXPECT_EQ(drop_expired(pools), 0);
  pools.blocks.idle().advance(seconds(61));
  EXPECT_EQ(drop_expired(pools), 2);
  EXPECT_EQ(pools.prefixes.statistics(account).expired, 2);
  EXPECT_EQ(pools.prefixes.size(), 2);
  expect_consistent({});
}

TEST_F(PrefixSharing, ExactRequestsFindOnlyExactBlocks) {
  const auto prompt = tokens_from(0, 1'000);
  run_through(pools, root, tokens_from(0, 520));
  TestRequest replayed = admit(pools, root, prompt);  // a hit of 512 without snapshot: rows are replayed
  EXPECT_EQ(replayed.plan.hit, 512);
  EXPECT_TRUE(replayed.plan.seam);
  EXPECT_EQ(replayed.chain.seams, 1);
  commit(pools, replayed);
  PrefixChain chain = chain_of(root);
  EXPECT_EQ(pools.prefixes.lookup(chain, prompt, false).tokens(), 896);
  EXPECT_EQ(pools.prefixes.lookup(chain, prompt, false).seams, 1);
  EXPECT_EQ(pools.prefixes.lookup(chain, prompt, true).tokens(), 512);
  EXPECT_EQ(pools.prefixes.lookup(chain, prompt, true).seams, 0);
  // Another replay on top: two seams.
  TestRequest again = admit(pools, root, prompt + tokens_from(9'000, 300));
  EXPECT_EQ(again.chain.seams, 2);
  free_sequence(pools, again.cache);
  free_sequence(pools, replayed.cache);
  // Modes that are exact have a root of their own, so they find nothing of this at all.
  const int32_t exact = pools.prefixes.open_root(root_of("salt", ReplayClass::exact), xxh3_key, 0);
  EXPECT_NE(exact, root);
  EXPECT_EQ(admit(pools, exact, prompt, ReplayMode::halo).plan.hit, 0);
}

TEST_F(PrefixSharing, ABlockWithFewerSeamsTakesThePlaceOfAnIdleOne) {
  const auto prompt = tokens_from(0, 640);
  TestRequest exact = admit(pools, root, prompt);  // cold, not published yet
  run_through(pools, root, tokens_from(0, 300));
  EXPECT_EQ(run_through(pools, root, prompt), 256);  // publishes blocks 2 and 3 behind a seam
  commit(pools, exact);
  PrefixChain chain = chain_of(root);
  const PrefixHit hit = pools.prefixes.lookup(chain, prompt, true);
  // Block 3 had no child and is ours now; block 2 had one (3) when it was compared, so it stays, and so does its seam.
  EXPECT_EQ(hit.tokens(), 256);
  EXPECT_EQ(exact.chain.seams, 1);
  expect_consistent({&exact.cache});
  free_sequence(pools, exact.cache);

  TestRequest other = admit(pools, root, tokens_from(20'000, 400));
  run_through(pools, root, tokens_from(20'000, 300));
  run_through(pools, root, tokens_from(20'000, 400));  // publishes block 2 with a seam
  PrefixChain second = chain_of(root);
  ASSERT_EQ(pools.prefixes.lookup(second, tokens_from(20'000, 400), false).seams, 1);
  commit(pools, other);
  EXPECT_EQ(pools.prefixes.lookup(second, tokens_from(20'000, 400), false).seams, 0);
  EXPECT_EQ(other.chain.seams, 0);
  expect_consistent({&other.cache});
}

TEST_F(PrefixSharing, ImagesArePartOfTheContent) {
  const auto prompt = tokens_from(0, 100) + std::vector<int32_t>(200, 129'264) + tokens_from(500, 200);
  const auto image = [](uint8_t what) {
    ImageSpan span{100, 200, {}};
    span.digest.fill(what);
    return std::vector<ImageSpan>{span};
  };
  TestRequest first = admit(pools, root, prompt, ReplayMode::compact, nullptr, image(1));
  commit(pools, first);
  const auto hit = [&](std::vector<ImageSpan> images) {
    PrefixChain chain = chain_of(root, std::move(images));
    return pools.prefixes.lookup(chain, prompt, false).tokens();
  };
  EXPECT_EQ(hit(image(1)), 384);
  EXPECT_EQ(hit(image(2)), 0);
  EXPECT_EQ(hit({}), 0);
  expect_consistent({&first.cache});
  free_sequence(pools, first.cache);
  ASSERT_TRUE(make_room(pools, 40));
  expect_consistent({});
}

TEST_F(PrefixSharing, APinnedPrefixOutlivesEveryPressure) {
  const auto prompt = tokens_from(0, 513);
  run_through(pools, root, prompt);
  PrefixChain chain = chain_of(root);
  const PrefixHit hit = pools.prefixes.lookup(chain, prompt, false);
  auto refused = pin(pools, hit, 3);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::out_of_memory);
  auto pinned = pin(pools, hit, 4);
  ASSERT_TRUE(pinned.ok());
  auto twice = pin(pools, hit, 4);  // the same blocks count once
  ASSERT_TRUE(twice.ok());
  EXPECT_EQ(pools.prefixes.pinned_blocks(), 4);
  EXPECT_TRUE(make_room(pools, 36));
  EXPECT_FALSE(make_room(pools, 37));
  EXPECT_EQ(pools.prefixes.lookup(chain, prompt, false).tokens(), 512);
  expect_consistent({}, pinned->blocks + twice->blocks);
  unpin(pools, *pinned);
  EXPECT_FALSE(make_room(pools, 37));
  unpin(pools, *twice);
  EXPECT_EQ(pools.prefixes.pinned_blocks(), 0);
  EXPECT_TRUE(make_room(pools, 40));
  expect_consistent({});
}

// whoever writes below a findable block writes a copy.
TEST_F(PrefixSharing, ABlockThatOthersMayFindIsCopiedBeforeItIsWritten) {
  TestRequest request = admit(pools, root, tokens_from(0, 400));
  commit(pools, request);
  truncate(pools, request.cache, 200);
  truncate_chain(request.chain, 200);
  request.ids.resize(200);
  const int32_t shared = request.cache.blocks[1];
  auto copy = make_writable(pools, request.cache, 200);
  ASSERT_TRUE(copy.ok());
  ASSERT_TRUE(copy->has_value());
  EXPECT_EQ((*copy)->from, shared);
  EXPECT_EQ((*copy)->to, request.cache.blocks[1]);
  EXPECT_TRUE(pools.blocks.writable(request.cache.blocks[1]));
  EXPECT_FALSE(make_writable(pools, request.cache, 200)->has_value());
  PrefixChain chain = chain_of(root);
  EXPECT_EQ(pools.prefixes.lookup(chain, tokens_from(0, 400), false).tokens(), 384);
  request.ids = request.ids + tokens_from(70'000, 100);
  ASSERT_TRUE(reserve(pools, request.cache, 300).ok());
  commit(pools, request);
  expect_consistent({&request.cache});
  EXPECT_EQ(pools.prefixes.lookup(chain, tokens_from(0, 400), false).tokens(), 384);
}

TEST_F(PrefixSharing, BranchesOfOneParentShareWhatItPublished) {
  TestRequest parent = admit(pools, root, tokens_from(0, 300));
  commit(pools, parent);
  auto child = fork(pools, parent.cache, 300);
  ASSERT_TRUE(child.ok());
  TestRequest branch = parent;
  branch.cache = child->cache;
  truncate_chain(branch.chain, 300);
  commit(pools, branch);
  EXPECT_EQ(pools.prefixes.size(), 2);
  EXPECT_EQ(parent.cache.blocks[1], branch.cache.blocks[1]);
  EXPECT_NE(parent.cache.blocks[2], branch.cache.blocks[2]);
  expect_consistent({&parent.cache, &branch.cache});
  for (TestRequest* one : {&parent, &branch}) {  // both end with blocks of their own
    one->ids = one->ids + tokens_from(one == &parent ? 1'000 : 2'000, 200);
    ASSERT_TRUE(reserve(pools, one->cache, 500).ok());
    commit(pools, *one);
  }
  EXPECT_EQ(pools.prefixes.size(), 4);
  expect_consistent({&parent.cache, &branch.cache});
}

// Found by CacheAtRandom: the parent swapped its first block for a published one and then published its second, which
// the branch used behind another first one. When the parent ended, the published first block was idle and in use at
// once.
TEST_F(PrefixSharing, BlocksThatABranchHoldsUnpublishedStayOutOfTheIndex) {
  TestRequest parent = admit(pools, root, tokens_from(0, 300));
  auto child = fork(pools, parent.cache, 300);
  ASSERT_TRUE(child.ok());
  TestRequest branch = parent;
  branch.cache = child->cache;
  TestRequest other = admit(pools, root, tokens_from(0, 200));
  commit(pools, other);
  free_sequence(pools, other.cache);
  commit(pools, parent);  // swaps block 0; block 1 is the branch's too
  EXPECT_EQ(pools.prefixes.size(), 1);
  EXPECT_TRUE(parent.chain.closed);
  expect_consistent({&parent.cache, &branch.cache});
  free_sequence(pools, parent.cache);
  expect_consistent({&branch.cache});
  commit(pools, branch);  // now it is the only user
  EXPECT_EQ(pools.prefixes.size(), 2);
  expect_consistent({&branch.cache});
}

TEST_F(PrefixSharing, ARootThatNobodyCanUseAgainLeavesNothing) {
  for (int i = 0; i < 100; ++i) {  // a salt for each request
    const int32_t own = pools.prefixes.open_root(root_of("request " + std::to_string(i)), xxh3_key, 0);
    EXPECT_LE(own, 16);  // numbers are given out again: 40 blocks of three a prompt hold 13 roots
    EXPECT_EQ(run_through(pools, own, tokens_from(0, 400)), 0);
    pools.prefixes.close_root(own);
  }
  EXPECT_EQ(pools.prefixes.open_root(root_of("salt"), xxh3_key, 0), root);
  EXPECT_NE(pools.prefixes.open_root(root_of("salt"), sha256_key, 0), root);
  expect_consistent({});
}

TEST_F(PrefixSharing, ASequenceWithoutRootIsNotCached) {
  EXPECT_EQ(run_through(pools, 0, tokens_from(0, 400)), 0);
  EXPECT_EQ(pools.prefixes.size(), 0);
  EXPECT_EQ(pools.blocks.free_count(), 40);
  EXPECT_EQ(pools.prefixes.total().prompts, 0);
}

TEST_F(PrefixSharing, TheCheckerSeesWhatIsWrong) {
  TestRequest request = admit(pools, root, tokens_from(0, 400));
  commit(pools, request);
  const std::vector<int32_t> slots = {request.cache.slot};
  EXPECT_TRUE(verify(pools, request.cache.blocks, slots).ok());
  EXPECT_FALSE(verify(pools, {}, slots).ok());
  CachePools lost = CachePools(40, 8);
  EXPECT_FALSE(lost.prefixes.verify(pools.blocks).ok());  // findable without an entry
  pools.blocks.forget(request.cache.blocks[2]);
  EXPECT_FALSE(verify(pools, request.cache.blocks, slots).ok());  // an entry that is not findable
}

}  // namespace
}  // namespace fathom
