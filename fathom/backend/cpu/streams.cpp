// Hyper-connections of four streams (other counts: the definition). The mixing weights cost most: 24 products of a
// row's four streams, then 20 rounds of normalising a 4 x 4 matrix.
//   products   columns in chunks that keep the 24 rows of `fn` in the first cache while all rows of the batch meet
//   them;
//              each product is summed in 16 lanes, whatever the chunk
//   Sinkhorn   matrices of many rows side by side in lanes: nothing crosses lanes
#include "fathom/backend/cpu/row_operations.h"
#include "fathom/backend/cpu/scratch.h"
#include "fathom/backend/reference/reference.h"

namespace fathom::cpu {
namespace {

constexpr int kStreams = 4;
constexpr int kOutputs = (2 + kStreams) * kStreams;
constexpr int64_t kChunk = 256;    // columns: 24 KB of fn
constexpr int64_t kRowBlock = 16;  // rows whose sums wait in scratch, and matrices side by side

// Adds columns [0, n) of x . fn[o] to the lanes of 4 outputs, and of x . x where `squares` is given. n is a multiple of
// 16 but at the end of a row.
template <class T>
[[gnu::always_inline]] inline void add_products(const T* x, const float* fn, int64_t stride, int64_t n,
                                                float* __restrict lanes) {
  float a[kLanes], b[kLanes], c[kLanes], d[kLanes];
#pragma GCC unroll 1
  for (int l = 0; l < kLanes; ++l) {
    a[l] = lanes[l];
    b[l] = lanes[kLanes + l];
    c[l] = lanes[2 * kLanes + l];
    d[l] = lanes[3 * kLanes + l];
  }
  const float *fa = fn, *fb = fn + stride, *fc = fn + 2 * stride, *fd = fn + 3 * stride;
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
#pragma GCC unroll 1
    for (int l = 0; l < kLanes; ++l) {
      const float v = number(x, i + l);
      a[l] = std::fma(v, fa[i + l], a[l]);
      b[l] = std::fma(v, fb[i + l], b[l]);
      c[l] = std::fma(v, fc[i + l], c[l]);
      d[l] = std::fma(v, fd[i + l], d[l]);
    }
  }
  for (int l = 0; i < n; ++i, ++l) {
    const float v = number(x, i);
    a[l] = std::fma(v, fa[i], a[l]);
    b[l] = std::fma(v, fb[i], b[l]);
    c[l] = std::fma(v, fc[i], c[l]);
    d[l] = std::fma(v, fd[i], d[l]);
  }
#pragma GCC unroll 1
  for (int l = 0; l < kLanes; ++l) {
    lanes[l] = a[l];
    lanes[kLanes + l] = b[l];
    lanes[2 * kLanes + l] = c[l];
    lanes[3 * kLanes + l] = d[l];
  }
}

// m [16][Width]: entry (j, k) of `Width` matrices at m[4 j + k]. Sums in rising order; a quotient is a product with the
// inverse of the sum.
template <int Width>
[[gnu::always_inline]] inline void normalize(float (*m)[Width], int line_step, int step, float eps) {
#pragma GCC unroll 4
  for (int line = 0; line < kStreams; ++line) {
    float* const a = m[line * line_step];
    float* const b = m[line * line_step + step];
    float* const c = m[line * line_step + 2 * step];
    float* const d = m[line * line_step + 3 * step];
#pragma GCC unroll 1
    for (int w = 0; w < Width; ++w) {
      const float inverse = 1 / (eps + a[w] + b[w] + c[w] + d[w]);
      a[w] *= inverse;
      b[w] *= inverse;
      c[w] *= inverse;
      d[w] *= inverse;
    }
  }
}

template <int Width>
[[gnu::always_inline]] inline void sinkhorn(float (*m)[Width], int iterations, float eps) {
  for (int j = 0; j < kStreams; ++j) {
    float(*const row)[Width] = m + kStreams * j;
#pragma GCC unroll 1
    for (int w = 0; w < Width; ++w) {
      const float best = std::max(std::max(row[0][w], row[1][w]), std::max(row[2][w], row[3][w]));
      const float a = exp_of(row[0][w] - best), b = exp_of(row[1][w] - best);
      const float c = exp_of(row[2][w] - best), d = exp_of(row[3][w] - best);
      const float inverse = 1 / (a + b + c + d);
      row[0][w] = a * inverse + eps;
      row[1][w] = b * inverse + eps;
      row[2][w] = c * inverse + eps;
      row[3][w] = d * inverse + eps;
    }
  }
  normalize<Width>(m, 1, kStreams, eps);
  for (int i = 1; i < iterations; ++i) {
    normalize<Width>(m, kStreams, 1, eps);
    normalize<Width>(m, 1, kStreams, eps);
  }
}

// From the products of `count` rows to their weights. `mixes` [24][Width]; lanes past the count compute on zeros.
template <int Width>
[[gnu::always_inline]] inline void finish(const StreamMixes& op, int64_t first, int64_t count, float (*mixes)[Width]) {
  for (int o = 0; o < kOutputs; ++o) {
    const float scale = op.scale[std::min(o / kStreams, 2)], base = op.base[o];
    const float extra = o < kStreams ? op.sinkhorn_eps : 0.0f, factor = o < kStreams ? 1.0f : 2.0f;
#pragma GCC unroll 1
    for (int w = 0; w < Width; ++w) {
      const float mix = mixes[o][w] * scale + base;
      mixes[o][w] = o < 2 * kStreams ? factor * sigmoid(mix) + extra : mix;
    }
  }
  sinkhorn<Width>(mixes + 2 * kStreams, op.iterations, op.sinkhorn_eps);
  for (int64_t w = 0; w < count; ++w) {
    float* pre = op.pre.row(first + w).data();
    float* post = op.post.row(first + w).data();
    float* comb = op.comb.row(first + w).data();
    for (int c = 0; c < kStreams; ++c) pre[c] = mixes[c][w];
    for (int c = 0; c < kStreams; ++c) post[c] = mixes[kStreams + c][w];
    for (int i = 0; i < kStreams * kStreams; ++i) comb[i] = mixes[2 * kStreams + i][w];
  }
}

// Up to kRowBlock rows. Tiles::add is add_products as a function of its own.
template <class T, int Width, class Tiles>
[[gnu::always_inline]] inline void mix_rows(const StreamMixes& op, int64_t first, int64_t count) {
  static thread_local Scratch scratch;
  const int64_t n = op.streams.cols;
  float* lanes = scratch.get<float>(count * kOutputs * kLanes);
  std::fill(lanes, lanes + count * kOutputs * kLanes, 0.0f);
  for (int64_t begin = 0; begin < n; begin += kChunk) {
    const int64_t columns = std::min(kChunk, n - begin);
    for (int64_t r = 0; r < count; ++r) {
      const T* x = row_of<T>(op.streams, first + r) + begin;
      for (int o = 0; o < kOutputs; o += 4) {
        Tiles::add(x, row_of<float>(op.fn, o) + begin, op.fn.row_stride, columns, lanes + (r * kOutputs + o) * kLanes);
      }
    }
  }
  float mixes[kOutputs][Width] = {};
  for (int64_t r = 0; r < count; ++r) {
    const float scale = inverse_rms(sum_of_squares(row_of<T>(op.streams, first + r), n), n, op.norm_eps);
    for (int o = 0; o < kOutputs; ++o) mixes[o][r] = sum_lanes(lanes + (r * kOutputs + o) * kLanes) * scale;
  }
  finish<Width>(op, first, count, mixes);
}

template <class Tiles>
[[gnu::always_inline]] inline void mix_piece(const StreamMixes& op, int64_t begin, int64_t end) {
  const bool half = op.streams.dtype == DType::bf16;
  for (int64_t r = begin; r < end; r += kRowBlock) {
    const int64_t count = std::min(kRowBlock, end - r);
    if (count > 4) {
      half ? mix_rows<uint16_t, 16, Tiles>(op, r, count) : mix_rows<float, 16, Tiles>(op, r, count);
    } else {
      half ? mix_rows<uint16_t, 4, Tiles>(op, r, count) : mix_rows<float, 4, Tiles>(op, r, count);
    }
  }
}

struct Avx2Products {
  template <class T>
  [[gnu::target("avx2,fma"), gnu::noinline]] static void add(const T* x, const float* fn, int64_t stride, int64_t n,
                                                             float* lanes) {
    add_products(x, fn, stride, n, lanes);
  }
};
struct Avx512Products {
  template <class T>
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl"), gnu::noinline]] static void add(const T* x, const float* fn,
                                                                                       int64_t stride, int64_t n,
                                                                                       float* lanes) {
    add_products(x, fn, stride, n, lanes);
  }
};

[[gnu::target("avx2,fma")]] void mixes_avx2(const StreamMixes& op, int64_t b, int64_t e) {
  mix_piece<Avx2Products>(op, b, e);
}
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]] void mixes_avx512(const StreamMixes& op, int64_t b, int64_t e) {
  mix_piece<Avx512Products>(op, b, e);
}

template <auto piece>
void run_mixes(Queue& queue, const StreamMixes& op) {
  if (op.pre.shape[1] != kStreams) return reference::stream_mixes(queue, op);
  for_row_pieces(queue, op.streams.rows, 300 + 3 * op.streams.cols / 4, [&](int64_t b, int64_t e) { piece(op, b, e); });
}

// ----------------------------------------------------------------------------------------------- using the weights
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

const Variants<StreamMixes> kStreamMixes{run_mixes<mixes_avx2>, run_mixes<mixes_avx512>};
const Variants<StreamCollapse> kStreamCollapse{run_collapse<collapse_avx2>, run_collapse<collapse_avx512>};
const Variants<StreamSpread> kStreamSpread{run_spread<spread_avx2>, run_spread<spread_avx512>};
const Variants<StreamMean> kStreamMean{run_mean<mean_avx2>, run_mean<mean_avx512>};

}  // namespace fathom::cpu
