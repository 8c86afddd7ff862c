// fathom/base/metrics.h
// Numbers that a running process shows: counters that only rise, gauges, histograms with fixed buckets. A series is
// registered once, with its labels, and recorded through the reference that this gives: recording is a few atomic
// additions, takes no lock and allocates nothing, so the engine's loop may do it every step. Exports as Prometheus text
// (format 0.0.4) and as JSON.
//
// Names follow the Prometheus conventions: `fathom_<room>_<what>_<unit>`, base units (seconds, bytes, tokens), `_total`
// on counters. Labels have few values that are known beforehand: never a user, a request, or a text.
// Why not prometheus-cpp: docs/decisions/0012-metrics-and-log-are-ours.md.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fathom/base/json.h"

namespace fathom {

/// Only rises. Any number of threads.
class Counter {
 public:
  void add(double more) { value_.fetch_add(more, std::memory_order_relaxed); }
  void add(int64_t more) { add(double(more)); }  // exact up to 2^53
  void add(int more) { add(double(more)); }
  double value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<double> value_{0};
};

/// Any value. Any number of threads.
class Gauge {
 public:
  void set(double value) { value_.store(value, std::memory_order_relaxed); }
  void set(int64_t value) { set(double(value)); }
  void set(int value) { set(double(value)); }
  double value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<double> value_{0};
};

/// How often values fell into each bucket: bucket i takes what is at most bounds()[i] and above the bound before; the
/// last one, without a bound, takes the rest. Any number of threads; a reader may see a value counted whose sum is
/// still to come.
class Histogram {
 public:
  /// `bounds` rise; finite.
  explicit Histogram(std::vector<double> bounds);
  /// `times` equal values at once. NaN counts in the last bucket and not in the sum. Cost: a comparison a bound, two
  /// atomic additions.
  void observe(double value, int64_t times = 1);

  std::span<const double> bounds() const { return bounds_; }
  int64_t count_of(size_t bucket) const { return counts_[bucket].load(std::memory_order_relaxed); }
  int64_t count() const;
  double sum() const { return sum_.load(std::memory_order_relaxed); }
  /// The value that a part `q` of all values do not exceed, linear within its bucket; of the last bucket its lower
  /// bound. 0 when nothing was observed.
  double quantile(double q) const;

 private:
  std::vector<double> bounds_;
  std::unique_ptr<std::atomic<int64_t>[]> counts_;  // [bounds + 1]
  std::atomic<double> sum_{0};
};

enum class MetricKind { counter, gauge, histogram };
const char* name_of(MetricKind kind);

struct MetricLabel {
  std::string name, value;
  friend bool operator==(const MetricLabel&, const MetricLabel&) = default;
};
using MetricLabels = std::vector<MetricLabel>;

/// What docs and tests want to know of a metric; one for all series of a name.
struct MetricInfo {
  std::string name, help;
  MetricKind kind = MetricKind::counter;
  std::vector<std::string> labels;  // names
  size_t series = 0;
};

/// All metrics of a process or of a test; moves, does not copy. References that it gives stay valid as long as it
/// lives. Registering and exporting take a lock that recording never does. The same name and labels give the same
/// series again; another kind, help, set of label names or bounds under the same name is a bug and aborts, as does a
/// name that Prometheus does not take.
class Metrics {
 public:
  Metrics();
  Metrics(Metrics&&) noexcept;
  Metrics& operator=(Metrics&&) noexcept;
  ~Metrics();

  Counter& counter(std::string_view name, std::string_view help, MetricLabels labels = {});
  Gauge& gauge(std::string_view name, std::string_view help, MetricLabels labels = {});
  Histogram& histogram(std::string_view name, std::string_view help, std::vector<double> bounds,
                       MetricLabels labels = {});

  /// Families in order of registration: HELP, TYPE, then a line a series. Content type:
  /// `text/plain; version=0.0.4; charset=utf-8`.
  std::string prometheus_text() const;
  /// {"name": {"type", "help", "series": [{"labels": {…}, "value"}, …]}}; histograms have "count", "sum" and "buckets":
  /// [[bound, values up to it], …] instead of "value".
  Json json() const;
  std::vector<MetricInfo> list() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fathom
