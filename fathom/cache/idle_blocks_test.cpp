// engine.md R-20: least recently used first, floors, time to live.
#include "fathom/cache/idle_blocks.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

namespace fathom {
namespace {

using std::chrono::seconds;

TEST(IdleBlocks, TheLongestUnusedGoesFirstWhosever) {
  IdleBlocks idle(9);
  const int32_t other = idle.add_account({});
  idle.count(0, 5);
  idle.count(other, 4);
  for (const auto& [id, account] : {std::pair{3, 0}, {7, other}, {1, 0}, {2, other}}) idle.push(id, account);
  std::vector<int32_t> order;
  for (const auto& [id, account] : {std::pair{3, 0}, {7, other}, {1, 0}, {2, other}}) {
    order.push_back(idle.oldest());
    EXPECT_EQ(idle.oldest(), id);
    idle.remove(id, account);
    idle.count(account, -1);
  }
  EXPECT_EQ(idle.oldest(), 0);
}

TEST(IdleBlocks, AnAccountAtItsFloorIsSparedWhileOthersHaveSomething) {
  IdleBlocks idle(9);
  const int32_t quiet = idle.add_account({.floor_blocks = 2});
  idle.count(quiet, 3);
  idle.count(0, 2);
  for (const int32_t id : {1, 2, 3}) idle.push(id, quiet);
  for (const int32_t id : {4, 5}) idle.push(id, 0);
  const auto evict = [&](int32_t account) {
    const int32_t id = idle.oldest();
    idle.remove(id, account);
    idle.count(account, -1);
    return id;
  };
  EXPECT_EQ(evict(quiet), 1);  // three are more than its floor
  EXPECT_EQ(evict(0), 4);
  EXPECT_EQ(evict(0), 5);
  EXPECT_EQ(evict(quiet), 2);  // running work needs it, and nobody else has any
  idle.set_limits(quiet, {});
  EXPECT_EQ(idle.oldest(), 3);
}

TEST(IdleBlocks, ABlockIsExpiredAfterItsTimeToLive) {
  IdleBlocks idle(3);
  const int32_t account = idle.add_account({.time_to_live = seconds(60)});
  idle.count(account, 2);
  idle.count(0, 1);
  idle.advance(seconds(1'000));
  idle.push(1, account);
  idle.push(3, 0);
  idle.advance(seconds(1'030));
  idle.push(2, account);
  idle.advance(seconds(1'060));
  EXPECT_EQ(idle.expired(account), 0);
  idle.advance(seconds(1'061));
  EXPECT_EQ(idle.expired(account), 1);
  idle.advance(seconds(10));  // time never goes back
  EXPECT_EQ(idle.expired(account), 1);
  idle.remove(1, account);
  EXPECT_EQ(idle.expired(account), 0);
  idle.advance(seconds(1'000'000));
  EXPECT_EQ(idle.expired(0), 0);  // no limit
}

// Against a plain list: the first one of an account above its floor, else the first one.
TEST(IdleBlocks, ItsChoiceIsThatOfAPlainList) {
  constexpr int32_t kBlocks = 60;
  std::mt19937 random(5);
  IdleBlocks idle(kBlocks);
  std::vector<AccountLimits> limits(1);
  for (int account = 1; account < 12; ++account) {
    limits.push_back({.floor_blocks = int32_t(random() % 6)});
    idle.add_account(limits.back());
  }
  std::vector<std::pair<int32_t, int32_t>> list;  // block, account
  std::vector<int32_t> state(kBlocks + 1, -1);
  std::vector<int32_t> findable(limits.size(), 0);
  for (int step = 0; step < 50'000; ++step) {
    const int32_t id = int32_t(random() % kBlocks) + 1;
    const int32_t account = int32_t(random() % limits.size());
    if (state[size_t(id)] < 0) {
      list.push_back({id, account});
      state[size_t(id)] = account;
      ++findable[size_t(account)];
      idle.count(account, 1);
      idle.push(id, account);
    } else {
      const int32_t owner = state[size_t(id)];
      std::erase(list, std::pair{id, owner});
      state[size_t(id)] = -1;
      --findable[size_t(owner)];
      idle.remove(id, owner);
      idle.count(owner, -1);
    }
    int32_t want = list.empty() ? 0 : list[0].first;
    for (const auto& [block, owner] : list) {
      if (findable[size_t(owner)] <= limits[size_t(owner)].floor_blocks) continue;
      want = block;
      break;
    }
    ASSERT_EQ(idle.oldest(), want) << step;
    if (step % 100 == 0) {
      const auto right = idle.verify(state);
      ASSERT_TRUE(right.ok()) << to_string(right.error());
    }
  }
}

TEST(IdleBlocks, ATenantHasOneAccountAsLongAsItIsUsed) {
  IdleBlocks idle(9);
  EXPECT_EQ(idle.open_account("").account, 0);
  const auto first = idle.open_account("a");
  EXPECT_TRUE(first.fresh);
  EXPECT_NE(first.account, 0);
  const auto again = idle.open_account("a");
  EXPECT_EQ(again.account, first.account);
  EXPECT_FALSE(again.fresh);
  EXPECT_NE(idle.open_account("b").account, first.account);
  idle.close_account(first.account);
  idle.close_account(first.account);
  EXPECT_EQ(idle.open_account("a").account, first.account) << "remembered for a while";
}

// Hostile clients make up a tenant a request: 100,000 names leave no more accounts than are remembered.
TEST(IdleBlocks, MadeUpTenantsLeaveABoundedNumberOfAccounts) {
  IdleBlocks idle(9);
  const int32_t good = idle.open_account("held").account;
  const int32_t cached = idle.open_account("has a block").account;
  idle.count(cached, 1);
  idle.push(3, cached);
  idle.close_account(cached);
  int64_t fresh = 0;
  for (int i = 0; i < 100'000; ++i) {
    const auto one = idle.open_account("tenant " + std::to_string(i));
    ASSERT_TRUE(one.account != good && one.account != cached);
    fresh += one.fresh;
    idle.close_account(one.account);
  }
  EXPECT_EQ(fresh, 100'000);
  EXPECT_LE(idle.accounts(), IdleBlocks::kRememberedAccounts + 4);
  EXPECT_EQ(idle.open_account("has a block").account, cached);
  idle.close_account(cached);
  idle.remove(3, cached);
  idle.count(cached, -1);
  for (int i = 0; i < 2 * IdleBlocks::kRememberedAccounts; ++i) {
    idle.close_account(idle.open_account("other " + std::to_string(i)).account);
  }
  const auto later = idle.open_account("has a block");
  EXPECT_TRUE(later.fresh) << "its block is gone, and many came since";
  std::vector<int32_t> none(10, -1);
  EXPECT_TRUE(idle.verify(none).ok());
}

// The oldest unused account goes first, so that a tenant between two requests is the last to lose its history.
TEST(IdleBlocks, TheLongestUnusedAccountGoesFirst) {
  IdleBlocks idle(1);
  const int32_t remembered = IdleBlocks::kRememberedAccounts;
  std::vector<int32_t> accounts;
  for (int i = 0; i < remembered; ++i) accounts.push_back(idle.open_account("t" + std::to_string(i)).account);
  for (const int32_t account : accounts) idle.close_account(account);
  EXPECT_FALSE(idle.open_account("t0").fresh);
  idle.close_account(accounts[0]);  // now the last one
  EXPECT_EQ(idle.open_account("new").account, accounts[1]);
  EXPECT_FALSE(idle.open_account("t0").fresh);
}

}  // namespace
}  // namespace fathom
