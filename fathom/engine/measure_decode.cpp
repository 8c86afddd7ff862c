#include "fathom/engine/measure_decode.h"

#include <algorithm>

#include "fathom/base/philox.h"

namespace fathom {

std::vector<int> curve_sizes(int most) {
  std::vector<int> out;
  for (int size = 1; size < most; size *= 2) {
    out.push_back(size);
    if (size >= 4 && size + size / 2 < most) out.push_back(size + size / 2);
  }
  out.push_back(most);
  return out;
}

namespace {

// Tokens ahead of what is measured: a row that has none before it is not like others.
constexpr int kBefore = 2;

}  // namespace

Result<CostCurve> measure_decode(const ModelPort& port, std::span<const int> sizes, int sequences) {
  std::vector<LiveSequence> streams(static_cast<size_t>(sequences));
  std::vector<LiveSequence*> live;
  const int most = *std::max_element(sizes.begin(), sizes.end());
  const int longest = kBefore + (most + sequences - 1) / sequences;
  check(longest <= kBlockTokens, "a sequence of the measurement lies in one block");
  for (int s = 0; s < sequences; ++s) {
    LiveSequence& one = streams[size_t(s)];
    for (int i = 0; i < longest; ++i) {  // different tokens, so that different experts run
      one.ids.push_back(int32_t(philox(1, {uint32_t(s), uint32_t(i), 0, 0})[0] % uint64_t(port.vocabulary)));
    }
    one.slot = s + 1;
    one.blocks = {s + 1};
  }
  BatchBuilder builder(port.history);
  // `rows` rows of all sequences together, the first of each at position `first`.
  const auto run = [&](int first, int rows) {
    const int used = std::min(rows, sequences);
    StepPlan plan;
    live.clear();
    for (int s = 0; s < used; ++s) {
      const int count = rows / used + (s < rows % used);
      plan.rows.push_back({SequenceId(s + 1), first, count, count, 0, count});
      live.push_back(&streams[size_t(s)]);
    }
    port.forward(builder.build(plan, live));
    if (port.clock == nullptr) return;
    port.clock->restart();
    port.clock->seconds(0, port.clock->mark());  // waits
  };
  run(0, kBefore * sequences);
  int last = 0;
  return measure_cost_curve(sizes, timed_by_clock([&](int rows) -> Result<void> {
                              // A device launches a step as one when it comes for the fourth time.
                              for (int i = 0; port.clock != nullptr && rows != last && i < 3; ++i) run(kBefore, rows);
                              last = rows;
                              run(kBefore, rows);
                              return {};
                            }));
}

}  // namespace fathom
