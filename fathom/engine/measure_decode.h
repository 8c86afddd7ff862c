// fathom/engine/measure_decode.h
// Times decode steps of a model before anybody uses it: the start of the cost curve that scheduled drafts rest on.
// Source: spec/engine.md 7.3.
#pragma once
#include <vector>

#include "fathom/engine/cost_curve.h"
#include "fathom/engine/runner.h"

namespace fathom {

/// Sizes worth timing up to `most` rows: 1, 2, 4, 6, 8, 12, 16, 24, ... (two a doubling), and `most`.
std::vector<int> curve_sizes(int most);

/// Forward passes of `sizes` rows, all of whose logits are wanted, spread over at most `sequences` sequences at the
/// beginning of their text. Uses the cache's first slots and blocks, which must be nobody's: what it writes there is
/// garbage that whoever takes them later overwrites. Errors: those of measure_cost_curve.
Result<CostCurve> measure_decode(const ModelPort& port, std::span<const int> sizes, int sequences);

}  // namespace fathom
