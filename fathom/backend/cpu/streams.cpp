// Hyper-connections of four streams (other counts: the definition): reading the streams with their weights, and writing
// them.
#include "fathom/backend/cpu/row_operations.h"
#include "fathom/backend/reference/reference.h"

namespace fathom::cpu {
namespace {

constexpr int kStreams = 4;

template <class T>
[[gnu::always_inline]] inline void collapse_rows(const StreamCollapse& op, int64_t begin, int64_t end) {
  const int64_t n = op.out.cols;
  for (int64_t r = begin; r < end; ++r) {
    const T* x = row_of<T>(op.streams, r);
    T* __restrict out = row_of<T>(op.out, r);
    const float* w = op.pre.row(r).data();
    const float a = w[0], b = w[1], c = w[2], d = w[3];
    for (int64_t h = 0; h < n; ++h) {
      const float ab = std::fma(b, number(x, n + h), a * number(x, h));
      put(out, h, std::fma(d, number(x, 3 * n + h), std::fma(c, number(x, 2 * n + h), ab)));
    }
  }
}

template <class T>
[[gnu::always_inline]] inline void spread_rows(const StreamSpread& op, int64_t begin, int64_t end) {
  const int64_t n = op.y.cols;
  for (int64_t r = begin; r < end; ++r) {
    const T* y = row_of<T>(op.y, r);
    T* x = row_of<T>(op.streams, r);
    float post[kStreams], m[kStreams * kStreams];
    for (int i = 0; i < kStreams; ++i) post[i] = op.post.row(r)[size_t(i)];
    for (int i = 0; i < kStreams * kStreams; ++i) m[i] = op.comb.row(r)[size_t(i)];
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
  op.out.dtype == DType::bf16 ? collapse_rows<uint16_t>(op, b, e) : collapse_rows<float>(op, b, e);
}
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]] void collapse_avx512(const StreamCollapse& op, int64_t b,
                                                                           int64_t e) {
  op.out.dtype == DType::bf16 ? collapse_rows<uint16_t>(op, b, e) : collapse_rows<float>(op, b, e);
}
[[gnu::target("avx2,fma")]] void spread_avx2(const StreamSpread& op, int64_t b, int64_t e) {
  op.y.dtype == DType::bf16 ? spread_rows<uint16_t>(op, b, e) : spread_rows<float>(op, b, e);
}
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]] void spread_avx512(const StreamSpread& op, int64_t b, int64_t e) {
  op.y.dtype == DType::bf16 ? spread_rows<uint16_t>(op, b, e) : spread_rows<float>(op, b, e);
}
[[gnu::target("avx2,fma")]] void mean_avx2(const StreamMean& op, int64_t b, int64_t e) {
  op.out.dtype == DType::bf16 ? mean_rows<uint16_t>(op, b, e) : mean_rows<float>(op, b, e);
}
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]] void mean_avx512(const StreamMean& op, int64_t b, int64_t e) {
  op.out.dtype == DType::bf16 ? mean_rows<uint16_t>(op, b, e) : mean_rows<float>(op, b, e);
}

template <auto piece>
void run_collapse(Queue& queue, const StreamCollapse& op) {
  if (op.pre.shape[1] != kStreams) return reference::stream_collapse(queue, op);
  for_row_pieces(queue, op.streams.rows, 10 + op.out.cols / 4, [&](int64_t b, int64_t e) { piece(op, b, e); });
}
template <auto piece>
void run_spread(Queue& queue, const StreamSpread& op) {
  if (op.post.shape[1] != kStreams) return reference::stream_spread(queue, op);
  for_row_pieces(queue, op.y.rows, 10 + op.y.cols, [&](int64_t b, int64_t e) { piece(op, b, e); });
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
