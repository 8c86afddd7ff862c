// fathom/engine/speculate.h
// How many drafts each sequence verifies in the next step. A verified draft brings a token with the probability that it
// and all before it are accepted, and costs a row; rows are cheap up to the size that the machine runs next and dear
// beyond it. So: take the number of rows b* that brings most expected tokens a millisecond, then give its b* - n extra
// rows to the likeliest drafts of all n sequences. Pure; no device, no clock. Source: spec/engine.md 7.3, 7.4 (R-28,
//
//
// Which confidences. Whether draft k of a block is verified must not depend on the confidences of later drafts of the
// same block, or the accepted text would be biased: a number of rows that is chosen by the whole block tells something
// about its end. Therefore
//   choose_rows() takes the confidences of the round BEFORE the one whose drafts are verified: two rounds ago as seen
//                 from the step that it plans, and the newest that the host has in asynchronous mode anyway;
//   split_rows()  takes the newest, those of the drafts that are verified. Given the number of rows, the split of a
//                 prefix looks at cumulative products only, which no later draft changes.
// A confidence that is missing (NaN) counts 1 where the draft exists: of a sequence whose round before had none. A
// draft that does not exist counts 0 and never gets a row: a sequence just out of its prompt takes 1 row.
#pragma once
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "fathom/tensor/view.h"

namespace fathom {

/// Measured time of a step's forward pass.
struct CostPoint {
  int rows = 0;
  double milliseconds = 0;
  friend bool operator==(const CostPoint&, const CostPoint&) = default;
};

/// T(b) = time of b rows by the curve + max(0, slope) * rows + sampler.
struct StepCost {
  std::span<const CostPoint> curve;  // rising rows
  double slope_milliseconds = 0;     // a row; what the curve misses today, such as long contexts
  double sampler_milliseconds = 0;   // for n sequences: all of a step that does not depend on its rows
  /// true: the machine has the curve's sizes only, and a step is padded to the next one (captured graphs). false: any
  /// number of rows runs as it is, and the curve is read linearly between its points.
  bool padded = true;
};

/// Infinite beyond the curve's last point.
double step_milliseconds(const StepCost& cost, int rows);

struct Confidences {
  View<const float, 2> values;  // [sequences, most drafts] each in [0, 1], or NaN: missing
  std::span<const int> drafts;  // [sequences] that exist now and may be verified; at most the row's length
};

struct RowChoice {
  int rows = 0;  // b*, of all sequences together; n when nothing is worth verifying
  double expected_tokens = 0;
  double milliseconds = 0;
};

/// Keeps scratch between calls: nothing is allocated once it has seen the largest step. One thread at a time.
/// Cost at 256 sequences x 5 drafts: speculate_bench.cpp (a radix sort of 1,280 products, then one pass over the
/// curve).
class VerificationPlanner {
 public:
  /// The first maximum of E(b) / T(b) over b = n, n + 1, ..., where E(b) = n + the b - n largest cumulative
  /// confidences. A curve that ends below n gives n rows and infinite time.
  RowChoice choose_rows(const StepCost& cost, const Confidences& older);

  /// Gives each of `sequences` 1 row and the total_rows - n best drafts one more, best cumulative confidence first,
  /// ties to the earlier (sequence, draft). `rows` [sequences] out; their sum is less than total_rows when fewer drafts
  /// exist.
  void split_rows(int total_rows, const Confidences& newest, std::span<int> rows);

 private:
  void list(const Confidences& from);
  void sort_falling();

  std::vector<uint32_t> keys_, sorted_keys_;   // cumulative confidence as bits, falling once sorted
  std::vector<int32_t> owner_, sorted_owner_;  // sequence of each
};

/// The definition of the split for a device kernel (spec 7.4): each draft ranks itself among all of them, and a
/// sequence takes 1 + the number of its drafts whose rank is below total_rows - n. Quadratic; equals split_rows().
void split_rows_by_rank(int total_rows, const Confidences& newest, std::span<int> rows);

}  // namespace fathom
