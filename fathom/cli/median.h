// fathom/cli/median.h
// The middle of measured values, by which benches tell what repeats have in common.
#pragma once
#include <vector>

namespace fathom::cli {

/// Of an even number the mean of the two in the middle. `values` must not be empty.
double median(std::vector<double> values);

}  // namespace fathom::cli
