// Everything about the cache at once, at random: admissions with hits and snapshots, prompt pieces, rounds with
// rejected rows, publication, branches, truncation, pins, eviction, age. The bytes are played by `memory_`: each
// position of a block holds a hash of the root and of all ids up to it, so whoever reads a block that is not his
// notices. engine.md. FATHOM_LONG=1 runs ten million operations instead of one.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "fathom/base/test_size.h"
#include "fathom/cache/prefix_fixture.h"

namespace fathom {
namespace {

using std::chrono::seconds;

constexpr int32_t kBlocks = 36, kSlots = 10;

struct Live {
  TestRequest request;
  std::vector<uint64_t> truth;  // of each id
  int64_t computed = 0;         // positions [0, computed) have been run
};

class RandomCache {
 public:
  explicit RandomCache(uint32_t seed) : random_(seed) {
    for (const AccountLimits limits : {AccountLimits{}, {.floor_blocks = 6}, {4, seconds(12)}}) {
      accounts_.push_back(pools_.blocks.idle().add_account(limits));
    }
    for (int32_t i = 0; i < 5; ++i) roots_.push_back(open(i));
  }

  void step() {
    switch (below(16)) {
      case 0:
      case 1: admit_one(); break;
      case 2:
      case 3:
      case 4:
      case 5:
      case 6: run_one(); break;
      case 7:
      case 8: publish_one(); break;
      case 9: fork_one(); break;
      case 10: truncate_one(); break;
      case 11: end_one(); break;
      case 12: pin_or_unpin(); break;
      case 13: snapshot_one(); break;
      case 14: release_displaced(); break;
      default: pass_time(); break;
    }
  }

  Result<void> check_all() const {
    std::vector<int32_t> blocks = displaced_, slots;
    const auto add = [&](const std::vector<int32_t>& more) { blocks.insert(blocks.end(), more.begin(), more.end()); };
    for (const Live& live : live_) {
      add(live.request.cache.blocks);
      if (live.request.cache.slot != 0) slots.push_back(live.request.cache.slot);
    }
    for (const PrefixPin& one : pins_) add(one.blocks);
    if (auto state = verify(pools_, blocks, slots); !state) return state;
    return snapshots_.verify();
  }

  /// Every live sequence reads back what it is.
  bool all_read_right() const {
    for (const Live& live : live_) {
      for (int64_t p = 0; p < std::max(live.computed, live.request.plan.hit); ++p) {
        if (p < int64_t(live.truth.size()) && place(live, p) != live.truth[size_t(p)]) return false;
      }
    }
    return true;
  }

  void end_all() {
    while (!live_.empty()) end_one();
    for (PrefixPin& one : pins_) unpin(pools_, one);
    pins_.clear();
    for (const int32_t block : displaced_) pools_.blocks.release(block);
    displaced_.clear();
  }

  const CachePools& pools() const { return pools_; }
  const SnapshotStore& snapshots() const { return snapshots_; }

  int64_t hits = 0, restored = 0, refused = 0, forks = 0, copies = 0, pinned = 0, wrong = 0;

 private:
  uint32_t below(uint32_t end) { return uint32_t(random_() % end); }
  int32_t open(int32_t number) {
    const auto replay = number % 2 == 0 ? ReplayClass::bounded : ReplayClass::exact;
    return pools_.prefixes.open_root(root_of("salt " + std::to_string(number / 2), replay), key_hash_of(number == 4),
                                     accounts_[size_t(number) % accounts_.size()]);
  }
  Live* any() { return live_.empty() ? nullptr : &live_[below(uint32_t(live_.size()))]; }
  uint64_t& place(const Live& live, int64_t p) {
    return memory_[size_t(live.request.cache.blocks[size_t(p / kBlockTokens)])][size_t(p % kBlockTokens)];
  }
  uint64_t place(const Live& live, int64_t p) const { return const_cast<RandomCache*>(this)->place(live, p); }

  void add_id(Live& live, int32_t id) {
    const uint64_t before = live.truth.empty() ? uint64_t(live.request.chain.root) : live.truth.back();
    live.truth.push_back((before ^ uint64_t(uint32_t(id))) * 0x9E3779B97F4A7C15u + 1);
    live.request.ids.push_back(id);
  }
  // Few different blocks at each place, so that prompts share beginnings.
  std::vector<int32_t> any_prompt() {
    std::vector<int32_t> ids;
    const int64_t length = 1 + below(1'000);
    int32_t variant = 0;
    for (int64_t p = 0; p < length; ++p) {
      if (p % kBlockTokens == 0) variant = below(4) == 0 ? 1 : 0;
      ids.push_back(int32_t(p) + 10'000 * variant);
    }
    return ids;
  }

  void admit_one() {
    if (int32_t(live_.size()) == kSlots) return;
    const size_t which = below(uint32_t(roots_.size()));
    Live live;
    TestRequest& request = live.request;
    request.chain.root = roots_[which];
    for (const int32_t id : any_prompt()) add_id(live, id);
    request.prompt = int64_t(request.ids.size());
    const bool exact = pools_.prefixes.exact_root(request.chain.root);
    const ReplayShape shape = exact ? ReplayShape{32, 4, 3, 3} : kFlashShape;
    const ReplayMode mode = exact ? ReplayMode::halo : ReplayMode::compact;
    const PrefixHit hit = pools_.prefixes.lookup(request.chain, request.ids, exact);
    const auto range = useful_snapshots(shape, mode, request.prompt, hit.tokens());
    const auto found = snapshots_.latest(pools_.prefixes, request.chain, request.ids, range, exact);
    if (found) {
      uint64_t held = 0;
      std::memcpy(&held, found->bytes.data(), sizeof held);
      wrong += held != live.truth[size_t(found->position) - 1];
      ++restored;
    }
    request.plan =
        plan_prefill(shape, mode, request.prompt, hit.tokens(), found ? std::optional(found->position) : std::nullopt);
    attach(pools_, request.cache, request.chain, hit, request.plan, request.prompt, found ? found->seams : 0);
    for (int64_t p = 0; p < request.plan.hit; ++p) wrong += place(live, p) != live.truth[size_t(p)];
    hits += request.plan.hit > 0;
    live.computed = request.plan.replay.start;
    if (!reserve(pools_, request.cache, std::max<int64_t>(1, request.plan.hit)).ok()) {
      ++refused;
      free_sequence(pools_, request.cache);
      return;
    }
    live_.push_back(std::move(live));
  }

  void run_one() {
    Live* live = any();
    if (!live) return;
    TestRequest& request = live->request;
    int64_t kept = 0;
    const int64_t first = live->computed;
    int64_t end = 0;
    if (first < request.prompt) {
      end = kept = std::min<int64_t>(request.prompt, first + 1 + below(400));
    } else {
      const int64_t rows = 1 + below(6);
      end = first + rows;
      kept = first + 1 + below(uint32_t(rows));
    }
    if (!reserve(pools_, request.cache, end).ok()) {
      ++refused;
      return;
    }
    while (int64_t(request.ids.size()) <= kept) add_id(*live, int32_t(below(3)));
    for (int64_t p = std::max(first, request.plan.replay.store_from); p < end; ++p) {
      wrong += !pools_.blocks.writable(request.cache.blocks[size_t(p / kBlockTokens)]);
      place(*live, p) = p < kept ? live->truth[size_t(p)] : 0;  // a rejected draft leaves what it wrote
    }
    live->computed = kept;
  }

  void publish_one() {
    if (Live* live = any()) publish_now(*live);
  }
  // Replayed rows are below what was found; before they are over nothing new is there.
  void publish_now(Live& live) {
    publish(pools_, live.request.cache, live.request.chain, live.request.ids,
            std::max(live.computed, live.request.plan.hit), displaced_);
  }

  void fork_one() {
    Live* parent = any();
    if (!parent || parent->computed < parent->request.prompt || int32_t(live_.size()) == kSlots) return;
    const int64_t at = parent->computed - below(2) * below(uint32_t(parent->computed - parent->request.prompt + 1));
    if (below(4) != 0) publish_now(*parent);  // as one should
    auto made = fork(pools_, parent->request.cache, at);
    if (!made) {
      ++refused;
      return;
    }
    Live child = *parent;
    child.request.cache = made->cache;
    truncate_chain(child.request.chain, at);
    child.computed = at;
    child.request.ids.resize(size_t(at));
    child.truth.resize(size_t(at));
    for (const BlockCopy& copy : made->blocks) memory_[size_t(copy.to)] = memory_[size_t(copy.from)];
    add_id(child, int32_t(below(3)));
    live_.push_back(std::move(child));
    ++forks;
  }

  void truncate_one() {
    Live* live = any();
    if (!live || live->computed < live->request.prompt) return;
    const int64_t at =
        live->computed - below(uint32_t(std::min<int64_t>(live->computed - live->request.prompt + 1, 300)));
    truncate(pools_, live->request.cache, at);
    const auto copy = make_writable(pools_, live->request.cache, at);
    truncate_chain(live->request.chain, at);
    live->computed = at;
    live->request.ids.resize(size_t(at));
    live->truth.resize(size_t(at));
    if (!copy) {  // no room to copy: the request ends, as one that was preempted
      ++refused;
      end(*live);
      return;
    }
    if (*copy) memory_[size_t((*copy)->to)] = memory_[size_t((*copy)->from)];
    copies += copy->has_value();
    add_id(*live, int32_t(below(3)));
  }

  void end(Live& live) {
    free_sequence(pools_, live.request.cache);
    std::swap(live, live_.back());
    live_.pop_back();
  }
  void end_one() {
    if (Live* live = any()) end(*live);
  }

  void pin_or_unpin() {
    if (!pins_.empty() && below(2) == 0) {
      std::swap(pins_[below(uint32_t(pins_.size()))], pins_.back());
      unpin(pools_, pins_.back());
      pins_.pop_back();
      return;
    }
    PrefixChain chain = chain_of(roots_[below(uint32_t(roots_.size()))]);
    auto made = pin(pools_, pools_.prefixes.lookup(chain, any_prompt(), false), 10);
    if (!made) return;
    pinned += int64_t(made->blocks.size());
    pins_.push_back(std::move(*made));
  }

  void snapshot_one() {
    Live* live = any();
    if (!live) return;
    const int64_t position = std::min(live->computed, int64_t(live->request.ids.size())) / kBlockTokens * kBlockTokens;
    if (position == 0) return;
    const uint64_t truth = live->truth[size_t(position) - 1];
    snapshots_.put(pools_.prefixes, live->request.chain, live->request.ids, position,
                   [&](std::span<uint8_t> bytes) { std::memcpy(bytes.data(), &truth, sizeof truth); });
  }

  void release_displaced() {
    for (const int32_t block : displaced_) pools_.blocks.release(block);
    displaced_.clear();
    if (below(50) == 0) make_room(pools_, below(kBlocks));
  }

  void pass_time() {
    now_ += seconds(below(2));
    pools_.blocks.idle().advance(now_);
    snapshots_.advance(now_);
    if (below(4) == 0) drop_expired(pools_);
    if (below(100) != 0) return;
    const size_t which = below(uint32_t(roots_.size()));  // a tenant goes and comes back
    for (const Live& live : live_) {
      if (live.request.chain.root == roots_[which]) return;
    }
    pools_.prefixes.close_root(roots_[which]);
    roots_[which] = open(int32_t(which));
  }

  std::mt19937 random_;
  CachePools pools_{kBlocks, kSlots};
  SnapshotStore snapshots_{16, {.budget_bytes = 24'000, .time_to_live = seconds(60)}};
  std::vector<std::vector<uint64_t>> memory_ =
      std::vector<std::vector<uint64_t>>(kBlocks + 1, std::vector<uint64_t>(kBlockTokens));
  std::vector<int32_t> accounts_, roots_, displaced_;
  std::vector<Live> live_;
  std::vector<PrefixPin> pins_;
  seconds now_{};
};

TEST(CacheAtRandom, AMillionOperationsKeepEveryInvariant) {
  const int64_t operations = by_test_size(100'000, 1'000'000, 10'000'000);
  RandomCache cache(7);
  for (int64_t step = 0; step < operations; ++step) {
    cache.step();
    ASSERT_EQ(cache.wrong, 0) << "somebody read or wrote what is not his, step " << step;
    if (step % 64 != 0 && step > 20'000) continue;
    const auto state = cache.check_all();
    ASSERT_TRUE(state.ok()) << "step " << step << ": " << to_string(state.error());
    ASSERT_TRUE(step % 1'024 != 0 || cache.all_read_right()) << step;
  }
  // The test is worth something only when everything happened often.
  const PrefixStatistics total = cache.pools().prefixes.total();
  const int64_t often = operations / 1'000, seldom = operations / 10'000;
  EXPECT_GT(cache.hits, often);
  EXPECT_GT(cache.restored, often);
  EXPECT_GT(cache.refused, often);
  EXPECT_GT(cache.forks, often);
  EXPECT_GT(cache.copies, seldom);
  EXPECT_GT(cache.pinned, often);
  EXPECT_GT(total.evicted, often);
  EXPECT_GT(total.expired, seldom);
  EXPECT_GT(total.deduplicated, often);
  EXPECT_EQ(total.collisions, 0);
  EXPECT_GT(cache.snapshots().statistics().evicted, often);
  cache.end_all();
  const auto state = cache.check_all();
  ASSERT_TRUE(state.ok()) << to_string(state.error());
  EXPECT_EQ(cache.pools().blocks.available(), kBlocks);  // nothing has leaked
  EXPECT_EQ(cache.pools().slots.free_count(), kSlots);
}

}  // namespace
}  // namespace fathom
