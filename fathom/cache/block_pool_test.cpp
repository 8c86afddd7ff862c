#include "fathom/cache/block_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace fathom {
namespace {

TEST(BlockPool, BlocksAreGivenLeastRecentlyFreedFirst) {
  BlockPool pool(4);
  for (int32_t id = 1; id <= 4; ++id) EXPECT_EQ(pool.take(), id);
  for (const int32_t id : {3, 1, 4}) pool.release(id);
  for (const int32_t id : {3, 1, 4}) EXPECT_EQ(pool.take(), id);
}

TEST(BlockPool, AnEmptyPoolGivesNothing) {
  BlockPool none(0);
  EXPECT_EQ(none.take(), std::nullopt);
  EXPECT_TRUE(none.verify({}).ok());
  BlockPool one(1);
  EXPECT_EQ(one.take(), 1);
  EXPECT_EQ(one.take(), std::nullopt);
  one.release(1);
  EXPECT_EQ(one.take(), 1);
}

TEST(BlockPool, ASharedBlockIsFreedByItsLastUser) {
  BlockPool pool(2);
  const int32_t id = *pool.take();
  pool.add_reference(id);
  pool.release(id);
  EXPECT_EQ(pool.references(id), 1);
  EXPECT_EQ(pool.free_count(), 1);
  pool.release(id);
  EXPECT_EQ(pool.free_count(), 2);
}

TEST(BlockPool, VerifyNamesTheBlockThatIsWrong) {
  BlockPool pool(3);
  const int32_t id = *pool.take();
  const std::vector<int32_t> right = {id}, twice = {id, id}, free = {id, 2}, unknown = {id, 9}, none = {id, 0};
  EXPECT_TRUE(pool.verify(right).ok());
  for (const auto& users : {std::vector<int32_t>{}, twice, free, unknown, none}) {
    const auto result = pool.verify(users);
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code, ErrorCode::failed);
  }
  EXPECT_NE(pool.verify(twice).error().where.find("1"), std::string::npos);
  EXPECT_NE(pool.verify(unknown).error().where.find("9"), std::string::npos);
}

TEST(BlockPoolDeathTest, UsingABlockThatIsNotInUseStopsTheProgram) {
  BlockPool pool(2);
  EXPECT_DEATH(pool.release(1), "in use");
  EXPECT_DEATH(pool.add_reference(2), "in use");
  EXPECT_DEATH(pool.release(0), "in use");
}

// references equal users, the free list is whole and acyclic, no block is in two states; after every operation.
TEST(BlockPool, AMillionRandomOperationsKeepEveryInvariant) {
  constexpr int32_t kBlocks = 24;  // small, so that the pool runs empty and full often and verify() is cheap
  std::mt19937 random(1);
  BlockPool pool(kBlocks);
  std::vector<int32_t> users;  // one entry a reference
  int64_t taken = 0, refused = 0;
  int bias = 50;
  for (int step = 0; step < 1'000'000; ++step) {
    if (step % 500 == 0) bias = int(random() % 81) + 10;  // phases of growth and of decline
    if (int(random() % 100) < bias) {
      if (users.empty() || random() % 3 != 0) {
        const auto id = pool.take();
        ASSERT_EQ(id.has_value(), std::any_of(&users, &users + 1,
                                              [&](const auto& all) {
                                                for (int32_t b = 1; b <= kBlocks; ++b) {
                                                  if (std::find(all.begin(), all.end(), b) == all.end()) return true;
                                                }
                                                return false;
                                              }))
            << "at step " << step;
        if (id) {
          ASSERT_EQ(std::find(users.begin(), users.end(), *id), users.end()) << "given twice at step " << step;
          users.push_back(*id);
          ++taken;
        } else {
          ++refused;
        }
      } else if (users.size() < 200) {
        const int32_t id = users[random() % users.size()];
        pool.add_reference(id);
        users.push_back(id);
      }
    } else if (!users.empty()) {
      const size_t at = random() % users.size();
      pool.release(users[at]);
      users[at] = users.back();
      users.pop_back();
    }
    const auto state = pool.verify(users);
    ASSERT_TRUE(state.ok()) << to_string(state.error()) << " at step " << step;
  }
  EXPECT_GT(taken, 100'000);
  EXPECT_GT(refused, 10'000);  // the empty pool has been seen
}

}  // namespace
}  // namespace fathom
