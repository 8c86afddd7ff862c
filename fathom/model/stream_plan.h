// fathom/model/stream_plan.h
// How fast a model runs whose routed experts are read from disk as they are chosen, before anything of it is run. The
// disk, the products and the resident set work at the same time, so no single bound answers: the layers of a step are
// played through in simulated time, with the very set that decides at run time (checkpoint/resident_set.h), a disk that
// reads one piece after the other, and experts that are computed as they come (model/moe/experts.cpp). Gates choose
// uniformly, which is the worst case: text that prefers some experts finds more of them in memory.
#pragma once
#include <array>
#include <cstdint>

#include "fathom/model/config.h"
#include "fathom/model/speed_plan.h"

namespace fathom {

/// Seconds that a product takes for each parameter, at a few numbers of rows: for one row the weights come from memory,
/// for many arithmetic is what counts.
struct ProductSpeed {
  static constexpr std::array<double, 4> kRows = {1, 8, 64, 512};
  std::array<double, 4> at{};

  /// Linear between the numbers of rows; beyond 512 in proportion. `rows` at least 1.
  double seconds(double parameters, double rows) const;
  /// Of one product of numbers, where arithmetic counts alone.
  double of_one() const { return at[3] / kRows[3]; }
};

/// A machine whose disk takes part, or, of experts in RAM, the bus between host and device: copies in place of reads.
struct StreamHardware {
  ProductSpeed fp4, fp8, bf16;        // of routed experts; of other products in FP8; in BF16
  double disk_bytes_per_second = 0;   // reading or copying experts, one after the other
  double cache_bytes_per_second = 0;  // mapping experts that are in the page cache
  int64_t piece_bytes = 0;            // that an expert takes where it stays; 0: expert_page_bytes()
  int64_t limit_bytes = 0;            // of routed experts that stay
  int64_t page_cache_bytes = 0;       // what the page cache may keep of them beside that; 0 with --drop-behind
};

/// Pages that one routed expert takes where it lies among others: 20,897,792 bytes for Flash.
int64_t expert_page_bytes(const ModelConfig& config);

/// Means over steps once the resident set has settled.
struct StreamPrediction {
  double seconds = 0;       // of a step, or of a prompt
  double used = 0;          // experts a step
  double hit_ratio = 0;     // of them, in memory
  double disk_bytes = 0;    // a step; of experts in RAM, over the bus
  double wait_seconds = 0;  // a step: of `seconds`, with nothing to compute
};

/// The rates of bandwidth and arithmetic that `hardware` states, where products have not been timed.
StreamHardware stream_hardware(const Hardware& hardware);

/// One decode step of `sequences` sequences behind `context` tokens, without drafts.
/// Precondition: the limit holds two experts.
StreamPrediction predict_streamed_decode(const ModelConfig& config, const StreamHardware& hardware, int64_t sequences,
                                         int64_t context);
/// A prompt of `tokens`, in pieces of at most `step_rows`, alone on the machine; the decoder half runs its last
/// `rows_kept` rows.
StreamPrediction predict_streamed_prefill(const ModelConfig& config, const StreamHardware& hardware, int64_t tokens,
                                          int64_t rows_kept, int64_t step_rows);

}  // namespace fathom
