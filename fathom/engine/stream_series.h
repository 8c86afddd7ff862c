// fathom/engine/stream_series.h
// Experts that are brought from disk or host memory as they are chosen, in a registry: hits, bytes, waits. The counts
// are the stream's own; this shows them under the names that docs/metrics.md explains.
#pragma once
#include <string>

#include "fathom/base/metrics.h"
#include "fathom/checkpoint/piece_stream.h"

namespace fathom {

class StreamSeries {
 public:
  /// `metrics` outlives it. `over_bus`: experts are in host memory, and nobody counts the seconds that a device waits
  /// for them: there is no series of these.
  explicit StreamSeries(Metrics& metrics, bool over_bus = false);
  /// What the stream has counted since the start. Allocates nothing.
  void show(const StreamStatistics& now);

 private:
  Counter *hits_, *misses_, *disk_bytes_, *cache_bytes_, *host_bytes_, *evictions_, *waits_, *wait_seconds_ = nullptr;
  Gauge *resident_bytes_, *limit_bytes_;
  StreamStatistics shown_;
};

/// The same as one JSON object with stable keys, over a bus without `wait_seconds`: of `fathom bench --json` and
/// `generate --stats --json`.
Json to_json(const StreamStatistics& statistics);
/// What happened between two looks at the same stream.
StreamStatistics since(const StreamStatistics& before, StreamStatistics now);
/// Counts of both together; how things stand is as of `more`.
StreamStatistics sum(const StreamStatistics& counts, StreamStatistics more);

}  // namespace fathom
