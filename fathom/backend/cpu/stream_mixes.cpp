// The mixing weights of four streams (other counts: the definition): 24 products of a row's streams, then 20 rounds of
// normalising a 4 x 4 matrix.
//   products   each is summed in 16 lanes (lanes.h), in a tile of up to four rows by six outputs (AVX2: one by four),
//              whose sums stay in registers: how rows are grouped does not change a sum
//   Sinkhorn   the matrices of many rows lie side by side in lanes, so that sums are between vectors; with AVX-512 the
//              matrix of a row alone is one vector, and the same sums are of its shuffles: 40 rounds that wait for each
//              other's quotients, 28 cycles each
#include <immintrin.h>

#include "fathom/backend/cpu/row_operations.h"
#include "fathom/backend/reference/reference.h"

namespace fathom::cpu {
namespace {

constexpr int kStreams = 4;
constexpr int kOutputs = (2 + kStreams) * kStreams;
constexpr int kRowBlock = 16;  // matrices side by side

// ------------------------------------------------------------------------------------------------------- products
// Four outputs of one row: out[o] = x . fn[o].
template <class T>
[[gnu::always_inline]] inline void four_products(const T* x, const float* fn, int64_t stride, int64_t n,
                                                 float* __restrict out) {
  float a[kLanes] = {}, b[kLanes] = {}, c[kLanes] = {}, d[kLanes] = {};
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
  out[0] = sum_lanes(a);
  out[1] = sum_lanes(b);
  out[2] = sum_lanes(c);
  out[3] = sum_lanes(d);
}

struct Avx2Products {
  static constexpr bool kMatrices = false;  // whether a matrix can be a register
  template <class T>
  [[gnu::target("avx2,fma"), gnu::noinline]] static void four(const T* x, const float* fn, int64_t stride, int64_t n,
                                                              float* out) {
    four_products(x, fn, stride, n, out);
  }
  /// products[r][o] for `count` rows that lie x_stride apart.
  template <class T>
  [[gnu::target("avx2,fma")]] static void all(const T* x, int64_t x_stride, int64_t count, const float* fn,
                                              int64_t stride, int64_t n, float* products) {
    for (int o = 0; o < kOutputs; o += 4) {
      for (int64_t r = 0; r < count; ++r) {
        four(x + r * x_stride, fn + o * stride, stride, n, products + r * kOutputs + o);
      }
    }
  }
  template <class T>
  [[gnu::target("avx2,fma")]] static void squares(const T* x, int64_t x_stride, int64_t count, int64_t n, float* out) {
    for (int64_t r = 0; r < count; ++r) out[r] = sum_of_squares(x + r * x_stride, n);
  }
};

struct Avx512Products {
  static constexpr bool kMatrices = true;
  static constexpr int kTileOutputs = 6;  // by four rows: 24 sums, 6 weights and a value in 32 registers
  /// Sixteen numbers, or those in `lanes`: a mask costs a vector operation of its own.
  template <bool Whole>
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl"), gnu::always_inline]] static inline __m512 load(const float* x,
                                                                                                      __mmask16 lanes) {
    return Whole ? _mm512_loadu_ps(x) : _mm512_maskz_loadu_ps(lanes, x);
  }
  template <bool Whole>
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl"), gnu::always_inline]] static inline __m512 load(const uint16_t* x,
                                                                                                      __mmask16 lanes) {
    const __m256i codes =
        Whole ? _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x)) : _mm256_maskz_loadu_epi16(lanes, x);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(codes), 16));
  }
  /// The tree of sum_lanes.
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]] static float sum(__m512 lanes) {
    const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(lanes), _mm512_extractf32x8_ps(lanes, 1));
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
  }
  /// Sixteen products for each of the sums of a tile.
  template <bool Whole, int Rows, class T>
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl"), gnu::always_inline]] static inline void add_lanes(
      const T* x, int64_t x_stride, const float* fn, int64_t stride, __mmask16 lanes,
      __m512 (&sums)[Rows][kTileOutputs]) {
    __m512 w[kTileOutputs];
#pragma GCC unroll 6
    for (int o = 0; o < kTileOutputs; ++o) w[o] = load<Whole>(fn + o * stride, lanes);
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r) {
      const __m512 v = load<Whole>(x + r * x_stride, lanes);
#pragma GCC unroll 6
      for (int o = 0; o < kTileOutputs; ++o) sums[r][o] = _mm512_fmadd_ps(v, w[o], sums[r][o]);
    }
  }
  /// A tile of `Rows` rows and six outputs.
  template <int Rows, class T>
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl"), gnu::noinline]] static void tile(const T* x, int64_t x_stride,
                                                                                        const float* fn, int64_t stride,
                                                                                        int64_t n, float* products) {
    __m512 sums[Rows][kTileOutputs];
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 6
      for (int o = 0; o < kTileOutputs; ++o) sums[r][o] = _mm512_setzero_ps();
    }
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) add_lanes<true, Rows>(x + i, x_stride, fn + i, stride, 0xffff, sums);
    if (i < n) add_lanes<false, Rows>(x + i, x_stride, fn + i, stride, __mmask16((1 << (n - i)) - 1), sums);
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 6
      for (int o = 0; o < kTileOutputs; ++o) products[r * kOutputs + o] = sum(sums[r][o]);
    }
  }
  template <class T>
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]] static void all(const T* x, int64_t x_stride, int64_t count,
                                                                        const float* fn, int64_t stride, int64_t n,
                                                                        float* products) {
    for (int o = 0; o < kOutputs; o += kTileOutputs) {
      const float* w = fn + o * stride;
      int64_t r = 0;
      for (; r + 4 <= count; r += 4) {
        tile<4>(x + r * x_stride, x_stride, w, stride, n, products + r * kOutputs + o);
      }
      for (; r + 2 <= count; r += 2) {
        tile<2>(x + r * x_stride, x_stride, w, stride, n, products + r * kOutputs + o);
      }
      if (r < count) tile<1>(x + r * x_stride, x_stride, w, stride, n, products + r * kOutputs + o);
    }
  }
  template <int Rows, class T>
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl"), gnu::noinline]] static void squares_of(const T* x,
                                                                                              int64_t x_stride,
                                                                                              int64_t n, float* out) {
    __m512 sums[Rows];
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r) sums[r] = _mm512_setzero_ps();
    for (int64_t i = 0; i < n; i += kLanes) {
      const __mmask16 lanes = n - i >= kLanes ? __mmask16(0xffff) : __mmask16((1 << (n - i)) - 1);
#pragma GCC unroll 4
      for (int r = 0; r < Rows; ++r) {
        const __m512 v = load<false>(x + r * x_stride + i, lanes);
        sums[r] = _mm512_fmadd_ps(v, v, sums[r]);
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < Rows; ++r) out[r] = sum(sums[r]);
  }
  /// sum_of_squares of each row: four at a time, for one alone waits for its own sums.
  template <class T>
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]] static void squares(const T* x, int64_t x_stride, int64_t count,
                                                                            int64_t n, float* out) {
    int64_t r = 0;
    for (; r + 4 <= count; r += 4) squares_of<4>(x + r * x_stride, x_stride, n, out + r);
    for (; r < count; ++r) squares_of<1>(x + r * x_stride, x_stride, n, out + r);
  }
};

// ------------------------------------------------------------------------------------------------------- Sinkhorn
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

// One row with its matrix in a register: every number as in `finish`.
struct Avx512Matrix {
  template <bool Columns>
  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl"), gnu::always_inline]] static inline __m512 normalized(
      __m512 m, __m512 eps) {
    __m512 sum;
    if constexpr (Columns) {
      sum = _mm512_add_ps(eps, _mm512_shuffle_f32x4(m, m, 0x00));
      sum = _mm512_add_ps(sum, _mm512_shuffle_f32x4(m, m, 0x55));
      sum = _mm512_add_ps(sum, _mm512_shuffle_f32x4(m, m, 0xaa));
      sum = _mm512_add_ps(sum, _mm512_shuffle_f32x4(m, m, 0xff));
    } else {
      sum = _mm512_add_ps(eps, _mm512_permute_ps(m, 0x00));
      sum = _mm512_add_ps(sum, _mm512_permute_ps(m, 0x55));
      sum = _mm512_add_ps(sum, _mm512_permute_ps(m, 0xaa));
      sum = _mm512_add_ps(sum, _mm512_permute_ps(m, 0xff));
    }
    return _mm512_mul_ps(m, _mm512_div_ps(_mm512_set1_ps(1), sum));
  }

  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl"), gnu::noinline]] static void finish(const StreamMixes& op,
                                                                                          int64_t row,
                                                                                          const float* mixes) {
    constexpr int kSigmoids = 2 * kStreams, kEntries = kStreams * kStreams;
    float sigmoids[kLanes] = {}, entries[kEntries], best[kEntries];
    for (int o = 0; o < kSigmoids; ++o) sigmoids[o] = mixes[o] * op.scale[o / kStreams] + op.base[o];
#pragma GCC unroll 1
    for (int o = 0; o < kLanes; ++o) sigmoids[o] = sigmoid(sigmoids[o]);
    for (int o = 0; o < kEntries; ++o) entries[o] = mixes[kSigmoids + o] * op.scale[2] + op.base[kSigmoids + o];
    for (int o = 0; o < kEntries; ++o) {
      const float* line = entries + o / kStreams * kStreams;
      best[o] = std::max(std::max(line[0], line[1]), std::max(line[2], line[3]));
    }
#pragma GCC unroll 1
    for (int o = 0; o < kEntries; ++o) entries[o] = exp_of(entries[o] - best[o]);
    const __m512 eps = _mm512_set1_ps(op.sinkhorn_eps), e = _mm512_loadu_ps(entries);
    __m512 sum = _mm512_add_ps(_mm512_permute_ps(e, 0x00), _mm512_permute_ps(e, 0x55));
    sum = _mm512_add_ps(_mm512_add_ps(sum, _mm512_permute_ps(e, 0xaa)), _mm512_permute_ps(e, 0xff));
    __m512 m = _mm512_add_ps(_mm512_mul_ps(e, _mm512_div_ps(_mm512_set1_ps(1), sum)), eps);
    m = normalized<true>(m, eps);
    for (int i = 1; i < op.iterations; ++i) m = normalized<true>(normalized<false>(m, eps), eps);
    _mm512_storeu_ps(op.comb.row(row).data(), m);
    float* pre = op.pre.row(row).data();
    float* post = op.post.row(row).data();
    for (int c = 0; c < kStreams; ++c) pre[c] = sigmoids[c] + op.sinkhorn_eps;
    for (int c = 0; c < kStreams; ++c) post[c] = 2 * sigmoids[kStreams + c];
  }
};

// Up to kRowBlock rows.
template <class T, int Width, class Products>
[[gnu::always_inline]] inline void mix_rows(const StreamMixes& op, int64_t first, int64_t count) {
  const int64_t n = op.streams.cols;
  const T* x = row_of<T>(op.streams, first);
  float products[kRowBlock * kOutputs], squares[kRowBlock], mixes[kOutputs][Width] = {};
  Products::all(x, op.streams.row_stride, count, row_of<float>(op.fn, 0), op.fn.row_stride, n, products);
  Products::squares(x, op.streams.row_stride, count, n, squares);
  for (int64_t r = 0; r < count; ++r) {
    const float scale = inverse_rms(squares[r], n, op.norm_eps);
    for (int o = 0; o < kOutputs; ++o) mixes[o][r] = products[r * kOutputs + o] * scale;
  }
  if constexpr (Width == 1) {  // is only called with AVX-512
    Avx512Matrix::finish(op, first, mixes[0]);
  } else {
    finish<Width>(op, first, count, mixes);
  }
}

template <class Products>
[[gnu::always_inline]] inline void piece(const StreamMixes& op, int64_t begin, int64_t end) {
  const bool half = op.streams.dtype == DType::bf16;
  for (int64_t r = begin; r < end; r += kRowBlock) {
    const int64_t count = std::min<int64_t>(kRowBlock, end - r);
    if (Products::kMatrices && count == 1) {
      half ? mix_rows<uint16_t, 1, Products>(op, r, count) : mix_rows<float, 1, Products>(op, r, count);
    } else if (count > 4) {
      half ? mix_rows<uint16_t, 16, Products>(op, r, count) : mix_rows<float, 16, Products>(op, r, count);
    } else {
      half ? mix_rows<uint16_t, 4, Products>(op, r, count) : mix_rows<float, 4, Products>(op, r, count);
    }
  }
}

[[gnu::target("avx2,fma")]] void piece_avx2(const StreamMixes& op, int64_t b, int64_t e) {
  piece<Avx2Products>(op, b, e);
}
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]] void piece_avx512(const StreamMixes& op, int64_t b, int64_t e) {
  piece<Avx512Products>(op, b, e);
}

template <auto piece>
void run(Queue& queue, const StreamMixes& op) {
  if (op.pre.shape[1] != kStreams) return reference::stream_mixes(queue, op);
  for_row_pieces(queue, op.streams.rows, 200 + op.streams.cols, [&](int64_t b, int64_t e) { piece(op, b, e); });
}

}  // namespace

const Variants<StreamMixes> kStreamMixes{run<piece_avx2>, run<piece_avx512>};

}  // namespace fathom::cpu
