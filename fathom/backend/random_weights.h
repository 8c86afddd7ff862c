// fathom/backend/random_weights.h
// A tensor of random numbers in a stored format: what synthetic weights are made of. Every byte is a pure function of
// (seed, name, place) in integers and correctly rounded floats, so every backend writes the same ones, in any order.
//
// Element e takes word e mod 4 of philox(seed, {e / 4 low, e / 4 high, name low, name high}). The sum of the word's
// four bytes less 510 has mean 0, standard deviation sqrt(21845) and reaches 3.45 deviations: near enough to normal,
// without a function that differs between libraries. The value is float(sum) * factor, factor = float(deviation /
// sqrt(21845)). Source: spec/checkpoint.md 6.
#pragma once
#include <cstdint>
#include <span>

#include "fathom/tensor/dtype.h"

namespace fathom {

inline constexpr int kLargestSum = 510;  // of a word's bytes, centred

/// The four bytes of a word, added and centred.
constexpr int centred_sum(uint32_t word) {
  const uint32_t pairs = (word & 0x00ff00ffu) + (word >> 8 & 0x00ff00ffu);
  return int((pairs & 0xffffu) + (pairs >> 16)) - kLargestSum;
}

/// One stored tensor: a plain one, or one of a quantised pair. Both of a pair draw the same values.
struct RandomWeights {
  enum class Part : uint8_t { values, scales };
  DType dtype = DType::bf16;  // of the weight: f32, bf16, f8_e4m3 (Q8 scales) or f4_e2m1 (two codes a byte, even low)
  Part part = Part::values;
  int scale_rows = 1;  // f8_e4m3: rows that share a scale, 1 or 32; a scale is for 32 columns always
  int64_t rows = 0;    // of the weight, a multiple of scale_rows
  int64_t cols = 0;    // of the weight, elements; of a pair a multiple of 32
  uint64_t seed = 0;
  uint64_t name = 0;  // which tensor: any number; the same for both of a pair
  float factor = 1;

  bool paired() const { return dtype == DType::f8_e4m3 || dtype == DType::f4_e2m1; }
  /// Rows of the part as it is stored.
  int64_t stored_rows() const { return part == Part::scales ? rows / scale_rows : rows; }
  /// Bytes of one of them.
  int64_t row_bytes() const { return part == Part::scales ? cols / 32 : bytes_of(dtype, cols); }
};

float random_weight_factor(double deviation);

/// Writes stored rows [first, first + count) into plain memory. Values of 32 x 32 tiles: whole tiles only. Any number
/// of threads. Cost: one Philox round trip for four elements.
void write_random_weights(const RandomWeights& weights, int64_t first, int64_t count, std::span<uint8_t> out);

}  // namespace fathom
