// fathom/engine/cost_curve.h
// What a step of g rows costs on this machine: measured once at start, kept on disk for an hour, and corrected while
// the engine runs. Source: spec/engine.md 7.3.
//
// Start curve: for each size one run to warm up and five timed ones; the fastest and the slowest are dropped and the
// other three averaged. On disk: one file a curve, `<sha256 of the key>.<uuid>.<unix seconds>`, so that processes never
// write the same file and the age needs no clock of the file system; written beside and renamed. A file that is
// damaged, of another key or too old is ignored with a note, never an error: the curve is measured again.
//
// While running: the start curve knows neither today's context lengths nor the sampler. CostCorrection keeps the times
// of recent steps and gives a slope in milliseconds a row and the time of everything that is not the forward pass.
#pragma once
#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "fathom/base/json.h"
#include "fathom/base/result.h"
#include "fathom/engine/speculate.h"

namespace fathom {

using CostCurve = std::vector<CostPoint>;  // rising rows

/// Runs one step of so many rows (all valid, whatever tokens) and gives its milliseconds.
using TimedStep = std::function<Result<double>(int rows)>;

/// A step that is timed by the steady clock; `run` returns when the step is done.
TimedStep timed_by_clock(std::function<Result<void>(int rows)> run);

/// Six calls of `step` a size; `sizes` rise. Errors: what `step` returns, and failed for a time that is no positive
/// number.
Result<CostCurve> measure_cost_curve(std::span<const int> sizes, const TimedStep& step);

/// What a curve belongs to: everything that changes it, as an object with stable fields: the unit ("ms"), the model and
/// its weights, backend, device or processor, threads, batch sizes, numerics, ranks.
struct CostCurveKey {
  Json fields = Json::object();
  std::string digest() const;  // 64 hexadecimal digits
};

struct StoredCurve {
  std::optional<CostCurve> curve;  // the newest that is valid
  std::vector<std::string> notes;  // a line for each file that was ignored although it is of this key
};

inline constexpr int64_t kCurveSeconds = 3600;        // valid so long
inline constexpr int64_t kRemoveAfterSeconds = 7200;  // and removed so long after that

/// Reads the newest valid curve of this key and removes files of any key that are older than both times together.
/// `now`: unix seconds. A folder that is not there holds nothing.
StoredCurve load_cost_curve(const std::string& folder, const CostCurveKey& key, int64_t now);

/// Errors: those of write_file; failed when the folder cannot be made. Returns the file's path.
Result<std::string> store_cost_curve(const std::string& folder, const CostCurveKey& key, const CostCurve& curve,
                                     int64_t now);

/// Medians of the last steps. Nothing is allocated once the window is full; record() costs a few comparisons, and every
/// kEvery-th call sorts the window again (about 0.1 ms). One thread at a time.
class CostCorrection {
 public:
  static constexpr int kSamplerWindow = 9, kSamplerLeast = 5;  // times kept for each n; used from so many on
  static constexpr int kSlopeWindow = 5000, kSlopeLeast = 10;  // steps kept; used of sizes that have so many
  static constexpr int kEvery = 64;

  explicit CostCorrection(CostCurve curve, bool padded = true);

  /// One step without prompt pieces. `rows` as run (padded steps: of the size that ran).
  void record(int sequences, int rows, double forward_milliseconds, double sampler_milliseconds);

  /// Median over sizes of each size's median of (measured - curve) / rows; 0 while no size has kSlopeLeast steps.
  double slope_milliseconds() const { return slope_; }
  /// Median of the last times of that n; where they are too few, of all recent ones; 0 when there is none.
  double sampler_milliseconds(int sequences) const;

  const CostCurve& curve() const { return curve_; }
  /// What choose_rows() wants. Valid while this lives.
  StepCost cost(int sequences) const {
    return {curve_, slope_milliseconds(), sampler_milliseconds(sequences), padded_};
  }

 private:
  struct Step {
    int rows = 0;
    double excess = 0;  // (measured - curve) / rows
  };
  struct Recent {
    std::vector<double> times;
    int64_t count = 0;
  };
  void recompute();

  CostCurve curve_;
  bool padded_;
  std::vector<Step> steps_, sorted_;
  std::vector<double> medians_, scratch_;
  std::vector<double> sampler_window_;  // of all n
  std::map<int, Recent> sampler_;
  int64_t recorded_ = 0;
  double slope_ = 0, sampler_median_ = 0;
};

}  // namespace fathom
