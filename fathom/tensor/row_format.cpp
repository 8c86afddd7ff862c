#include "fathom/tensor/row_format.h"

#include <cstring>

#include "fathom/base/check.h"
#include "fathom/tensor/number_formats.h"

namespace fathom {
namespace {

void encode_q8(std::span<const float> row, uint8_t* codes, uint8_t* scales) {
  for (size_t g = 0; g < row.size() / 32; ++g) {
    const auto group = row.subspan(g * 32, 32);
    const float scale = q8_scale(max_abs(group));
    scales[g] = pow2_to_e8m0(scale);
    for (size_t i = 0; i < 32; ++i) codes[g * 32 + i] = float_to_e4m3(group[i] / scale);
  }
}

void encode_q4k(std::span<const float> row, uint8_t* codes, uint8_t* scales) {
  for (size_t g = 0; g < row.size() / 16; ++g) {
    const auto group = row.subspan(g * 16, 16);
    scales[g] = q4k_scale_code(max_abs(group));
    const float scale = e4m3_to_float(scales[g]);
    for (size_t i = 0; i < 16; i += 2) {
      codes[(g * 16 + i) / 2] = uint8_t(float_to_e2m1(group[i] / scale) | (float_to_e2m1(group[i + 1] / scale) << 4));
    }
  }
}

void encode_q4i(std::span<const float> row, uint8_t* codes, uint8_t* scales) {
  for (size_t g = 0; g < row.size() / 32; ++g) {
    const auto group = row.subspan(g * 32, 32);
    const float scale = q4i_scale(max_abs(group));
    scales[g] = pow2_to_e8m0(scale);
    for (size_t i = 0; i < 32; i += 2) {
      codes[(g * 32 + i) / 2] = uint8_t(float_to_e2m1(group[i] / scale) | (float_to_e2m1(group[i + 1] / scale) << 4));
    }
  }
}

}  // namespace

int64_t row_bytes(RowFormat format, int64_t channels) {
  switch (format) {
    case RowFormat::f32: return channels * 4;
    case RowFormat::q8: return channels + channels / 32;
    case RowFormat::q4k: return channels / 2 + channels / 16;
    case RowFormat::q4i: return channels / 2 + channels / 32;
  }
  return 0;
}

void encode_row(RowFormat format, std::span<const float> row, uint8_t* out) {
  const size_t n = row.size();
  check(n % 32 == 0 || format == RowFormat::f32, "rows are multiples of 32 channels");
  switch (format) {
    case RowFormat::f32: std::memcpy(out, row.data(), n * 4); return;
    case RowFormat::q8: return encode_q8(row, out, out + n);
    case RowFormat::q4k: return encode_q4k(row, out, out + n / 2);
    case RowFormat::q4i: return encode_q4i(row, out, out + n / 2);
  }
}

void decode_row(RowFormat format, const uint8_t* bytes, std::span<float> row) {
  const size_t n = row.size();
  switch (format) {
    case RowFormat::f32: std::memcpy(row.data(), bytes, n * 4); return;
    case RowFormat::q8:
      for (size_t i = 0; i < n; ++i) row[i] = e4m3_to_float(bytes[i]) * e8m0_to_float(bytes[n + i / 32]);
      return;
    case RowFormat::q4k:
      for (size_t i = 0; i < n; ++i) {
        row[i] = e2m1_to_float(uint8_t(bytes[i / 2] >> (i % 2 * 4))) * e4m3_to_float(bytes[n / 2 + i / 16]);
      }
      return;
    case RowFormat::q4i:
      for (size_t i = 0; i < n; ++i) {
        row[i] = e2m1_to_float(uint8_t(bytes[i / 2] >> (i % 2 * 4))) * e8m0_to_float(bytes[n / 2 + i / 32]);
      }
      return;
  }
}

}  // namespace fathom
