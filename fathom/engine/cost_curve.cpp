#include "fathom/engine/cost_curve.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <random>

#include "fathom/base/mapped_file.h"
#include "fathom/base/sha256.h"

namespace fathom {
namespace {

// Reorders `values`. The upper one of two middle values: it is one that was measured.
double median(std::span<double> values) {
  const auto middle = values.begin() + ptrdiff_t(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::string new_uuid() {
  std::random_device entropy;
  std::array<uint8_t, 16> bytes;
  for (size_t i = 0; i < bytes.size(); i += 4) {
    const uint32_t word = entropy();
    for (size_t j = 0; j < 4; ++j) bytes[i + j] = uint8_t(word >> 8 * j);
  }
  bytes[6] = uint8_t((bytes[6] & 0x0f) | 0x40);  // version 4: random
  bytes[8] = uint8_t((bytes[8] & 0x3f) | 0x80);
  std::string text = hex_text(bytes);
  for (const size_t at : {20u, 16u, 12u, 8u}) text.insert(at, "-");
  return text;
}

struct FileName {
  std::string digest;
  int64_t written = 0;  // unix seconds
};

// `<64 hexadecimal digits>.<uuid>.<seconds>`; nothing for names of other files, which are left alone.
std::optional<FileName> parse_name(const std::string& name) {
  constexpr size_t kDigest = 64, kUuid = 36;
  if (name.size() < kDigest + kUuid + 3 || name[kDigest] != '.' || name[kDigest + kUuid + 1] != '.') return {};
  if (name.find_first_not_of("0123456789abcdef") != kDigest) return {};
  FileName out{name.substr(0, kDigest), 0};
  const char* end = name.data() + name.size();
  const auto [last, error] = std::from_chars(name.data() + kDigest + kUuid + 2, end, out.written);
  if (error != std::errc{} || last != end || out.written < 0) return {};
  return out;
}

Result<CostCurve> read_curve(const std::string& path, const CostCurveKey& key) {
  const auto corrupt = [&](const char* what) { return Error{ErrorCode::corrupt, what, path, "it is measured again"}; };
  auto text = read_file(path, 1 << 20);
  if (!text) return text.error();
  auto json = parse_json(*text, path);
  if (!json) return json.error();
  const Json* fields = json->find("key");
  if (fields == nullptr || !(*fields == key.fields)) return corrupt("the curve is of another key");
  const Json* points = json->find("points");
  if (points == nullptr || !points->is_array() || points->items.empty()) return corrupt("there are no points");
  CostCurve curve;
  for (const Json& point : points->items) {
    const auto rows = point.items.size() == 2 ? point.items[0].as_int64() : std::nullopt;
    const auto time = point.items.size() == 2 ? point.items[1].as_double() : std::nullopt;
    if (!rows || !time || *rows < 1 || *rows > INT32_MAX || !std::isfinite(*time) || *time <= 0 ||
        (!curve.empty() && curve.back().rows >= *rows)) {
      return corrupt("a point is no number of rows with its milliseconds");
    }
    curve.push_back({int(*rows), *time});
  }
  return curve;
}

}  // namespace

TimedStep timed_by_clock(std::function<Result<void>(int rows)> run) {
  return [run = std::move(run)](int rows) -> Result<double> {
    const auto begin = std::chrono::steady_clock::now();
    if (auto done = run(rows); !done) return done.error();
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  };
}

Result<CostCurve> measure_cost_curve(std::span<const int> sizes, const TimedStep& step) {
  CostCurve curve;
  for (const int rows : sizes) {
    check(rows > 0 && (curve.empty() || rows > curve.back().rows), "sizes of a curve rise");
    if (auto warm = step(rows); !warm) return warm.error();
    std::array<double, 5> times;
    for (double& time : times) {
      const auto run = step(rows);
      if (!run) return run.error();
      if (!std::isfinite(*run) || *run <= 0) {
        return Error{ErrorCode::failed, "a step of " + std::to_string(rows) + " rows took no time", "cost curve",
                     "the clock of this machine cannot time steps; choose a fixed number with --drafts"};
      }
      time = *run;
    }
    std::sort(times.begin(), times.end());
    curve.push_back({rows, (times[1] + times[2] + times[3]) / 3});
  }
  return curve;
}

std::string CostCurveKey::digest() const {
  const std::string text = to_string(fields);
  return sha256_text({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}

StoredCurve load_cost_curve(const std::string& folder, const CostCurveKey& key, int64_t now) {
  StoredCurve out;
  const std::string digest = key.digest();
  std::vector<std::pair<int64_t, std::string>> candidates;
  std::error_code error;
  for (std::filesystem::directory_iterator file(folder, error), end; !error && file != end; file.increment(error)) {
    const auto name = parse_name(file->path().filename().string());
    if (!name) continue;
    const int64_t age = now - name->written;
    if (age > kCurveSeconds + kRemoveAfterSeconds) {
      std::error_code ignored;  // another process may have removed it
      std::filesystem::remove(file->path(), ignored);
    } else if (name->digest == digest && age <= kCurveSeconds) {
      candidates.push_back({name->written, file->path().string()});
    }
  }
  std::sort(candidates.rbegin(), candidates.rend());
  for (const auto& [written, path] : candidates) {
    if (written > now) {
      out.notes.push_back("cost curve of the future ignored (" + path + "): check this machine's clock");
      continue;
    }
    auto curve = read_curve(path, key);
    if (curve) {
      out.curve = std::move(*curve);
      break;
    }
    out.notes.push_back("cost curve ignored: " + to_string(curve.error()));
  }
  return out;
}

Result<std::string> store_cost_curve(const std::string& folder, const CostCurveKey& key, const CostCurve& curve,
                                     int64_t now) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return Error{ErrorCode::failed, error.message(), folder, "choose another folder for cost curves"};
  Json points = Json::array();
  for (const CostPoint& point : curve) {
    Json pair = Json::array();
    pair.push(Json::of(point.rows));
    pair.push(Json::of(point.milliseconds));
    points.push(std::move(pair));
  }
  Json file = Json::object();
  file.set("key", key.fields);
  file.set("points", std::move(points));
  const std::string path = folder + "/" + key.digest() + "." + new_uuid() + "." + std::to_string(now);
  if (auto written = write_file(path, to_string(file) + "\n"); !written) return written.error();
  return path;
}

CostCorrection::CostCorrection(CostCurve curve, bool padded) : curve_(std::move(curve)), padded_(padded) {
  steps_.reserve(kSlopeWindow);
  sorted_.reserve(kSlopeWindow);
  scratch_.reserve(kSlopeWindow);
  sampler_window_.reserve(kSlopeWindow);
}

void CostCorrection::record(int sequences, int rows, double forward_milliseconds, double sampler_milliseconds) {
  const size_t place = size_t(recorded_++ % kSlopeWindow);
  const double predicted = step_milliseconds({curve_, 0, 0, padded_}, rows);
  // Beyond the curve there is nothing to correct.
  const Step step{rows, std::isfinite(predicted) ? (forward_milliseconds - predicted) / rows : NAN};
  if (place < steps_.size()) {
    steps_[place] = step;
    sampler_window_[place] = sampler_milliseconds;
  } else {
    steps_.push_back(step);
    sampler_window_.push_back(sampler_milliseconds);
  }
  Recent& recent = sampler_[sequences];
  if (recent.times.size() < size_t(kSamplerWindow)) {
    recent.times.push_back(sampler_milliseconds);
  } else {
    recent.times[size_t(recent.count % kSamplerWindow)] = sampler_milliseconds;
  }
  ++recent.count;
  if (recorded_ % kEvery == 0 || recorded_ <= kEvery) recompute();
}

void CostCorrection::recompute() {
  scratch_.assign(sampler_window_.begin(), sampler_window_.end());
  sampler_median_ = median(scratch_);
  sorted_.assign(steps_.begin(), steps_.end());
  std::sort(sorted_.begin(), sorted_.end(), [](const Step& a, const Step& b) { return a.rows < b.rows; });
  medians_.clear();
  for (size_t i = 0; i < sorted_.size();) {
    scratch_.clear();
    const int rows = sorted_[i].rows;
    for (; i < sorted_.size() && sorted_[i].rows == rows; ++i) {
      if (!std::isnan(sorted_[i].excess)) scratch_.push_back(sorted_[i].excess);
    }
    if (scratch_.size() >= size_t(kSlopeLeast)) medians_.push_back(median(scratch_));
  }
  slope_ = medians_.empty() ? 0 : median(medians_);
}

double CostCorrection::sampler_milliseconds(int sequences) const {
  const auto at = sampler_.find(sequences);
  if (at == sampler_.end() || at->second.times.size() < size_t(kSamplerLeast)) return sampler_median_;
  std::array<double, kSamplerWindow> times;
  std::copy(at->second.times.begin(), at->second.times.end(), times.begin());
  return median(std::span(times).first(at->second.times.size()));
}

}  // namespace fathom
