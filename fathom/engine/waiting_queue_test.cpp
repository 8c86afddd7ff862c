#include "fathom/engine/waiting_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <vector>

#include "fathom/base/philox.h"

namespace fathom {
namespace {

using ::testing::ElementsAre;

Waiting one(SequenceId id, int priority = 0, uint32_t tenant = 0, double arrived = 0, int64_t rows = 100) {
  return {id, priority, tenant, arrived, {}, rows};
}

std::vector<SequenceId> order(WaitingQueue& queue, double now) {
  const auto ids = queue.order(now);
  return {ids.begin(), ids.end()};
}

TEST(WaitingQueue, KeepsTheOrderOfArrivalWithinAClass) {
  WaitingQueue queue;
  for (SequenceId id : {3u, 1u, 2u}) queue.push(one(id));
  EXPECT_THAT(order(queue, 0), ElementsAre(3, 1, 2));
  EXPECT_TRUE(queue.remove(1));
  EXPECT_FALSE(queue.remove(1));
  EXPECT_THAT(order(queue, 0), ElementsAre(3, 2));
}

TEST(WaitingQueue, ServesHigherClassesFirst) {
  WaitingQueue queue;
  queue.push(one(1, -1)), queue.push(one(2, 0)), queue.push(one(3, 7)), queue.push(one(4, 0));
  EXPECT_THAT(order(queue, 0), ElementsAre(3, 2, 4, 1));
}

TEST(WaitingQueue, CountsAgeAsClasses) {
  WaitingQueue queue({.ageing_seconds = 10});
  queue.push(one(1, 0, 0, 0.0));
  queue.push(one(2, 2, 0, 15.0));
  EXPECT_THAT(order(queue, 19.0), ElementsAre(2, 1));  // class 1 against 2
  EXPECT_THAT(order(queue, 24.9), ElementsAre(1, 2)) << "equal class: due first";
}

TEST(WaitingQueue, NobodyWaitsForEverBehindAStreamOfHigherClasses) {
  WaitingQueue queue({.ageing_seconds = 10});
  queue.push(one(1, 0));
  SequenceId next = 2;
  for (double now = 0; now < 1000; now += 1) {
    queue.push(one(next++, 3, 0, now));
    const SequenceId first = queue.order(now)[0];
    queue.remove(first);
    if (first == 1) {
      EXPECT_LE(now, 41);
      return;
    }
  }
  FAIL() << "it starved";
}

TEST(WaitingQueue, ServesEarlierTargetsFirst) {
  WaitingQueue queue({.patience_seconds = 0.5});
  queue.push(one(1));
  queue.push({2, 0, 0, 0.0, 0.2, 100});
  queue.push({3, 0, 0, 0.0, 3.0, 100});
  EXPECT_THAT(order(queue, 0), ElementsAre(2, 1, 3));
}

TEST(WaitingQueue, SharesRowsFairlyBetweenTenants) {
  WaitingQueue queue;
  for (SequenceId id = 0; id < 10; ++id) queue.push(one(id, 0, 1, 0, 100));   // tenant 1 floods
  for (SequenceId id = 10; id < 12; ++id) queue.push(one(id, 0, 2, 1, 100));  // tenant 2 comes later
  EXPECT_THAT(order(queue, 1), ElementsAre(0, 10, 1, 11, 2, 3, 4, 5, 6, 7, 8, 9));
  std::map<uint32_t, int64_t> rows;
  for (int i = 0; i < 4; ++i) {
    const SequenceId id = queue.order(1)[0];
    const Waiting waiting = *queue.find(id);
    queue.charge(waiting.tenant, waiting.rows);
    rows[waiting.tenant] += waiting.rows;
    queue.remove(id);
  }
  EXPECT_EQ(rows[1], rows[2]);
}

TEST(WaitingQueue, ATenantHasNoClaimToTheTimeWhenItWasAway) {
  WaitingQueue queue;
  queue.push(one(1, 0, 1));
  queue.charge(1, 1'000'000);
  queue.push(one(2, 0, 2)), queue.push(one(3, 0, 2)), queue.push(one(4, 0, 1));
  EXPECT_THAT(order(queue, 0), ElementsAre(1, 2, 3, 4)) << "not 2, 3, 1, 4";
}

TEST(WaitingQueue, LooksOnlySoFarAhead) {
  WaitingQueue queue({.look_ahead = 64});
  for (SequenceId id = 0; id < 1000; ++id) queue.push(one(id));
  EXPECT_EQ(queue.order(0).size(), 64u);
  EXPECT_EQ(queue.size(), 1000u);
  EXPECT_EQ(queue.earliest_due(), 0.5);
  queue.push({1000, 0, 0, 0.0, 0.25, 1});
  EXPECT_EQ(queue.earliest_due(), 0.25);
}

TEST(WaitingQueue, RandomTrafficIsServedWhollyAndWithoutStarving) {
  WaitingQueue queue({.ageing_seconds = 5});
  auto random = [n = 0u](uint32_t below) mutable { return philox(5, {n++, 0, 0, 0})[0] % below; };
  std::map<SequenceId, double> arrived;
  SequenceId next = 1;
  double longest = 0, now = 0;
  for (int step = 0; step < 20000; ++step, now += 0.01) {
    if (step < 15000 && random(100) < 95) {
      queue.push(one(next, int(random(4)), random(5), now, 1 + random(4000)));
      arrived[next++] = now;
    }
    if (queue.empty()) continue;
    const SequenceId id = queue.order(now)[0];
    queue.charge(queue.find(id)->tenant, queue.find(id)->rows);
    longest = std::max(longest, now - arrived.at(id));
    arrived.erase(id);
    queue.remove(id);
  }
  EXPECT_TRUE(queue.empty());
  EXPECT_TRUE(arrived.empty());
  EXPECT_LT(longest, 30) << "seconds";
}

TEST(WaitingQueue, AForgottenTenantHasBeenGivenNothing) {
  WaitingQueue queue;
  queue.charge(1, 1'000);
  queue.charge(2, 500);
  queue.push(one(1, 0, 2)), queue.push(one(2, 0, 1));
  EXPECT_THAT(order(queue, 0), ElementsAre(1, 2));
  queue.remove(2);
  queue.forget(1);
  queue.push(one(3, 0, 1, 0.0, 100));  // level with tenant 2, due after it
  queue.push(one(4, 0, 2));
  EXPECT_THAT(order(queue, 0), ElementsAre(1, 3, 4));
}

// Against the definition: whoever is first among all lanes, again and again.
TEST(WaitingQueue, ItsOrderIsThatOfAPlainSearch) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    const auto random = [&](uint32_t i, uint32_t what, uint32_t below) {
      return philox(seed, {i, what, 0, 0})[0] % below;
    };
    WaitingQueue queue({.ageing_seconds = 10, .patience_seconds = 0.5, .look_ahead = 40});
    std::map<uint32_t, int64_t> given;
    std::vector<Waiting> left;
    for (uint32_t tenant = 0; tenant < 5; ++tenant) queue.charge(tenant, given[tenant] = random(tenant, 0, 400));
    for (uint32_t i = 0; i < 70; ++i) {
      left.push_back(one(i + 1, int(random(i, 1, 3)), random(i, 2, 5), random(i, 3, 30), 10 + random(i, 4, 200)));
      const bool away = std::none_of(left.begin(), left.end() - 1,
                                     [&](const Waiting& other) { return other.tenant == left.back().tenant; });
      if (away && i > 0) {
        int64_t least = 1 << 30;
        for (size_t k = 0; k < i; ++k) least = std::min(least, given[left[k].tenant]);
        given[left.back().tenant] = std::max(given[left.back().tenant], least);
      }
      queue.push(left.back());
    }
    const double now = 40;
    const auto rank = [&](const Waiting& w) { return w.priority + int64_t(std::floor((now - w.arrived) / 10)); };
    // Only the first of a lane may come: by due time within priority and tenant.
    const auto leads = [&](const Waiting& w) {
      return std::none_of(left.begin(), left.end(), [&](const Waiting& other) {
        return other.priority == w.priority && other.tenant == w.tenant &&
               std::pair(other.arrived, other.id) < std::pair(w.arrived, w.id);
      });
    };
    const auto found = order(queue, now);
    ASSERT_EQ(found.size(), 40u);
    for (const SequenceId id : found) {
      const Waiting* best = nullptr;
      for (const Waiting& w : left) {
        if (!leads(w)) continue;
        const auto key = [&](const Waiting& v) { return std::tuple(-rank(v), given[v.tenant], v.arrived, v.id); };
        if (best == nullptr || key(w) < key(*best)) best = &w;
      }
      ASSERT_EQ(id, best->id) << "seed " << seed;
      given[best->tenant] += best->rows;
      std::erase_if(left, [&](const Waiting& w) { return w.id == id; });
    }
  }
}

}  // namespace
}  // namespace fathom
