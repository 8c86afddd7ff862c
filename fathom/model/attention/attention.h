// fathom/model/attention/attention.h
// Everything about reading the past. Queries, the window row of each position, the global entries that a KV source
// makes, the choice of entries, one softmax over both, and the way out. Source: spec/model.md 5 to 7.
#pragma once
#include "fathom/model/attention/cache_map.h"
#include "fathom/model/attention/row_selection.h"
#include "fathom/model/batch.h"
#include "fathom/model/row_subset.h"
#include "fathom/model/step.h"
#include "fathom/model/weights.h"

namespace fathom {

/// Rows of the sub-layer's input for each purpose. They differ at the first decoder layer only, where every row feeds
/// the global cache, some rows the window, and the last ones go on (model.md 13.2).
struct AttentionRows {
  AnyView u;       // [rows, H] rows that ask
  Matrix rounded;  // the same as they enter FP8 weights
  RowSet rows;
  AnyView window_u;  // rows that get a window key; the same memory as u where they are the same rows
  RowSet window_rows;
  AnyView global_u;  // rows that feed the compressor
  RowSet global_rows;
  View<const int64_t, 1> window_begin, window_end;  // [rows] visible window positions
};

/// What layers of one call hand on to later layers.
struct Shared {
  RowSelection selection;
  Candidates candidates;
};

/// What attention needs to know of its surroundings; the same for every layer of a call.
struct AttentionContext {
  const CacheMap& map;
  CacheMemory& cache;
  View<const int32_t, 2> blocks;             // [sequences, most blocks]; empty for draft stages
  View<const int32_t, 1> slots;              // [sequences]
  View<const int64_t, 1> store_from;         // [sequences] rows below store no global entries
  std::span<const float> plain, compressed;  // rotary frequencies
  std::span<const WindowCapture> captures;   // of encoder layers
  int64_t most_entries = 0;                  // largest number of visible entries of any row, for traced scores
};

/// Queries of a row: the normed low-rank form, which the indexer shares, and the heads, turned.
struct Queries {
  Matrix low_rank;   // [rows, q_lora_rank] as it enters FP8 weights
  AnyViewMut heads;  // [rows, heads * D]
};
/// `beside`: u is the input of the product queued just ahead (ops.h).
Queries project_queries(Step& step, const BlockWeights& w, const Matrix& u, const RowSet& rows,
                        std::span<const float> frequencies, bool beside);

/// Keys of rows, [rows, D], and the same as the cache keeps them: normed, turned and encoded, [rows, entry bytes].
AnyViewMut window_rows(Step& step, const BlockWeights& w, const Matrix& u);
View<uint8_t, 2> window_entries(Step& step, const BlockWeights& w, AnyView rows, View<const int64_t, 1> positions,
                                std::span<const float> frequencies, RowFormat format);

/// [rows, heads * D] attention output -> [rows, H]: turns it back, group projection, output projection. `o` may be
/// changed.
AnyViewMut project_out(Step& step, const BlockWeights& w, AnyViewMut o, View<const int64_t, 1> positions,
                       std::span<const float> frequencies);

/// KV sources: entries and index keys of the groups that these rows complete go into the pages, raw projections into
/// the state ring. Source: model.md 6, 7.2.
void store_global(Step& step, const AttentionContext& context, const BlockWeights& w, int layer, const LayerPlan& plan,
                  AnyView u, const RowSet& rows);

/// Index sources: scores and selects; a candidate source also fills shared.candidates, layers behind it read them.
/// Source: model.md 7.
void select_entries(Step& step, const AttentionContext& context, const BlockWeights& w, int layer,
                    const LayerPlan& plan, AnyView u, const Matrix& low_rank, const RowSet& rows, Shared& shared);

/// One backbone layer's attention: [rows, H].
AnyViewMut attention(Step& step, const AttentionContext& context, const BlockWeights& w, int layer,
                     const LayerPlan& plan, const AttentionRows& in, Shared& shared);

}  // namespace fathom
