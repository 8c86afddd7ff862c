#include "fathom/base/metrics.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <mutex>

namespace fathom {

Histogram::Histogram(std::vector<double> bounds)
    : bounds_(std::move(bounds)), counts_(std::make_unique<std::atomic<int64_t>[]>(bounds_.size() + 1)) {
  const auto no_rise = [](double a, double b) { return !(a < b); };
  check(std::adjacent_find(bounds_.begin(), bounds_.end(), no_rise) == bounds_.end(), "bounds of a histogram rise");
  check(std::all_of(bounds_.begin(), bounds_.end(), [](double x) { return std::isfinite(x); }), "bounds are finite");
}

void Histogram::observe(double value, int64_t times) {
  size_t bucket = 0;  // at most twenty bounds: faster in order than by halves
  while (bucket < bounds_.size() && !(value <= bounds_[bucket])) ++bucket;
  counts_[bucket].fetch_add(times, std::memory_order_relaxed);
  if (!std::isnan(value)) sum_.fetch_add(value * double(times), std::memory_order_relaxed);
}

int64_t Histogram::count() const {
  int64_t out = 0;
  for (size_t i = 0; i <= bounds_.size(); ++i) out += count_of(i);
  return out;
}

double Histogram::quantile(double q) const {
  const double wanted = std::clamp(q, 0.0, 1.0) * double(count());
  double below = 0;
  for (size_t i = 0; i < bounds_.size(); ++i) {
    const auto here = double(count_of(i));
    if (here > 0 && below + here >= wanted) {
      const double low = i == 0 ? std::min(0.0, bounds_[0]) : bounds_[i - 1];
      return low + (bounds_[i] - low) * (wanted - below) / here;
    }
    below += here;
  }
  return wanted > 0 && !bounds_.empty() ? bounds_.back() : 0;
}

const char* name_of(MetricKind kind) {
  switch (kind) {
    case MetricKind::counter: return "counter";
    case MetricKind::gauge: return "gauge";
    case MetricKind::histogram: return "histogram";
  }
  return "";
}

namespace {

struct Series {
  MetricLabels labels;
  std::unique_ptr<Counter> counter;
  std::unique_ptr<Gauge> gauge;
  std::unique_ptr<Histogram> histogram;

  double value() const { return counter ? counter->value() : gauge->value(); }
};

struct Family {
  MetricInfo info;
  std::vector<Series> series;
};

// Metric names may have colons, which are for recording rules and not for us; so both kinds of name are the same.
bool valid_name(std::string_view name) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  const auto fits = [&](char c) { return letter(c) || (c >= '0' && c <= '9'); };
  return !name.empty() && letter(name[0]) && std::all_of(name.begin(), name.end(), fits);
}

void append_escaped(std::string& out, std::string_view text, bool quote) {
  for (const char c : text) {
    if (c == '\\' || (quote && c == '"')) out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
}

void append_value(std::string& out, double value) {
  if (std::isnan(value)) {
    out += "NaN";
  } else if (std::isinf(value)) {
    out += value > 0 ? "+Inf" : "-Inf";
  } else if (value == std::floor(value) && std::abs(value) < 0x1p53) {
    out += std::to_string(int64_t(value));
  } else {
    append_json_number(out, value);
  }
}

// One line; `bound` is the label `le` of a bucket, nullptr where there is none.
void append_line(std::string& out, std::string_view name, std::string_view suffix, const MetricLabels& labels,
                 const double* bound, double value) {
  out += name;
  out += suffix;
  char separator = '{';
  for (const MetricLabel& label : labels) {
    out += separator;
    out += label.name;
    out += "=\"";
    append_escaped(out, label.value, true);
    out += '"';
    separator = ',';
  }
  if (bound) {
    out += separator;
    out += "le=\"";
    append_value(out, *bound);
    out += '"';
    separator = ',';
  }
  if (separator == ',') out += '}';
  out += ' ';
  append_value(out, value);
  out += '\n';
}

void append_histogram(std::string& out, std::string_view name, const Series& one) {
  const Histogram& histogram = *one.histogram;
  int64_t below = 0;
  for (size_t i = 0; i <= histogram.bounds().size(); ++i) {
    below += histogram.count_of(i);
    const double bound = i < histogram.bounds().size() ? histogram.bounds()[i] : HUGE_VAL;
    append_line(out, name, "_bucket", one.labels, &bound, double(below));
  }
  append_line(out, name, "_sum", one.labels, nullptr, histogram.sum());
  append_line(out, name, "_count", one.labels, nullptr, double(below));  // as the buckets say, whatever came since
}

Json number(double value) {
  const bool whole = value == std::floor(value) && std::abs(value) < 0x1p53;
  return whole ? Json::of(int64_t(value)) : Json::of(value);
}

Json json_of(const Series& one) {
  Json labels = Json::object(), out = Json::object();
  for (const MetricLabel& label : one.labels) labels.set(label.name, Json::of(label.value));
  out.set("labels", std::move(labels));
  if (!one.histogram) return out.set("value", number(one.value())), out;
  const Histogram& histogram = *one.histogram;
  Json buckets = Json::array();
  int64_t below = 0;
  for (size_t i = 0; i <= histogram.bounds().size(); ++i) {
    below += histogram.count_of(i);
    Json bucket = Json::array();
    bucket.push(i < histogram.bounds().size() ? number(histogram.bounds()[i]) : Json::of("+Inf"));
    bucket.push(Json::of(below));
    buckets.push(std::move(bucket));
  }
  out.set("count", Json::of(below));
  out.set("sum", number(histogram.sum()));
  out.set("buckets", std::move(buckets));
  return out;
}

}  // namespace

struct Metrics::State {
  mutable std::mutex mutex;
  std::vector<std::unique_ptr<Family>> families;

  Family& family(std::string_view name, std::string_view help, MetricKind kind, const MetricLabels& labels) {
    std::vector<std::string> names;
    for (const MetricLabel& label : labels) {
      check(valid_name(label.name) && label.name != "le" && !label.name.starts_with("__"), "a label's name is a word");
      names.push_back(label.name);
    }
    for (const auto& one : families) {
      if (one->info.name != name) continue;
      check(one->info.kind == kind && one->info.help == help && one->info.labels == names,
            "a metric is the same wherever it is registered");
      return *one;
    }
    check(valid_name(name), "a metric's name is a word");
    check((kind == MetricKind::counter) == name.ends_with("_total"), "counters, and nothing else, end in _total");
    families.push_back(std::make_unique<Family>());
    families.back()->info = {std::string(name), std::string(help), kind, std::move(names), 0};
    return *families.back();
  }
  // The series with these labels, empty when it is new.
  Series& series(Family& family, MetricLabels labels) {
    for (Series& one : family.series) {
      if (one.labels == labels) return one;
    }
    family.series.emplace_back();
    family.series.back().labels = std::move(labels);
    ++family.info.series;
    return family.series.back();
  }
};

Metrics::Metrics() : state_(std::make_unique<State>()) {}
Metrics::Metrics(Metrics&&) noexcept = default;
Metrics& Metrics::operator=(Metrics&&) noexcept = default;
Metrics::~Metrics() = default;

Counter& Metrics::counter(std::string_view name, std::string_view help, MetricLabels labels) {
  const std::lock_guard lock(state_->mutex);
  Family& family = state_->family(name, help, MetricKind::counter, labels);
  Series& one = state_->series(family, std::move(labels));
  if (!one.counter) one.counter = std::make_unique<Counter>();
  return *one.counter;
}

Gauge& Metrics::gauge(std::string_view name, std::string_view help, MetricLabels labels) {
  const std::lock_guard lock(state_->mutex);
  Family& family = state_->family(name, help, MetricKind::gauge, labels);
  Series& one = state_->series(family, std::move(labels));
  if (!one.gauge) one.gauge = std::make_unique<Gauge>();
  return *one.gauge;
}

Histogram& Metrics::histogram(std::string_view name, std::string_view help, std::vector<double> bounds,
                              MetricLabels labels) {
  const std::lock_guard lock(state_->mutex);
  Family& family = state_->family(name, help, MetricKind::histogram, labels);
  Series& one = state_->series(family, std::move(labels));
  if (!one.histogram) one.histogram = std::make_unique<Histogram>(std::move(bounds));
  return *one.histogram;
}

std::string Metrics::prometheus_text() const {
  const std::lock_guard lock(state_->mutex);
  std::string out;
  for (const auto& family : state_->families) {
    const std::string& name = family->info.name;
    out += "# HELP " + name + " ";
    append_escaped(out, family->info.help, false);
    out += "\n# TYPE " + name + " " + name_of(family->info.kind) + "\n";
    for (const Series& one : family->series) {
      if (one.histogram) {
        append_histogram(out, name, one);
      } else {
        append_line(out, name, "", one.labels, nullptr, one.value());
      }
    }
  }
  return out;
}

Json Metrics::json() const {
  const std::lock_guard lock(state_->mutex);
  Json out = Json::object();
  for (const auto& family : state_->families) {
    Json one = Json::object(), series = Json::array();
    one.set("type", Json::of(name_of(family->info.kind)));
    one.set("help", Json::of(family->info.help));
    for (const Series& each : family->series) series.push(json_of(each));
    one.set("series", std::move(series));
    out.fields.emplace_back(family->info.name, std::move(one));
  }
  return out;
}

std::vector<MetricInfo> Metrics::list() const {
  const std::lock_guard lock(state_->mutex);
  std::vector<MetricInfo> out;
  for (const auto& family : state_->families) out.push_back(family->info);
  return out;
}

}  // namespace fathom
