// fathom/backend/cpu/lanes.h
// The pieces of vector code that the row operations share.
//
// The kernels of this folder's row operations are plain loops that the compiler turns into vectors: each is an
// always-inline function without a target, and is inlined into one function for each instruction set ([[gnu::target]]).
// So one text serves all of them, and gives the same bits on all: what is summed across a row is summed in 16 lanes
// (element i in lane i mod 16) and then by a fixed tree, however wide the machine's vectors are, and whatever else is
// in the batch.
// `#pragma GCC unroll 1` keeps an inner loop over lanes a loop until it has become a vector.
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "fathom/backend/backend.h"
#include "fathom/backend/cpu/calls.h"

namespace fathom::cpu {

/// The vector variants of an operation.
template <class Op>
struct Variants {
  void (*avx2)(Queue&, const Op&) = nullptr;
  void (*avx512)(Queue&, const Op&) = nullptr;
  void (*avx512_bf16)(Queue&, const Op&) = nullptr;  // with products of bf16 pairs; null: as avx512
};

/// Calls piece(begin, end) for pieces of the rows. `row_ns`: about what a row costs. The little work of a few rows is
/// not cut (calls.h). Many rows always are: each thread has the same part of them in every operation, and to fetch rows
/// from another core's cache takes longer than to work on them.
template <class Piece>
void for_row_pieces(Queue& queue, int64_t rows, int64_t row_ns, const Piece& piece) {
  constexpr int64_t kPieceNs = 5000, kManyRows = 16;  // of a thread
  const int64_t threads = queue.pool.threads();
  if (threads == 1 || rows == 1 ||
      (rows < kManyRows * threads && !worth_threads(queue.pool, double(rows) * double(row_ns)))) {
    if (rows > 0) piece(int64_t(0), rows);
    return;
  }
  const int64_t worth = std::min(kPieceNs / std::max<int64_t>(1, row_ns), rows / threads);
  call_threads(queue.pool, rows, std::max({int64_t(1), worth, rows / (4 * threads)}), piece);
}

inline constexpr int kLanes = 16;

/// Element i of f32 or bf16 numbers.
[[gnu::always_inline]] inline float number(const float* x, int64_t i) { return x[i]; }
[[gnu::always_inline]] inline float number(const uint16_t* x, int64_t i) {
  return std::bit_cast<float>(uint32_t(x[i]) << 16);
}

/// Rounded to bf16: nearest, ties to even; NaN stays NaN.
[[gnu::always_inline]] inline uint32_t bf16_code(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1)) >> 16;
  return (bits & 0x7fffffffu) > 0x7f800000u ? (bits >> 16) | 0x40 : rounded;
}

/// Stores a float as f32, or rounded to bf16.
[[gnu::always_inline]] inline void put(float* x, int64_t i, float value) { x[i] = value; }
[[gnu::always_inline]] inline void put(uint16_t* x, int64_t i, float value) { x[i] = uint16_t(bf16_code(value)); }

/// Row r of a view whose elements are T.
template <class T, class Byte>
[[gnu::always_inline]] inline auto row_of(const BasicAnyView<Byte>& view, int64_t r) {
  using Element = std::conditional_t<std::is_const_v<Byte>, const T, T>;
  return reinterpret_cast<Element*>(view.data) + r * view.row_stride;
}

/// The sum of 16 lanes, by halves.
[[gnu::always_inline]] inline float sum_lanes(const float* lanes) {
  float eight[8], four[4];
  for (int i = 0; i < 8; ++i) eight[i] = lanes[i] + lanes[i + 8];
  for (int i = 0; i < 4; ++i) four[i] = eight[i] + eight[i + 4];
  return (four[0] + four[2]) + (four[1] + four[3]);
}

/// sum of x[i]^2 over n elements.
template <class T>
[[gnu::always_inline]] inline float sum_of_squares(const T* x, int64_t n) {
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
#pragma GCC unroll 1
    for (int l = 0; l < kLanes; ++l) lanes[l] = std::fma(number(x, i + l), number(x, i + l), lanes[l]);
  }
  for (int l = 0; i < n; ++i, ++l) lanes[l] = std::fma(number(x, i), number(x, i), lanes[l]);
  return sum_lanes(lanes);
}

/// 1 / sqrt(mean square + eps); 0 where that would be 1 / 0.
[[gnu::always_inline]] inline float inverse_rms(float sum_of_squares, int64_t n, float eps) {
  const float mean = sum_of_squares / float(n) + eps;
  return mean > 0 ? 1 / std::sqrt(mean) : 0;
}

/// e^x within 2 units of the last place; 0 below -87.3, infinity above 88.7.
[[gnu::always_inline]] inline float exp_of(float x) {
  // x = n ln 2 + r, |r| <= ln 2 / 2; the rounding to an integer is done by a number whose last place is 1.
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23
  const float bounded = std::min(std::max(x, -87.0f), 88.72f);
  const float n = std::fma(bounded, 1.44269504f, kRound) - kRound;
  float r = std::fma(n, -0.693359375f, bounded);
  r = std::fma(n, 2.12194440e-4f, r);
  float p = 1.9875691500e-4f;
  p = std::fma(p, r, 1.3981999507e-3f);
  p = std::fma(p, r, 8.3334519073e-3f);
  p = std::fma(p, r, 4.1665795894e-2f);
  p = std::fma(p, r, 1.6666665459e-1f);
  p = std::fma(p, r, 5.0000001201e-1f);
  p = std::fma(p, r * r, r) + 1.0f;
  // 2^n in two steps: n may be 128.
  const int32_t half = int32_t(n) >> 1, rest = int32_t(n) - half;
  const float scaled = p * std::bit_cast<float>((half + 127) << 23) * std::bit_cast<float>((rest + 127) << 23);
  return x < -87.3f ? 0.0f : x > 88.72f ? INFINITY : scaled;
}

/// exp_of for what is not above 0 but by a rounding: 0 below -87.
[[gnu::always_inline]] inline float exp_of_falling(float x) {
  constexpr float kRound = 12582912.0f;
  const float bounded = std::max(x, -87.0f);
  const float shifted = std::fma(bounded, 1.44269504f, kRound), n = shifted - kRound;
  float r = std::fma(n, -0.693359375f, bounded);
  r = std::fma(n, 2.12194440e-4f, r);
  float p = 1.9875691500e-4f;
  p = std::fma(p, r, 1.3981999507e-3f);
  p = std::fma(p, r, 8.3334519073e-3f);
  p = std::fma(p, r, 4.1665795894e-2f);
  p = std::fma(p, r, 1.6666665459e-1f);
  p = std::fma(p, r, 5.0000001201e-1f);
  p = std::fma(p, r * r, r) + 1.0f;
  // The last bits of `shifted` are n; p stays a normal number.
  const float scaled = std::bit_cast<float>(std::bit_cast<uint32_t>(p) + (std::bit_cast<uint32_t>(shifted) << 23));
  return x < -87.0f ? 0.0f : scaled;
}

[[gnu::always_inline]] inline float sigmoid(float x) { return 1 / (1 + exp_of(-x)); }

/// E4M3 and E2M1 codes as floats (exact). The bits of a code are placed as those of a float; where the exponent is 0
/// the hidden one is taken off again.
[[gnu::always_inline]] inline float e4m3_of(uint32_t code) {
  const uint32_t magnitude = code & 0x7f;
  const float normal = std::bit_cast<float>((magnitude << 20) + (120u << 23));
  const float small = (normal - 0x1p-7f) * 2;
  const uint32_t bits = std::bit_cast<uint32_t>(magnitude < 8 ? small : normal);
  return std::bit_cast<float>((magnitude == 0x7f ? 0x7fc00000u : bits) | (code & 0x80) << 24);
}
[[gnu::always_inline]] inline float e2m1_of(uint32_t code) {
  const uint32_t magnitude = code & 7;
  const float normal = std::bit_cast<float>((magnitude << 22) + (126u << 23));
  const float small = (normal - 0.5f) * 2;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude < 2 ? small : normal) | (code & 8) << 28);
}

}  // namespace fathom::cpu
