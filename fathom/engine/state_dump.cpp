#include "fathom/engine/state_dump.h"

#include <algorithm>

#include "fathom/base/sha256.h"

namespace fathom {
namespace {

template <class Value>
void add(Json& object, const char* key, Value value) {
  object.fields.emplace_back(key, Json::of(value));
}
void add(Json& object, const char* key, Json value) { object.fields.emplace_back(key, std::move(value)); }

Json ids_of(std::span<const int32_t> ids) {
  Json out = Json::array();
  for (const int32_t id : ids) out.push(Json::of(int64_t(id)));
  return out;
}

Json json_of(const Sequence& s, double now, bool running, const StateOptions& options) {
  Json out = Json::object();
  add(out, "id", int64_t(s.id));
  add(out, "age_seconds", now - s.arrived);
  add(out, "priority", s.priority);
  if (options.tenant_name) {
    add(out, "tenant", tenant_digest(options.tenant_name(s.tenant), options.tenant_key));
  } else {
    add(out, "tenant", int64_t(s.tenant));
  }
  if (!s.ready) add(out, "loading", true);
  if (s.parent != 0) add(out, "parent", int64_t(s.parent));
  add(out, "prompt_tokens", s.prompt_tokens);
  add(out, "generated_tokens", s.generated());
  add(out, "max_tokens", s.max_tokens);
  add(out, "mode", name_of(s.mode));
  if (s.first_token_by) add(out, "first_token_due_seconds", *s.first_token_by - now);
  if (s.between_tokens) add(out, "between_tokens_seconds", *s.between_tokens);
  if (s.preemptions > 0) add(out, "preemptions", s.preemptions);
  if (running) {
    add(out, "in_prompt", s.in_prompt());
    add(out, "computed_tokens", s.cached);
    add(out, "hit_tokens", s.hit_tokens);
    add(out, "replayed_tokens", s.replayed_tokens);
    add(out, "drafts", s.proposed);
    add(out, "in_flight_steps", s.in_flight_steps);
    add(out, "in_flight_rows", s.in_flight_rows);
    add(out, "blocks", int64_t(s.cache.blocks.size()));
    add(out, "published_blocks", int64_t(s.chain.published));
    add(out, "slot", int64_t(s.cache.slot));
  }
  if (options.token_ids) add(out, "token_ids", ids_of(s.ids));
  return out;
}

Json pool_of(const BlockPool& pool) {
  Json out = Json::object();
  add(out, "capacity", int64_t(pool.capacity()));
  add(out, "used", int64_t(pool.capacity() - pool.available()));
  add(out, "idle", int64_t(pool.idle().size()));
  add(out, "free", int64_t(pool.free_count()));
  return out;
}

Json prefixes_of(const PrefixIndex& index) {
  const PrefixStatistics s = index.total();
  Json out = Json::object(), tiers = Json::object();
  add(out, "blocks", index.size()), add(out, "pinned_blocks", int64_t(index.pinned_blocks()));
  add(out, "prompts", s.prompts), add(out, "repeatable_prompts", s.repeatable_prompts), add(out, "hits", s.hits);
  add(out, "prompt_tokens", s.prompt_tokens);
  for (int i = 0; i < kCacheTiers; ++i) add(tiers, name_of(CacheTier(i)), s.hit_tokens[size_t(i)]);
  add(out, "hit_tokens", std::move(tiers));
  add(out, "published", s.published), add(out, "deduplicated", s.deduplicated), add(out, "evicted", s.evicted);
  add(out, "expired", s.expired), add(out, "collisions", s.collisions);
  if (const auto warning = warning_of(s)) add(out, "warning", *warning);
  return out;
}

Json snapshots_of(const SnapshotStore& store) {
  const SnapshotStatistics& s = store.statistics();
  Json out = Json::object();
  add(out, "count", store.size()), add(out, "bytes", store.bytes()), add(out, "bytes_each", store.snapshot_bytes());
  add(out, "put", s.put), add(out, "found", s.found), add(out, "missed", s.missed);
  add(out, "evicted", s.evicted), add(out, "expired", s.expired);
  return out;
}

Json limits_of(const SchedulerLimits& limits) {
  Json out = Json::object();
  add(out, "context", limits.context), add(out, "sequences", limits.sequences), add(out, "step_rows", limits.step_rows);
  add(out, "blocks", int64_t(limits.blocks)), add(out, "overcommit", limits.overcommit);
  return out;
}

Json counts_of(const SchedulerCounts& counts) {
  Json out = Json::object();
  add(out, "admitted", counts.admitted), add(out, "preempted", counts.preempted);
  add(out, "passed_over", counts.passed_over), add(out, "computed_rows", counts.computed_rows);
  add(out, "replayed_rows", counts.replayed_rows), add(out, "hit_tokens", counts.hit_tokens);
  return out;
}

}  // namespace

std::string tenant_digest(std::string_view name, uint64_t key) {
  Sha256 hash;
  hash.add({reinterpret_cast<const uint8_t*>(&key), sizeof key});
  hash.add({reinterpret_cast<const uint8_t*>(name.data()), name.size()});
  return hex_text(hash.digest()).substr(0, 12);
}

Json state_of(const Scheduler& scheduler, double now, const StateOptions& options) {
  std::vector<const Sequence*> running, waiting;
  const auto ids = scheduler.running_ids();
  for (const SequenceId id : ids) running.push_back(scheduler.find(id));
  for (const auto& [id, sequence] : scheduler.sequences()) {
    if (sequence.cache.slot == 0) waiting.push_back(&sequence);
  }
  std::sort(waiting.begin(), waiting.end(), [](const Sequence* a, const Sequence* b) {
    return a->arrived != b->arrived ? a->arrived < b->arrived : a->id < b->id;
  });
  Json out = Json::object();
  add(out, "now", now);
  add(out, "limits", limits_of(scheduler.limits()));
  add(out, "counts", counts_of(scheduler.counts()));
  const auto list = [&](const char* name, const char* left_out, const std::vector<const Sequence*>& from, bool runs) {
    Json all = Json::array();
    const size_t count = std::min(from.size(), options.most_sequences);
    for (size_t i = 0; i < count; ++i) all.push(json_of(*from[i], now, runs, options));
    add(out, name, std::move(all));
    if (from.size() > count) add(out, left_out, int64_t(from.size() - count));
  };
  list("running", "running_left_out", running, true);
  list("waiting", "waiting_left_out", waiting, false);
  Json pools = Json::object();
  add(pools, "blocks", pool_of(scheduler.pools().blocks));
  add(pools, "slots", pool_of(scheduler.pools().slots));
  add(out, "pools", std::move(pools));
  add(out, "prefixes", prefixes_of(scheduler.pools().prefixes));
  add(out, "snapshots", snapshots_of(scheduler.snapshots()));
  return out;
}

}  // namespace fathom
