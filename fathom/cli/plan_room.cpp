#include "fathom/cli/plan_room.h"

#include <algorithm>

namespace fathom::cli {
namespace {

// The largest number up to `most` that fits, where fewer fit too; 0: none.
template <class Fits>
int64_t largest(int64_t most, const Fits& fits) {
  int64_t low = 0, high = std::max<int64_t>(most, 0) + 1;
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

}  // namespace

CacheDemand PlanRoom::demand(const ModelConfig& config, const LargestStep& of) const {
  return {.free_bytes = free_bytes - step_memory(config, of).all(),
          .context = of.context,
          .sequences = of.sequences,
          .block_bytes = block_bytes,
          .slot_bytes = slot_bytes};
}

int64_t largest_context(const ModelConfig& config, const PlanRoom& room) {
  const int64_t model = config.max_position_embeddings;
  LargestStep step = room.step;
  const auto fits = [&](int64_t blocks) {
    step.context = std::min(blocks * kBlockTokens, model);
    return fit_cache(room.demand(config, step)).fits;
  };
  return std::min(largest((model + kBlockTokens - 1) / kBlockTokens, fits) * kBlockTokens, model);
}

int64_t largest_sequences(const ModelConfig& config, const PlanRoom& room) {
  LargestStep step = room.step;
  step.sequences = 1;
  const int64_t most = fit_cache(room.demand(config, step)).largest_sequences;  // with what one computes in
  return largest(most, [&](int64_t sequences) {
    step.sequences = sequences;
    return fit_cache(room.demand(config, step)).fits;
  });
}

}  // namespace fathom::cli
