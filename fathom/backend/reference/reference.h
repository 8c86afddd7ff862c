// fathom/backend/reference/reference.h
// The definitions of the operations of ops.h, one function each. Slow, in double, rounded once at the store.
#pragma once
#include <algorithm>
#include <cmath>
#include <span>

#include "fathom/backend/backend.h"

namespace fathom::reference {

void embed(Queue&, const Embed&);
void gather_rows(Queue&, const GatherRows&);
void add_rows(Queue&, const AddRows&);
void quantize_rows(Queue&, const QuantizeRows&);
void linear(Queue&, const Linear&);
void grouped_linear(Queue&, const GroupedLinear&);
void rms_norm(Queue&, const RmsNorm&);
void rope(Queue&, const Rope&);
void encode_rows(Queue&, const EncodeRows&);
void store_ring(Queue&, const StoreRing&);
void store_paged(Queue&, const StorePaged&);
void compress(Queue&, const Compress&);
void select_rows(Queue&, const SelectRows&);
void latent_attention(Queue&, const LatentAttention&);
void gate(Queue&, const Gate&);
void group_by_expert(Queue&, const GroupByExpert&);
void swiglu(Queue&, const SwiGlu&);
void combine(Queue&, const Combine&);
void engram_hash(Queue&, const NgramHash&);
void engram_gather(Queue&, const EngramGather&);
void engram_mix(Queue&, const EngramMix&);
void stream_mixes(Queue&, const StreamMixes&);
void stream_collapse(Queue&, const StreamCollapse&);
void stream_spread(Queue&, const StreamSpread&);
void stream_mean(Queue&, const StreamMean&);
void sample(Queue&, const Sample&);
void accept(Queue&, const Accept&);

/// Rows of an operation that only moves data: fewer are not worth waking a thread.
inline constexpr int64_t kMoves = 64;

/// Calls body(r) for every row, on the queue's threads, at least `worth` rows at a time. Rows do not depend on each
/// other, so the order does not matter.
template <class Body>
void for_each_row(Queue& queue, int64_t rows, int64_t worth, const Body& body) {
  const int64_t grain = std::max(worth, rows / (8 * queue.pool.threads()));
  queue.pool.run(rows, grain, [&body](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) body(r);
  });
}
template <class Body>
void for_each_row(Queue& queue, int64_t rows, const Body& body) {
  for_each_row(queue, rows, 1, body);
}

/// 1 / sqrt(mean square + eps) of n numbers with this sum of squares; 0 for a row of zeros without eps, so that nothing
/// becomes NaN.
inline double inverse_rms(double sum_of_squares, int64_t n, double eps) {
  const double mean = sum_of_squares / double(n) + eps;
  return mean > 0 ? 1 / std::sqrt(mean) : 0;
}

/// Steps that operations take with them, of one row. Rows are numbers of A, and results are rounded to it.
void norm_row(DType a, std::span<float> row, std::span<const float> weight, double eps);
void turn_row(DType a, std::span<float> row, int heads, const Turn& turn, int64_t r);
void collapse_row(const AnyView& streams, View<const float, 2> pre, int64_t r, std::span<float> out);
void combine_row(const AnyView& routed, View<const int32_t, 2> place, const AnyView& shared, int64_t r,
                 std::span<float> out);
/// y [H]: what op.y is to be.
void spread_row(const StreamSpread& op, int64_t r, std::span<const float> y);
void put_q8(const Q8Rows& q8, int64_t r, std::span<const float> row);
/// Into `out` unless it is empty, and into `q8` if it is wanted.
void put_row(const AnyViewMut& out, const Q8Rows& q8, int64_t r, std::span<const float> row);

}  // namespace fathom::reference
