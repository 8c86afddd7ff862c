// fathom/tensor/row_format.h
// How one row of channels is kept in a cache: codes, then scales, in one run of bytes. These functions define the
// formats; every backend reads and writes the same bytes. Source: spec/model.md 3.2, spec/memory.md 1.
#pragma once
#include <cstdint>
#include <span>

namespace fathom {

enum class RowFormat : uint8_t {
  f32,  // channels x 4 bytes: no rounding; only for the golden mode without cache rounding
  q8,   // E4M3 codes, then an E8M0 scale for 32 channels: window latents, activations      (528 bytes for 512)
  q4k,  // E2M1 pairs, then an E4M3 scale for 16 channels: compressed latents               (288 bytes for 512)
  q4i,  // E2M1 pairs, then an E8M0 scale for 32 channels: index queries and index keys      (68 bytes for 128)
};

/// Bytes of one row. `channels` is a multiple of 32.
int64_t row_bytes(RowFormat format, int64_t channels);

/// Rounds `row` into `out` (row_bytes long).
void encode_row(RowFormat format, std::span<const float> row, uint8_t* out);

/// The exact values of an encoded row.
void decode_row(RowFormat format, const uint8_t* bytes, std::span<float> row);

}  // namespace fathom
