// fathom/cache/prefix_fixture.h
// For tests of the prefix cache: a tenant with its root, and a request that lives through prefill, publication and end
// as the scheduler would drive it.
#pragma once
#include <numeric>
#include <string>
#include <vector>

#include "fathom/cache/prefix_sharing.h"
#include "fathom/cache/snapshot_store.h"

namespace fathom {

inline constexpr ReplayShape kFlashShape{128, 6, 20, 20};

inline std::vector<int32_t> tokens_from(int32_t first, int64_t count) {
  std::vector<int32_t> out(static_cast<size_t>(count));
  std::iota(out.begin(), out.end(), first);
  return out;
}

inline std::vector<int32_t> operator+(std::vector<int32_t> a, const std::vector<int32_t>& b) {
  a.reserve(a.size() + b.size());
  for (const int32_t id : b) a.push_back(id);
  return a;
}

inline PrefixChain chain_of(int32_t root, std::vector<ImageSpan> images = {}) {
  PrefixChain chain;
  chain.root = root;
  chain.images = std::move(images);
  return chain;
}

inline PrefixRoot root_of(std::string salt, ReplayClass replay = ReplayClass::bounded) {
  return {"model", "digest", 1, "reference", replay, std::move(salt)};
}

struct TestRequest {
  std::vector<int32_t> ids;
  PrefixChain chain;
  SequenceCache cache;
  PrefillPlan plan;
  int64_t prompt = 0;
};

/// Looks up, plans, attaches, reserves the prompt. What is missing would now be computed.
inline TestRequest admit(CachePools& pools, int32_t root, std::vector<int32_t> prompt,
                         ReplayMode mode = ReplayMode::compact, SnapshotStore* snapshots = nullptr,
                         std::vector<ImageSpan> images = {}) {
  TestRequest request;
  request.prompt = int64_t(prompt.size());
  request.ids = std::move(prompt);
  request.chain = chain_of(root, std::move(images));
  const bool exact_only = replay_class_of(mode) == ReplayClass::exact;
  const PrefixHit hit = pools.prefixes.lookup(request.chain, request.ids, exact_only);
  std::optional<SnapshotView> snapshot;
  if (snapshots) {
    const auto range = useful_snapshots(kFlashShape, mode, request.prompt, hit.tokens());
    snapshot = snapshots->latest(pools.prefixes, request.chain, request.ids, range, exact_only);
  }
  request.plan = plan_prefill(kFlashShape, mode, request.prompt, hit.tokens(),
                              snapshot ? std::optional(snapshot->position) : std::nullopt);
  attach(pools, request.cache, request.chain, hit, request.plan, request.prompt, snapshot ? snapshot->seams : 0);
  check(reserve(pools, request.cache, request.prompt).ok(), "the pool is large enough for this test");
  return request;
}

/// Everything but the newest token has been run: full blocks become findable.
inline void commit(CachePools& pools, TestRequest& request) {
  std::vector<int32_t> displaced;
  publish(pools, request.cache, request.chain, request.ids, int64_t(request.ids.size()) - 1, displaced);
  for (const int32_t block : displaced) pools.blocks.release(block);
}

/// One request from admission to its end; returns the tokens of its prompt that it found.
inline int64_t run_through(CachePools& pools, int32_t root, const std::vector<int32_t>& prompt, int64_t generated = 1) {
  TestRequest request = admit(pools, root, prompt);
  request.ids = request.ids + tokens_from(-1'000'000, generated);
  check(reserve(pools, request.cache, int64_t(request.ids.size())).ok(), "the pool is large enough for this test");
  commit(pools, request);
  free_sequence(pools, request.cache);
  return request.plan.hit;
}

}  // namespace fathom
