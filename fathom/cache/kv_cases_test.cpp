// The given cases of the area "KV cache & prefix", as far as they ask about bookkeeping in memory. kv-08 stands in
// model/memory_plan_test.cpp; kv-06 and kv-07 are about disk and transfers; what kv-01, kv-03 and kv-09 say of
// log-probabilities needs a model.
#include <gtest/gtest.h>

#include "fathom/cache/prefix_fixture.h"

namespace fathom {
namespace {

// kv-01: window state of another request. A slot is reused with whatever it held; no row may see it: every ring entry
// below the start is either invisible or restored.
TEST(KvCases, Kv01AWarmRequestSeesNoWindowOfAnother) {
  CachePools pools(400, 2);
  const int32_t root = pools.prefixes.open_root(root_of("tenant"), xxh3_key, 0);
  const auto p = tokens_from(0, 7'700), q = tokens_from(90'000, 5'000);
  TestRequest a = admit(pools, root, p);
  a.ids = a.ids + tokens_from(500'000, 24);
  ASSERT_TRUE(reserve(pools, a.cache, int64_t(a.ids.size())).ok());
  commit(pools, a);
  const int32_t slot_of_a = a.cache.slot;
  free_sequence(pools, a.cache);
  TestRequest b = admit(pools, root, q);
  EXPECT_NE(b.cache.slot, slot_of_a);  // another slot, as the case says
  commit(pools, b);
  free_sequence(pools, b.cache);
  TestRequest c = admit(pools, root, p);
  EXPECT_EQ(c.plan.hit, 7'680);
  EXPECT_FALSE(c.plan.restore_at);
  EXPECT_EQ(c.plan.valid_start(), c.plan.replay.start);             // no encoder window key below the first row it runs
  EXPECT_GE(c.plan.replay.first_decoder_cut, c.plan.replay.start);  // nor a decoder one
  EXPECT_GE(c.plan.replay.decoder_cut, c.plan.replay.start);
  EXPECT_EQ(c.plan.encoder_rows, 7'700 - 7'552);
}

// kv-02: hit rate of exactly zero. Speculation does not matter to what is committed: rounds of 1 or of 6 tokens.
TEST(KvCases, Kv02AHundredPromptsWithOnePrefixHitIt) {
  for (const int64_t tokens_a_round : {1, 6}) {
    CachePools pools(80, 4);
    const int32_t root = pools.prefixes.open_root(root_of("tenant"), xxh3_key, 0);
    for (int32_t i = 0; i < 100; ++i) {
      TestRequest request = admit(pools, root, tokens_from(0, 4'096) + tokens_from(10'000 + 50 * i, 50));
      EXPECT_EQ(request.plan.hit, i == 0 ? 0 : 4'096);  // the case asks for 3,968 at least
      for (int round = 0; round < 20; ++round) {
        request.ids = request.ids + tokens_from(-100 * i - 6 * round, tokens_a_round);
        ASSERT_TRUE(reserve(pools, request.cache, int64_t(request.ids.size()) + 5).ok());
        commit(pools, request);
        truncate(pools, request.cache, int64_t(request.ids.size()));
      }
      free_sequence(pools, request.cache);
    }
    EXPECT_EQ(pools.prefixes.total().hit_tokens[size_t(CacheTier::device)], 99 * 4'096);
    EXPECT_EQ(warning_of(pools.prefixes.total()), std::nullopt);
  }
  CachePools pools(80, 4);
  const int32_t root = pools.prefixes.open_root(root_of("tenant"), xxh3_key, 0);
  for (int32_t i = 0; i < 100; ++i) run_through(pools, root, tokens_from(-i, 1) + tokens_from(0, 4'096));
  EXPECT_EQ(pools.prefixes.total().hits, 0);
  EXPECT_TRUE(warning_of(pools.prefixes.total()).has_value());  // a date at the beginning of every prompt
}

// kv-03: the end token of turn 1 was generated and never run. Turn 2 contains it at the same position; the hit ends
// before it, and positions go on without a gap.
TEST(KvCases, Kv03TheEndTokenOfATurnIsNotInTheCacheUnlessItWasRun) {
  for (const int64_t prompt :
       {500, 510, 511, 512, 513}) {  // the end token falls before, on and behind a block's border
    CachePools pools(80, 4);
    const int32_t root = pools.prefixes.open_root(root_of("tenant"), xxh3_key, 0);
    TestRequest turn = admit(pools, root, tokens_from(0, prompt));
    turn.ids = turn.ids + tokens_from(70'000, 127) + std::vector<int32_t>{1};  // 1: the end token
    ASSERT_TRUE(reserve(pools, turn.cache, int64_t(turn.ids.size())).ok());
    commit(pools, turn);
    const int64_t run = int64_t(turn.ids.size()) - 1;
    free_sequence(pools, turn.cache);
    TestRequest next = admit(pools, root, turn.ids + tokens_from(80'000, 300));
    EXPECT_EQ(next.plan.hit, run / 128 * 128) << prompt;
    EXPECT_EQ(next.plan.replay.store_from, next.plan.hit);  // the first row that stores stands right behind the hit
    EXPECT_LE(next.plan.replay.start, next.plan.hit);
  }
}

// kv-04: isolation between tenants, in the device tier.
TEST(KvCases, Kv04TenantsFindOnlyTheirOwn) {
  CachePools pools(200, 4);
  const int32_t first = pools.prefixes.open_root(root_of("key 1"), xxh3_key, 0);
  const int32_t second = pools.prefixes.open_root(root_of("key 2"), xxh3_key, pools.blocks.idle().add_account({}));
  const auto p = tokens_from(0, 4'096);
  EXPECT_EQ(run_through(pools, first, p), 0);
  EXPECT_EQ(run_through(pools, second, p), 0);
  EXPECT_EQ(run_through(pools, first, p), 3'968);
  EXPECT_EQ(pools.prefixes.statistics(pools.prefixes.account_of(second)).hits, 0);
  EXPECT_EQ(pools.prefixes.statistics(pools.prefixes.account_of(first)).hits, 1);
  // After eviction there is nothing left of anybody.
  ASSERT_TRUE(make_room(pools, 200));
  EXPECT_EQ(run_through(pools, second, p), 0);
  EXPECT_EQ(run_through(pools, first, p), 0);
}

// kv-05: with the hash forced to a constant, nothing is found that was not there, and hits are 0.
TEST(KvCases, Kv05CollisionsAreNotTrusted) {
  CachePools pools(200, 4);
  const KeyHash constant = [](std::span<const uint8_t>) { return PrefixKey{}; };
  const int32_t mine = pools.prefixes.open_root(root_of("key 1"), constant, 0);
  const int32_t yours = pools.prefixes.open_root(root_of("key 2"), constant, 0);
  ASSERT_NE(mine, yours);
  for (int round = 0; round < 3; ++round) {
    for (const int32_t first : {0, 7'000, 300}) {
      EXPECT_EQ(run_through(pools, mine, tokens_from(first, 1'000)), 0);
      EXPECT_EQ(run_through(pools, yours, tokens_from(first, 1'000)), 0);
    }
    const auto state = verify(pools, {}, {});
    ASSERT_TRUE(state.ok()) << to_string(state.error());
  }
  EXPECT_EQ(pools.prefixes.total().hits, 0);
  EXPECT_GT(pools.prefixes.total().collisions, 0);
  EXPECT_LE(pools.prefixes.size(), 1);
  // The other tenant does not even find the one block that is there.
  PrefixChain chain = chain_of(yours);
  EXPECT_EQ(pools.prefixes.lookup(chain, tokens_from(0, 1'000), false).tokens(), 0);
}

// kv-09: prefixes around the sizes of blocks, cold and warm, with chunks of 512 and 4096: whatever is computed joins
// what was found without gap or overlap, and every stored position is stored once.
TEST(KvCases, Kv09WarmPrefixesJoinWithoutAGap) {
  for (const int64_t prefix : {0, 127, 128, 129, 1'023, 4'096, 21'000}) {
    for (const int64_t chunk : {512, 4'096}) {
      CachePools pools(400, 4);
      const int32_t root = pools.prefixes.open_root(root_of("tenant"), xxh3_key, 0);
      if (prefix > 0) run_through(pools, root, tokens_from(0, prefix));
      TestRequest warm = admit(pools, root, tokens_from(0, prefix) + tokens_from(100'000, 200));
      const int64_t found = (prefix == 0 ? 0 : prefix) / 128 * 128;
      EXPECT_EQ(warm.plan.hit, found <= 128 ? 0 : found) << prefix;
      int64_t stored = warm.plan.hit;
      for (int64_t first = warm.plan.replay.start; first < warm.prompt; first += chunk) {
        for (int64_t p = first; p < std::min(first + chunk, warm.prompt); ++p) {
          if (p < warm.plan.replay.store_from) continue;
          ASSERT_EQ(p, stored);
          ASSERT_TRUE(pools.blocks.writable(warm.cache.blocks[size_t(p / 128)])) << "a shared block is written";
          ++stored;
        }
      }
      EXPECT_EQ(stored, warm.prompt);
    }
  }
}

}  // namespace
}  // namespace fathom
