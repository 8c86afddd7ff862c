// fathom/backend/cpu/row_steps.h
// Operations on one row that other operations take with them (ops.h: Norm, Turn, Q8Rows, StreamSpread): the row is in
// the nearest cache then, and nobody has to be called for it. The bits are those of the operations by themselves.
#pragma once
#include "fathom/backend/cpu/lanes.h"
#include "fathom/tensor/row_format.h"

namespace fathom::cpu {

/// A row of f32 or bf16 numbers in Q8: the bytes of encode_row (tensor/row_format.h). One function for each instruction
/// set, which the rows of all operations go through; in quantize_rows.cpp.
struct Avx2Codes {
  [[gnu::target("avx2,fma")]] static void q8(const float*, int64_t channels, uint8_t* codes, uint8_t* scales);
  [[gnu::target("avx2,fma")]] static void q8(const uint16_t*, int64_t channels, uint8_t* codes, uint8_t* scales);
};
struct Avx512Codes {
  [[gnu::target("avx512f,avx512bw,avx512vl")]] static void q8(const float*, int64_t channels, uint8_t* codes,
                                                              uint8_t* scales);
  [[gnu::target("avx512f,avx512bw,avx512vl")]] static void q8(const uint16_t*, int64_t channels, uint8_t* codes,
                                                              uint8_t* scales);
};

/// out may be x.
template <class T, class W>
[[gnu::always_inline]] inline void norm_row(const T* x, const W* weight, int64_t n, float eps, T* out) {
  const float scale = inverse_rms(sum_of_squares(x, n), n, eps);
  for (int64_t i = 0; i < n; ++i) put(out, i, number(x, i) * scale * number(weight, i));
}
template <class T>
[[gnu::always_inline]] inline void norm_row(const T* x, const Norm& norm, int64_t n, T* out) {
  if (norm.weight.dtype == DType::bf16) return norm_row(x, row_of<uint16_t>(norm.weight, 0), n, norm.eps, out);
  norm_row(x, row_of<float>(norm.weight, 0), n, norm.eps, out);
}

/// The row of `view` that a step writes; `spare` where the view is empty, because only the codes are wanted.
template <class T>
[[gnu::always_inline]] inline T* row_or(const AnyViewMut& view, int64_t r, T* spare) {
  return view.data != nullptr ? row_of<T>(view, r) : spare;
}

/// `row` is row r of what an operation stores.
template <class Codes, class T>
[[gnu::always_inline]] inline void put_q8(const Q8Rows& q8, int64_t r, const T* row) {
  if (q8.wanted()) Codes::q8(row, q8.codes.cols, q8.codes.row(r), q8.scales.row(r));
}

/// Row r's sum of its routed rows and the shared one; `sum` [n].
template <class T>
[[gnu::always_inline]] inline void combine_row(const AnyView& routed, const View<const int32_t, 2>& place,
                                               const T* shared, int64_t r, int64_t n, float* __restrict sum, T* out) {
  for (int64_t i = 0; i < n; ++i) sum[i] = 0;
  for (int64_t slot = 0; slot < place.shape[1]; ++slot) {
    const T* one = row_of<T>(routed, place(r, slot));
    for (int64_t i = 0; i < n; ++i) sum[i] += number(one, i);
  }
  for (int64_t i = 0; i < n; ++i) put(out, i, sum[i] + number(shared, i));
}

}  // namespace fathom::cpu
