#include "fathom/model/step_tables.h"

#include <algorithm>

namespace fathom {

namespace {

// Rows of `from`, then zeros, and zeros behind each row that is shorter.
void copy_rows(View<const int32_t, 2> from, View<int32_t, 2> to) {
  for (int64_t r = 0; r < to.shape[0]; ++r) {
    const auto row = to.row(r);
    const bool given = r < from.shape[0];
    if (given) std::copy(from.row(r).begin(), from.row(r).end(), row.begin());
    std::fill(row.begin() + (given ? from.shape[1] : 0), row.end(), 0);
  }
}

template <class T>
bool same(View<const T, 1> a, View<const T, 1> b) {
  return a.shape == b.shape && std::equal(a.data, a.data + a.shape[0], b.data);
}

// Tables are the processor's to write, until they are sent.
template <int Rank>
View<int32_t, Rank> writable(const View<const int32_t, Rank>& table) {
  return {const_cast<int32_t*>(table.data), table.shape, table.stride};
}

}  // namespace

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
    copy_rows(from, to);
    return View<const int32_t, 2>(to);
  };
  out.history = table(batch.history, batch.history.shape[0], batch.history.shape[1]);
  const int64_t columns = batch.blocks.shape[1];
  out.blocks = table(batch.blocks, batch.blocks.shape[0] + 1,
                     step.repeatable ? (columns + kTableBlocks - 1) / kTableBlocks * kTableBlocks : columns);
  return out;
}

bool is_as_expected(const Batch& batch, const Batch& tables, std::span<const Replay> replay) {
  return same(batch.rows.positions, tables.rows.positions) && same(batch.rows.sequence, tables.rows.sequence) &&
         same(batch.rows.begin, tables.rows.begin) && same(batch.slots, tables.slots) &&
         batch.ids.shape == tables.ids.shape && batch.history.shape == tables.history.shape &&
         batch.blocks.shape[1] <= tables.blocks.shape[1] &&
         std::equal(batch.replay.begin(), batch.replay.end(), replay.begin(), replay.end());
}

void fill_in(const Batch& batch, const Batch& tables) {
  std::copy_n(batch.ids.data, batch.ids.shape[0], writable(tables.ids).data);
  copy_rows(batch.history, writable(tables.history));
  copy_rows(batch.blocks, writable(tables.blocks));
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
