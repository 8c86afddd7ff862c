// fathom/tensor/dtype.h
// The element types of checkpoints, caches and activations. Names are those of safetensors, in lower case.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

namespace fathom {

enum class DType : uint8_t {
  f32,
  bf16,
  f8_e4m3,  // 1 sign, 4 exponent (bias 7), 3 mantissa bits; largest 448; no infinity; 0x7f and 0xff are NaN
  f8_e8m0,  // a scale: 2^(byte - 127); 0xff is NaN
  f4_e2m1,  // two in a byte, element 2i in the low nibble: 0 .5 1 1.5 2 3 4 6, bit 3 the sign. Stored as I8.
  i8,
  u8,
  i32,
  i64,
  boolean,
  f16,  // only to name what a foreign checkpoint holds
};

/// Bits of one element: 4 for f4_e2m1.
int bits_of(DType dtype);
/// Bytes of `count` elements; an odd number of nibbles takes the whole last byte.
int64_t bytes_of(DType dtype, int64_t count);
/// The spelling of safetensors headers: "BF16", "F8_E4M3", "I8".
const char* name_of(DType dtype);
/// The type that a safetensors header names, or nothing.
std::optional<DType> dtype_of(std::string_view safetensors_name);

}  // namespace fathom
