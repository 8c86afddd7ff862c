#include "fathom/model/step_tables.h"

#include <algorithm>

namespace fathom {

Batch as_tables(Step& step, const Batch& batch) {
  Batch out = batch;
  Scratch& tables = step.host;
  out.rows = {copied(tables, batch.rows.positions), copied(tables, batch.rows.sequence),
              copied(tables, batch.rows.begin)};
  out.ids = copied(tables, batch.ids);
  if (!batch.image.empty()) out.image = copied(tables, batch.image);
  out.slots = copied(tables, batch.slots);
  out.logit_rows = batch.logit_rows;  // the processor's
  const auto table = [&](View<const int32_t, 2> from, int64_t rows, int64_t columns) {
    const auto to = tables.table<int32_t>(rows, columns);
    for (int64_t r = 0; r < rows; ++r) {
      const auto row = to.row(r);
      const bool given = r < from.shape[0];
      if (given) std::copy(from.row(r).begin(), from.row(r).end(), row.begin());
      std::fill(row.begin() + (given ? from.shape[1] : 0), row.end(), 0);
    }
    return View<const int32_t, 2>(to);
  };
  out.history = table(batch.history, batch.history.shape[0], batch.history.shape[1]);
  const int64_t columns = batch.blocks.shape[1];
  out.blocks = table(batch.blocks, batch.blocks.shape[0] + 1,
                     step.repeatable ? (columns + kTableBlocks - 1) / kTableBlocks * kTableBlocks : columns);
  return out;
}

bool is_repeatable(const ModelConfig& config, int ring_rows, const Batch& batch) {
  const RowSet& rows = batch.rows;
  if (!batch.captures.empty() || !batch.image.empty() || batch.logit_rows.shape[0] != rows.rows()) return false;
  int64_t most_ratio = 1;
  for (const int ratio : config.compress_ratios) most_ratio = std::max<int64_t>(most_ratio, ratio);
  for (int64_t r = 0; r < rows.rows(); ++r) {
    const Replay& replay = batch.replay[size_t(rows.sequence[r])];
    const int64_t least =
        std::max({replay.store_from, replay.decoder_from, replay.decoder_window_from, most_ratio - 1});
    if (rows.positions[r] < least) return false;
  }
  for (int64_t s = 0; s < rows.sequences(); ++s) {
    if (rows.begin[s + 1] - rows.begin[s] > ring_rows) return false;
  }
  return rows.rows() > 0;
}

}  // namespace fathom
