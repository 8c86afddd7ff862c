// fathom/backend/cuda/sm100/descriptors.h
// What Blackwell's tensor cores (tcgen05) are told in numbers: where operands and scales lie in shared memory, and the
// two kinds of words that describe them. Pure, so that descriptors_test.cpp reads them back on any machine.
// Source: PTX ISA 9.0, 9.7.16.4 (descriptors), 9.7.16.10.4 (packing of FP4), 9.7.16.10.6 (swizzling), 9.7.16.10.7
// (scales).
//
// An operand is a tile of rows of 128 bytes of K: 64 columns of bf16 or 128 of E4M3, E2M1 or int8. A row's eight pieces
// of 16 bytes are exchanged by the row's number, and a tile begins at a multiple of 1,024 bytes, so that rows written
// piece by piece and rows read by the tensor core both go without bank conflicts.
#pragma once
#include <cstdint>

namespace fathom::cuda::sm100 {

// ------------------------------------------------------------------------------------------------ places
constexpr int kTileRowBytes = 128;

/// Where piece `piece` (16 bytes) of row `row` lies in a tile. E2M1: a piece is sixteen codes in its first eight bytes,
/// the even column in the low half of a byte; the other eight are not looked at.
constexpr int piece_place(int row, int piece) { return row * kTileRowBytes + ((piece ^ (row & 7)) << 4); }

/// Where the four scales (E8M0) of row `row`, one for each 32 columns of a step of 128, lie among a tile's: blocks of
/// 512 bytes for 128 rows, of which one copy takes each into four columns of tensor memory.
constexpr int kScaleBlockRows = 128, kScaleBlockBytes = 512, kScaleBlockColumns = 4;
constexpr int scale_place(int row) {
  return row / kScaleBlockRows * kScaleBlockBytes + row % 32 * 16 + row % kScaleBlockRows / 32 * 4;
}
constexpr int scale_blocks(int rows) { return (rows + kScaleBlockRows - 1) / kScaleBlockRows; }

// ------------------------------------------------------------------------------------------------ descriptors
/// An address or a distance in shared memory, as descriptors hold it.
constexpr uint64_t in_sixteens(uint32_t bytes) { return (bytes & 0x3ffff) >> 4; }

constexpr uint64_t kSecondVersion = uint64_t(1) << 46, kSwizzle128 = uint64_t(2) << 61;

/// A tile of rows at this address. 32 bytes of K further: + 2.
constexpr uint64_t describe_rows(uint32_t address) {
  // Groups of eight rows follow each other; the distance along K is not used with this swizzle.
  return in_sixteens(address) | uint64_t(1) << 16 | in_sixteens(8 * kTileRowBytes) << 32 | kSecondVersion | kSwizzle128;
}
/// A block of 512 bytes of scales: 32 rows of 16 bytes.
constexpr uint64_t describe_scales(uint32_t address) {
  return in_sixteens(address) | in_sixteens(8 * 16) << 32 | kSecondVersion;
}

// ------------------------------------------------------------------------------------------------ instructions
/// Formats of codes, as instructions number them.
enum class Codes : uint32_t { e4m3 = 0, e2m1 = 5 };

/// Both operands have their K side by side. `m` rows of the left one (the lanes of tensor memory): 128; `n` of the
/// right one: 16 to 256 in steps of 16.
constexpr uint32_t describe_shape(int m, int n) { return uint32_t(n) >> 3 << 17 | uint32_t(m) >> 4 << 24; }

/// bf16 times bf16, sums in float; 16 columns of K.
constexpr uint32_t describe_bf16_product(int m, int n) { return 1u << 4 | 1u << 7 | 1u << 10 | describe_shape(m, n); }
/// int8 times int8, sums in int32; 32 columns.
constexpr uint32_t describe_int8_product(int m, int n) { return 2u << 4 | 1u << 7 | 1u << 10 | describe_shape(m, n); }
/// Codes times codes with scales (E8M0) of 32 columns on both sides, sums in float; 32 columns. `group`: which of the
/// four scales that lie together.
constexpr uint32_t describe_scaled_product(Codes a, Codes b, int m, int n, int group) {
  return uint32_t(group) << 4 | uint32_t(a) << 7 | uint32_t(b) << 10 | 1u << 23 | uint32_t(group) << 29 |
         describe_shape(m, n);
}

}  // namespace fathom::cuda::sm100
