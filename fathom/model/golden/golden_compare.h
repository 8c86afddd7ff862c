// fathom/model/golden/golden_compare.h
// Comparing one stage: largest and mean difference, where, and whether the stage's tolerance holds. Private to the
// room.
#pragma once
#include <span>

#include "fathom/model/golden/golden.h"

namespace fathom {

/// What has to hold of a stage. Reasons: docs/numerics.md.
struct Tolerance {
  double max_abs = 0;     // for at least `share` of the rows, relative to the larger of 1 and the stage's largest value
  double share = 1;       // of rows (the last dimension is a row)
  double max_of_all = 0;  // absolute limit for every value; 0: none
  double mean_abs = 0;    // limit of the mean; 0: none
  bool same_argmax = false;  // every row's largest entry is at the same place
  bool informative = false;  // printed, never failed
};

/// `row_length` values make a row. Fills stage figures, tolerance text and verdict.
GoldenRow compare_stage(std::string stage, std::span<const float> found, std::span<const float> expected,
                        int64_t row_length, const Tolerance& tolerance);

}  // namespace fathom
