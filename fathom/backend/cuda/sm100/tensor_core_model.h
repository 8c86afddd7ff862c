// fathom/backend/cuda/sm100/tensor_core_model.h
// What Blackwell's tensor core does with the words that it is given, for tests: read from the tables of the PTX ISA
// (9.7.16.4 descriptors, .10.4 packing, .10.6 swizzling, .10.7 scales), sharing nothing with descriptors.h. Sums are
// double and in the order of k.
#pragma once
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <vector>

#include "fathom/tensor/number_formats.h"

namespace fathom::cuda::sm100 {

inline uint32_t bits(uint64_t word, int first, int count) {
  return uint32_t(word >> first & ((uint64_t(1) << count) - 1));
}

/// Shared memory, somebody's, and the 128 lanes of 512 columns of tensor memory: sums and scales, which do not lie in
/// the same ones.
struct TensorCore {
  std::vector<uint8_t>& shared;
  std::vector<std::array<double, 128>> sums{512};
  std::vector<std::array<uint32_t, 128>> scales{512};

  /// tcgen05.cp.32x128b.warpx4 without swizzling: 32 rows of 16 bytes, in groups of eight at a stride, to four columns;
  /// for each 32 lanes the same.
  void copy_scales(uint32_t column, uint64_t descriptor) {
    EXPECT_EQ(bits(descriptor, 46, 3), 1u) << "fixed";
    EXPECT_EQ(bits(descriptor, 61, 3), 0u) << "no swizzling";
    const uint32_t start = bits(descriptor, 0, 14) << 4, stride = bits(descriptor, 32, 14) << 4;
    for (uint32_t row = 0; row < 32; ++row) {
      for (uint32_t c = 0; c < 4; ++c) {
        uint32_t word;
        std::memcpy(&word, &shared.at(start + row / 8 * stride + row % 8 * 16 + 4 * c), 4);
        for (uint32_t lane = row; lane < 128; lane += 32) scales.at(column + c)[lane] = word;
      }
    }
  }

  /// tcgen05.mma of kind::mxf8f6f4 (codes) or kind::f16: to[n][m] = a[m] . b[n] + (add ? to[n][m] : 0).
  void multiply(uint32_t to, uint64_t a, uint64_t b, uint32_t instruction, bool codes, uint32_t a_scales,
                uint32_t b_scales, bool add) {
    EXPECT_EQ(bits(instruction, 2, 1), 0u) << "dense";
    EXPECT_EQ(bits(instruction, 13, 4), 0u) << "nothing negated, K-major";
    if (codes) {
      EXPECT_EQ(bits(instruction, 0, 2), 0u) << "reserved";
      EXPECT_EQ(bits(instruction, 23, 1), 1u) << "scales are UE8M0";
      EXPECT_EQ(bits(instruction, 24, 3), 0u) << "reserved";
      EXPECT_EQ(bits(instruction, 31, 1), 0u) << "reserved";
    } else {
      EXPECT_EQ(bits(instruction, 4, 2), 1u) << "sums in F32";
      EXPECT_EQ(bits(instruction, 23, 1), 0u) << "reserved";
      EXPECT_EQ(bits(instruction, 29, 3), 0u) << "reserved, no shift";
    }
    const int n = int(bits(instruction, 17, 6)) << 3;
    const int m = codes ? int(bits(instruction, 27, 2)) << 7 : int(bits(instruction, 24, 5)) << 4;
    ASSERT_EQ(m, 128);
    ASSERT_TRUE(n % 16 == 0 && n >= 16 && n <= 256) << n;
    const int count = codes ? 32 : 16;
    const auto left = operand(a, m, bits(instruction, 7, 3), codes, a_scales, bits(instruction, 29, 2));
    const auto right = operand(b, n, bits(instruction, 10, 3), codes, b_scales, bits(instruction, 4, 2));
    for (int j = 0; j < n; ++j) {
      for (int i = 0; i < m; ++i) {
        double& sum = sums.at(to + uint32_t(j))[size_t(i)];
        if (!add) sum = 0;
        for (int k = 0; k < count; ++k) sum += left[size_t(i * count + k)] * right[size_t(j * count + k)];
      }
    }
  }

 private:
  /// Byte `byte` of row `row`: rows in groups of eight, the groups at a stride, bits 4 to 6 of the address exchanged by
  /// bits 7 to 9 (128-byte swizzling, K-major).
  uint8_t byte_of(uint64_t descriptor, int row, int byte) const {
    const uint32_t start = bits(descriptor, 0, 14) << 4, stride = bits(descriptor, 32, 14) << 4;
    const uint32_t address = start + uint32_t(row / 8) * stride + uint32_t(row % 8 * 128 + byte);
    return shared.at(address ^ (address >> 7 & 7) << 4);
  }
  std::vector<double> operand(uint64_t descriptor, int rows, uint32_t type, bool codes, uint32_t column,
                              uint32_t group) const {
    EXPECT_EQ(bits(descriptor, 46, 3), 1u) << "fixed";
    EXPECT_EQ(bits(descriptor, 49, 3), 0u) << "the pattern begins at a multiple of 1,024";
    EXPECT_EQ(bits(descriptor, 52, 1), 0u) << "distances, not addresses";
    EXPECT_EQ(bits(descriptor, 53, 8), 0u) << "fixed";
    EXPECT_EQ(bits(descriptor, 61, 3), 2u) << "128-byte swizzling";
    EXPECT_TRUE(codes ? type == 0 || type == 5 : type == 1) << "E4M3, E2M1; BF16";
    const int count = codes ? 32 : 16;
    std::vector<double> out;
    for (int row = 0; row < rows; ++row) {
      const uint32_t word = codes ? scales.at(column + uint32_t(row) / 32)[size_t(row) % 32] : 0;
      const double scale = codes ? e8m0_to_float(uint8_t(word >> (8 * group))) : 1;
      for (int k = 0; k < count; ++k) {
        if (!codes) {
          const int low = byte_of(descriptor, row, 2 * k), high = byte_of(descriptor, row, 2 * k + 1);
          out.push_back(bf16_to_float(uint16_t(low | high << 8)));
        } else if (type == 0) {
          out.push_back(e4m3_to_float(byte_of(descriptor, row, k)) * scale);
        } else {  // sixteen codes in eight bytes, then eight bytes of padding
          const uint8_t byte = byte_of(descriptor, row, k / 16 * 16 + k % 16 / 2);
          out.push_back(e2m1_to_float(uint8_t(byte >> (k % 2 * 4) & 15)) * scale);
        }
      }
    }
    return out;
  }
};

}  // namespace fathom::cuda::sm100
