// Hyper-connections of four streams (other counts: the definition, row by row): reading the streams with their weights,
// and writing them.
#include <vector>

#include "fathom/backend/cpu/row_operations.h"
#include "fathom/backend/cpu/row_steps.h"
#include "fathom/backend/cpu/scratch.h"
#include "fathom/backend/reference/reference.h"

namespace fathom::cpu {
namespace {

constexpr int kStreams = 4;

// Any number of streams.
template <class T>
void collapse_any(const AnyView& streams, const View<const float, 2>& pre, int64_t r, int64_t n, T* out) {
  std::vector<float> row(size_t(n), 0.0f);
  reference::collapse_row(streams, pre, r, row);
  for (int64_t h = 0; h < n; ++h) put(out, h, row[size_t(h)]);
}
template <class T>
void spread_any(const StreamSpread& op, int64_t r, const T* y) {
  std::vector<float> row(size_t(op.y.cols), 0.0f);
  for (int64_t h = 0; h < op.y.cols; ++h) row[size_t(h)] = number(y, h);
  reference::spread_row(op, r, row);
}

// The streams x of a row, normed and in Q8 where that is wanted. `spare` [n]: where the row goes that nobody wants.
template <class Codes, class T>
[[gnu::always_inline]] inline void collapse_row(const StreamCollapse& op, const T* x, int64_t n, int64_t r, T* spare) {
  T* const out = row_or(op.out, r, spare);
  if (op.pre.shape[1] == kStreams) {
    T* __restrict to = out;
    const float* w = op.pre.row(r).data();
    const float a = w[0], b = w[1], c = w[2], d = w[3];
    for (int64_t h = 0; h < n; ++h) {
      const float ab = std::fma(b, number(x, n + h), a * number(x, h));
      put(to, h, std::fma(d, number(x, 3 * n + h), std::fma(c, number(x, 2 * n + h), ab)));
    }
  } else {
    collapse_any(op.streams, op.pre, r, n, out);
  }
  if (op.norm.wanted()) norm_row(out, op.norm, n, out);
  put_q8<Codes>(op.q8, r, out);
}

template <class Codes, class T>
[[gnu::always_inline]] inline void collapse_rows(const StreamCollapse& op, int64_t begin, int64_t end) {
  static thread_local Scratch scratch;
  const int64_t n = op.streams.cols / op.pre.shape[1];
  T* const spare = scratch.get<T>(n);
  for (int64_t r = begin; r < end; ++r) collapse_row<Codes>(op, row_of<T>(op.streams, r), n, r, spare);
}

template <class T>
[[gnu::always_inline]] inline void spread_row(const T* y, const float* post_row, const float* comb_row, int64_t n,
                                              T* x) {
  float post[kStreams], m[kStreams * kStreams];
  for (int i = 0; i < kStreams; ++i) post[i] = post_row[i];
  for (int i = 0; i < kStreams * kStreams; ++i) m[i] = comb_row[i];
  // Blocks go through local memory: a block of all four streams is read before it is written.
  for (int64_t first = 0; first < n; first += 64) {
    const int64_t count = std::min<int64_t>(64, n - first);
    float out[kStreams][64];
    for (int64_t i = 0; i < count; ++i) {
      const float a = number(x, first + i), b = number(x, n + first + i);
      const float c = number(x, 2 * n + first + i), d = number(x, 3 * n + first + i), v = number(y, first + i);
#pragma GCC unroll 4
      for (int k = 0; k < kStreams; ++k) {
        const float ab = std::fma(m[4 + k], b, std::fma(m[k], a, post[k] * v));
        out[k][i] = std::fma(m[12 + k], d, std::fma(m[8 + k], c, ab));
      }
    }
    for (int k = 0; k < kStreams; ++k) {
      for (int64_t i = 0; i < count; ++i) put(x, k * n + first + i, out[k][i]);
    }
  }
}

template <class Codes, class T>
[[gnu::always_inline]] inline void spread_rows(const StreamSpread& op, int64_t begin, int64_t end) {
  static thread_local Scratch y_scratch, sum_scratch, spare_scratch;
  const int64_t n = op.y.cols;
  const bool sums = !op.routed.empty(), collapses = !op.next.pre.empty();
  StreamCollapse next = op.next;
  next.streams = op.streams;
  T* const all = y_scratch.get<T>(sums ? n : 0);
  float* const sum = sum_scratch.get<float>(sums ? n : 0);
  T* const spare = spare_scratch.get<T>(collapses ? n : 0);
  for (int64_t r = begin; r < end; ++r) {
    const T* y = row_of<T>(op.y, r);
    T* x = row_of<T>(op.streams, r);
    if (sums) {
      combine_row(op.routed, op.place, y, r, n, sum, all);
      y = all;
    }
    if (op.post.shape[1] == kStreams) {
      spread_row(y, op.post.row(r).data(), op.comb.row(r).data(), n, x);
    } else {
      spread_any(op, r, y);
    }
    if (collapses) collapse_row<Codes>(next, x, n, r, spare);
  }
}

template <class T>
[[gnu::always_inline]] inline void mean_rows(const StreamMean& op, int64_t begin, int64_t end) {
  const int64_t n = op.out.cols;
  for (int64_t r = begin; r < end; ++r) {
    const T* x = row_of<T>(op.streams, r);
    T* __restrict out = row_of<T>(op.out, r);
    for (int64_t h = 0; h < n; ++h) {
      put(out, h, (number(x, h) + number(x, n + h) + number(x, 2 * n + h) + number(x, 3 * n + h)) * 0.25f);
    }
  }
}

[[gnu::target("avx2,fma")]] void collapse_avx2(const StreamCollapse& op, int64_t b, int64_t e) {
  if (op.streams.dtype == DType::bf16) return collapse_rows<Avx2Codes, uint16_t>(op, b, e);
  collapse_rows<Avx2Codes, float>(op, b, e);
}
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]] void collapse_avx512(const StreamCollapse& op, int64_t b,
                                                                           int64_t e) {
  if (op.streams.dtype == DType::bf16) return collapse_rows<Avx512Codes, uint16_t>(op, b, e);
  collapse_rows<Avx512Codes, float>(op, b, e);
}
[[gnu::target("avx2,fma")]] void spread_avx2(const StreamSpread& op, int64_t b, int64_t e) {
  op.y.dtype == DType::bf16 ? spread_rows<Avx2Codes, uint16_t>(op, b, e) : spread_rows<Avx2Codes, float>(op, b, e);
}
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]] void spread_avx512(const StreamSpread& op, int64_t b, int64_t e) {
  op.y.dtype == DType::bf16 ? spread_rows<Avx512Codes, uint16_t>(op, b, e) : spread_rows<Avx512Codes, float>(op, b, e);
}
[[gnu::target("avx2,fma")]] void mean_avx2(const StreamMean& op, int64_t b, int64_t e) {
  op.out.dtype == DType::bf16 ? mean_rows<uint16_t>(op, b, e) : mean_rows<float>(op, b, e);
}
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]] void mean_avx512(const StreamMean& op, int64_t b, int64_t e) {
  op.out.dtype == DType::bf16 ? mean_rows<uint16_t>(op, b, e) : mean_rows<float>(op, b, e);
}

int64_t collapse_ns(const StreamCollapse& op, int64_t n) {
  return 10 + n / 4 + (op.norm.wanted() ? n / 8 : 0) + (op.q8.wanted() ? n / 4 : 0);
}

template <auto piece>
void run_collapse(Queue& queue, const StreamCollapse& op) {
  for_row_pieces(queue, op.streams.rows, collapse_ns(op, op.streams.cols / op.pre.shape[1]),
                 [&](int64_t b, int64_t e) { piece(op, b, e); });
}
template <auto piece>
void run_spread(Queue& queue, const StreamSpread& op) {
  const int64_t n = op.y.cols, sum_ns = op.routed.empty() ? 0 : n * (op.place.shape[1] + 2) / 10;
  const int64_t next_ns = op.next.pre.empty() ? 0 : collapse_ns(op.next, n);
  for_row_pieces(queue, op.y.rows, 10 + n + sum_ns + next_ns, [&](int64_t b, int64_t e) { piece(op, b, e); });
}
template <auto piece>
void run_mean(Queue& queue, const StreamMean& op) {
  if (op.count != kStreams) return reference::stream_mean(queue, op);
  for_row_pieces(queue, op.streams.rows, 10 + op.out.cols / 4, [&](int64_t b, int64_t e) { piece(op, b, e); });
}

}  // namespace

const Variants<StreamCollapse> kStreamCollapse{run_collapse<collapse_avx2>, run_collapse<collapse_avx512>};
const Variants<StreamSpread> kStreamSpread{run_spread<spread_avx2>, run_spread<spread_avx512>};
const Variants<StreamMean> kStreamMean{run_mean<mean_avx2>, run_mean<mean_avx512>};

}  // namespace fathom::cpu
