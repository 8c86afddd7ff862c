// Host cost of the verification lengths, against R-31: choose_rows at most 30 microseconds for 256 sequences x 5
// drafts.
#include <benchmark/benchmark.h>

#include "fathom/base/philox.h"
#include "fathom/engine/speculate.h"

namespace fathom {
namespace {

struct Problem {
  explicit Problem(int sequences) : drafts(size_t(sequences), 5), rows(size_t(sequences)) {
    for (uint32_t i = 0; i < uint32_t(sequences) * 5; ++i) {
      values.push_back(float(philox(1, {i, 0, 0, 0})[0] >> 8) * 0x1p-24f);
    }
    for (int size = 1; size <= sequences * 6; size += size < 4 ? size : 8 - size % 8) {
      curve.push_back({size, 10 + 0.02 * size});
    }
    if (curve.back().rows < sequences * 6) curve.push_back({sequences * 6, 10 + 0.12 * sequences});
  }
  Confidences confidences() const { return {View<const float, 2>(values.data(), {int64_t(drafts.size()), 5}), drafts}; }
  std::vector<float> values;
  std::vector<int> drafts, rows;
  std::vector<CostPoint> curve;
};

void choose_rows(benchmark::State& state) {
  const Problem problem{int(state.range(0))};
  VerificationPlanner planner;
  const StepCost cost{problem.curve, 0.001, 0.5, state.range(1) != 0};
  for (auto _ : state) benchmark::DoNotOptimize(planner.choose_rows(cost, problem.confidences()));
}
BENCHMARK(choose_rows)->ArgsProduct({{1, 8, 64, 256}, {0, 1}})->ArgNames({"sequences", "padded"});

void choose_and_split(benchmark::State& state) {
  Problem problem{int(state.range(0))};
  VerificationPlanner planner;
  const StepCost cost{problem.curve, 0.001, 0.5};
  for (auto _ : state) {
    const RowChoice choice = planner.choose_rows(cost, problem.confidences());
    planner.split_rows(choice.rows, problem.confidences(), problem.rows);
    benchmark::DoNotOptimize(problem.rows.data());
  }
}
BENCHMARK(choose_and_split)->Arg(1)->Arg(8)->Arg(64)->Arg(256)->ArgName("sequences");

}  // namespace
}  // namespace fathom
