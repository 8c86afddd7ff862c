#include "fathom/cache/sequence_cache.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace fathom {
namespace {

std::vector<int32_t> block_users(const std::vector<SequenceCache>& all) {
  std::vector<int32_t> users;
  for (const auto& cache : all) users.insert(users.end(), cache.blocks.begin(), cache.blocks.end());
  return users;
}

std::vector<int32_t> slot_users(const std::vector<SequenceCache>& all) {
  std::vector<int32_t> users;
  for (const auto& cache : all) {
    if (cache.slot != 0) users.push_back(cache.slot);
  }
  return users;
}

TEST(SequenceCache, BlocksCoverTheTokens) {
  // 0 and 1: the smallest; 127, 128, 129: around the border of a block.
  const std::pair<int64_t, int64_t> table[] = {{0, 0}, {1, 1}, {127, 1}, {128, 1}, {129, 2}, {1'048'576, 8'192}};
  for (const auto& [tokens, blocks] : table) EXPECT_EQ(blocks_for(tokens), blocks) << tokens;
}

TEST(SequenceCache, ReserveTakesWhatIsMissingAndTruncateGivesItBack) {
  CachePools pools(10, 2);
  SequenceCache cache;
  ASSERT_TRUE(reserve(pools, cache, 300).ok());
  EXPECT_EQ(cache.blocks.size(), 3u);
  EXPECT_NE(cache.slot, 0);
  const auto before = cache.blocks;
  ASSERT_TRUE(reserve(pools, cache, 384).ok());  // still three blocks
  EXPECT_EQ(cache.blocks, before);
  ASSERT_TRUE(reserve(pools, cache, 100).ok());  // never shrinks
  EXPECT_EQ(cache.blocks, before);
  truncate(pools, cache, 129);  // the second block is partly used and stays
  EXPECT_EQ(cache.blocks.size(), 2u);
  EXPECT_EQ(pools.blocks.free_count(), 8);
  EXPECT_NE(cache.slot, 0);
  free_sequence(pools, cache);
  EXPECT_EQ(pools.blocks.free_count(), 10);
  EXPECT_EQ(pools.slots.free_count(), 2);
  EXPECT_EQ(cache.slot, 0);
}

TEST(SequenceCache, TheEndOfASequenceIsReusedBeforeItsBeginning) {
  CachePools pools(3, 1);
  SequenceCache cache;
  ASSERT_TRUE(reserve(pools, cache, 3 * 128).ok());
  const auto blocks = cache.blocks;
  truncate(pools, cache, 0);
  EXPECT_EQ(pools.blocks.take(), blocks[2]);
  EXPECT_EQ(pools.blocks.take(), blocks[1]);
  EXPECT_EQ(pools.blocks.take(), blocks[0]);
}

TEST(SequenceCache, ARefusedReservationChangesNothing) {
  CachePools pools(4, 1);
  SequenceCache first, second;
  ASSERT_TRUE(reserve(pools, first, 300).ok());
  const auto blocks = reserve(pools, second, 200);  // needs 2, has 1
  ASSERT_FALSE(blocks.ok());
  EXPECT_EQ(blocks.error().code, ErrorCode::out_of_memory);
  EXPECT_NE(blocks.error().message.find("1 more blocks"), std::string::npos) << blocks.error().message;
  const auto slot = reserve(pools, second, 100);  // a block is there, a slot is not
  ASSERT_FALSE(slot.ok());
  EXPECT_NE(slot.error().message.find("state slots"), std::string::npos) << slot.error().message;
  EXPECT_TRUE(second.blocks.empty());
  EXPECT_EQ(second.slot, 0);
  EXPECT_TRUE(pools.blocks.verify(block_users({first})).ok());
  EXPECT_TRUE(pools.slots.verify(slot_users({first})).ok());
}

TEST(SequenceCache, AForkSharesFullBlocksAndCopiesThePartlyFilledOne) {
  CachePools pools(10, 3);
  SequenceCache parent;
  ASSERT_TRUE(reserve(pools, parent, 300).ok());
  auto partial = fork(pools, parent, 300);
  ASSERT_TRUE(partial.ok());
  EXPECT_EQ(partial->cache.blocks[0], parent.blocks[0]);
  EXPECT_EQ(partial->cache.blocks[1], parent.blocks[1]);
  EXPECT_NE(partial->cache.blocks[2], parent.blocks[2]);
  ASSERT_EQ(partial->blocks.size(), 1u);
  EXPECT_EQ(partial->blocks[0], (BlockCopy{parent.blocks[2], partial->cache.blocks[2]}));
  EXPECT_EQ(partial->slot, (BlockCopy{parent.slot, partial->cache.slot}));
  auto aligned = fork(pools, parent, 256);
  ASSERT_TRUE(aligned.ok());
  EXPECT_TRUE(aligned->blocks.empty());
  EXPECT_EQ(aligned->cache.blocks.size(), 2u);
  EXPECT_EQ(pools.blocks.references(parent.blocks[0]), 3);
  free_sequence(pools, parent);
  EXPECT_EQ(pools.blocks.references(aligned->cache.blocks[0]), 2);  // the children keep it
  const auto refused = fork(pools, aligned->cache, 0);
  EXPECT_TRUE(refused.ok());
}

TEST(SequenceCache, ARefusedForkChangesNothing) {
  CachePools no_block(2, 2), no_slot(4, 1);
  SequenceCache parent;
  ASSERT_TRUE(reserve(no_block, parent, 200).ok());
  EXPECT_FALSE(fork(no_block, parent, 200).ok());
  EXPECT_TRUE(no_block.blocks.verify(block_users({parent})).ok());
  EXPECT_TRUE(no_block.slots.verify(slot_users({parent})).ok());
  SequenceCache other;
  ASSERT_TRUE(reserve(no_slot, other, 200).ok());
  EXPECT_FALSE(fork(no_slot, other, 200).ok());
  EXPECT_TRUE(no_slot.blocks.verify(block_users({other})).ok());
}

// many sequences grow, shrink, fork and end; each must read back exactly what it wrote, whoever shares its
// blocks. `memory` stands for the bytes: what token of a block holds which value.
TEST(SequenceCache, SequencesNeverSeeEachOthersWrites) {
  constexpr int32_t kBlocks = 40, kSlots = 12;
  std::mt19937 random(2);
  CachePools pools(kBlocks, kSlots);
  std::vector<std::vector<int>> memory(kBlocks + 1, std::vector<int>(kBlockTokens));
  struct Live {
    SequenceCache cache;
    std::vector<int> content;
  };
  std::vector<Live> live;
  int next_value = 1;
  int64_t forks = 0, refusals = 0;
  for (int step = 0; step < 20'000; ++step) {
    const int what = int(random() % 10);
    if (live.empty() || what == 0) {
      live.push_back({});
    } else {
      Live& at = live[random() % live.size()];
      if (what <= 5) {  // append
        const int64_t more = random() % 90 + 1;
        const int64_t size = int64_t(at.content.size());
        if (reserve(pools, at.cache, size + more).ok()) {
          for (int64_t t = size; t < size + more; ++t) {
            const int32_t block = at.cache.blocks[size_t(t / kBlockTokens)];
            ASSERT_EQ(pools.blocks.references(block), 1) << "a shared block is written";
            at.content.push_back(next_value);
            memory[size_t(block)][size_t(t % kBlockTokens)] = next_value++;
          }
        } else {
          ++refusals;
        }
      } else if (what <= 7 && at.cache.slot != 0) {  // fork at the end
        auto child = fork(pools, at.cache, int64_t(at.content.size()));
        if (child) {
          for (const BlockCopy& copy : child->blocks) memory[size_t(copy.to)] = memory[size_t(copy.from)];
          live.push_back({child->cache, at.content});
          ++forks;
        }
      } else if (what == 8) {  // take blocks back, of what was never written
        truncate(pools, at.cache, int64_t(at.content.size()));
      } else {
        free_sequence(pools, at.cache);
        std::swap(at, live.back());
        live.pop_back();
      }
    }
    std::vector<SequenceCache> caches;
    for (const Live& one : live) caches.push_back(one.cache);
    ASSERT_TRUE(pools.blocks.verify(block_users(caches)).ok()) << "at step " << step;
    ASSERT_TRUE(pools.slots.verify(slot_users(caches)).ok()) << "at step " << step;
    if (step % 16 != 0) continue;
    for (const Live& one : live) {
      for (size_t t = 0; t < one.content.size(); ++t) {
        ASSERT_EQ(memory[size_t(one.cache.blocks[t / kBlockTokens])][t % kBlockTokens], one.content[t]);
      }
    }
  }
  EXPECT_GT(forks, 500);
  EXPECT_GT(refusals, 500);
}

}  // namespace
}  // namespace fathom
