// fathom/model/row_subset.h
// Row sets that are part of another one: the rows that run the decoder half, that have a window key at its first layer,
// or that are near enough to the end to matter for a ring. Host arithmetic on small arrays.
#pragma once
#include "fathom/model/step.h"

namespace fathom {

/// Some rows of a larger set, in order. `index` says which; `all` that nothing was left out (then nothing need be
/// copied).
struct RowSubset {
  RowSet rows;
  View<const int32_t, 1> index;  // [rows of the subset] into the larger set
  bool all = false;
};

/// The rows r for which goes_on(r) holds. Lives as long as the call.
template <class GoesOn>
RowSubset rows_where(Step& step, const RowSet& rows, GoesOn goes_on) {
  const int64_t n = rows.rows(), sequences = rows.sequences();
  auto index = step.host.vector<int32_t>(n);
  auto begin = step.host.vector<int32_t>(sequences + 1);
  int32_t count = 0;
  for (int64_t s = 0; s < sequences; ++s) {
    begin[s] = count;
    for (int32_t r = rows.begin[s]; r < rows.begin[s + 1]; ++r) {
      if (goes_on(r)) index[count++] = r;
    }
  }
  begin[sequences] = count;
  if (count == n) return {rows, index, true};
  auto positions = step.host.vector<int64_t>(count);
  auto sequence = step.host.vector<int32_t>(count);
  for (int32_t i = 0; i < count; ++i) {
    positions[i] = rows.positions[index[i]];
    sequence[i] = rows.sequence[index[i]];
  }
  return {{positions, sequence, begin}, View<const int32_t, 1>(index.data, {count}), false};
}

/// The rows of each sequence at or above from(sequence).
template <class From>
RowSubset rows_from(Step& step, const RowSet& rows, From from) {
  return rows_where(step, rows, [&](int32_t r) { return rows.positions[r] >= from(rows.sequence[r]); });
}

/// The subset's rows of `source` (rows of the larger set), copied unless nothing was left out.
inline AnyView take(Step& step, const RowSubset& subset, AnyView source) {
  if (subset.all) return source;
  const AnyViewMut out = step.scratch.rows(source.dtype, subset.rows.rows(), source.cols);
  step.ops.gather_rows(step.queue, {source, subset.index, out});
  return out;
}

}  // namespace fathom
