#include "fathom/engine/stream_series.h"

namespace fathom {
namespace {

// What grows while a stream runs, beside its seconds.
constexpr int64_t StreamStatistics::*kCounts[] = {&StreamStatistics::uses,         &StreamStatistics::hits,
                                                  &StreamStatistics::loaded_bytes, &StreamStatistics::disk_bytes,
                                                  &StreamStatistics::evictions,    &StreamStatistics::waits,
                                                  &StreamStatistics::guesses,      &StreamStatistics::guesses_used};

}  // namespace

StreamSeries::StreamSeries(Metrics& m, bool over_bus) {
  const auto uses = [&](const char* found) {
    return &m.counter("fathom_engine_expert_uses_total",
                      "Streamed experts that a step used, by whether they were there.", {{"found", found}});
  };
  hits_ = uses("resident"), misses_ = uses("read");
  const auto bytes = [&](const char* from) {
    return &m.counter("fathom_engine_expert_bytes_total",
                      "Bytes of streamed experts that were mapped or copied, by their source.", {{"from", from}});
  };
  disk_bytes_ = bytes("disk"), cache_bytes_ = bytes("page_cache"), host_bytes_ = bytes("host_memory");
  evictions_ = &m.counter("fathom_engine_expert_evictions_total", "Streamed experts that left for others.");
  waits_ = &m.counter("fathom_engine_expert_waits_total", "Times that a step waited for an expert.");
  if (!over_bus) {
    wait_seconds_ = &m.counter("fathom_engine_expert_wait_seconds_total", "Time that steps waited for experts.");
  }
  resident_bytes_ = &m.gauge("fathom_engine_expert_resident_bytes", "Streamed experts that are in memory.");
  limit_bytes_ = &m.gauge("fathom_engine_expert_limit_bytes", "Most that may be; 0: experts are not streamed.");
}

void StreamSeries::show(const StreamStatistics& now) {
  const StreamStatistics more = since(shown_, now);
  hits_->add(more.hits);
  misses_->add(more.uses - more.hits);
  disk_bytes_->add(more.disk_bytes);
  (now.over_bus ? host_bytes_ : cache_bytes_)->add(more.loaded_bytes - more.disk_bytes);
  evictions_->add(more.evictions);
  waits_->add(more.waits);
  if (wait_seconds_ != nullptr) wait_seconds_->add(more.wait_seconds);
  resident_bytes_->set(now.resident_bytes);
  limit_bytes_->set(now.limit_bytes);
  shown_ = now;
}

StreamStatistics since(const StreamStatistics& before, StreamStatistics now) {
  for (const auto count : kCounts) now.*count -= before.*count;
  now.wait_seconds -= before.wait_seconds;
  return now;
}

StreamStatistics sum(const StreamStatistics& counts, StreamStatistics more) {
  for (const auto count : kCounts) more.*count += counts.*count;
  more.wait_seconds += counts.wait_seconds;
  return more;
}

Json to_json(const StreamStatistics& s) {
  Json tree = Json::object();
  tree.set("uses", Json::of(s.uses));
  tree.set("hits", Json::of(s.hits));
  tree.set("loaded_bytes", Json::of(s.loaded_bytes));
  tree.set("disk_bytes", Json::of(s.disk_bytes));
  tree.set("evictions", Json::of(s.evictions));
  tree.set("waits", Json::of(s.waits));
  if (s.over_bus) {
    tree.set("guesses", Json::of(s.guesses)).set("guesses_used", Json::of(s.guesses_used));
  } else {
    tree.set("wait_seconds", Json::of(s.wait_seconds));
  }
  tree.set("resident_bytes", Json::of(s.resident_bytes));
  tree.set("limit_bytes", Json::of(s.limit_bytes));
  return tree;
}

}  // namespace fathom
