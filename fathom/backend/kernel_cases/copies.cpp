#include "fathom/backend/kernel_cases/copies.h"

#include <cstring>

#include "fathom/backend/element.h"

namespace fathom {
namespace {

// Prime, so that neighbouring rows differ, and far beyond what a processor guesses from.
constexpr int64_t kPattern = 65521;

int64_t padded(int64_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

void fill_values(uint8_t* data, int64_t bytes) {
  const int64_t first = std::min(bytes, kPattern);
  uint32_t state = 1;
  for (int64_t i = 0; i < first; ++i) data[i] = uint8_t((state = state * 1664525 + 1013904223) >> 26);
  for (int64_t i = first; i < bytes; i += kPattern) std::memcpy(data + i, data, size_t(std::min(kPattern, bytes - i)));
}

void fill_activations(AnyViewMut out) {
  check(out.row_stride == out.cols, "rows of activations are dense");
  const int64_t count = out.rows * out.cols, first = std::min(count, kPattern);
  uint32_t state = 7;
  for (int64_t i = 0; i < first; ++i) {
    state = state * 1664525 + 1013904223;
    store(out.dtype, out.data, i, float(state >> 8) * 0x1p-23f - 1);
  }
  const int64_t bytes = bytes_of(out.dtype, count), period = bytes_of(out.dtype, kPattern);
  for (int64_t at = period; at < bytes; at += period) {
    std::memcpy(out.data + at, out.data, size_t(std::min(period, bytes - at)));
  }
}

Result<std::shared_ptr<Buffer>> shared_bytes(int64_t bytes) {
  auto buffer = reference_backend().memory.allocate(std::max<int64_t>(bytes, 64));
  if (!buffer) return buffer.error();
  return std::make_shared<Buffer>(std::move(*buffer));
}

Result<Activations> make_activations(DType dtype, int64_t rows, int64_t cols) {
  const bool q8 = dtype == DType::f8_e4m3;
  const int64_t values = padded(bytes_of(dtype, rows * cols)), scales = q8 ? rows * cols / 32 : 0;
  auto memory = shared_bytes(values + scales);
  if (!memory) return memory.error();
  Activations out{*memory, {(*memory)->data(), dtype, rows, cols}, {}};
  if (!q8) {
    fill_activations(out.values);
    return out;
  }
  fill_values(out.values.data, rows * cols);
  out.scales = {(*memory)->data() + values, DType::f8_e8m0, rows, cols / 32};
  std::memset(out.scales.data, 125, size_t(scales));
  return out;
}

Result<WeightCopies> WeightCopies::make(DType dtype, int64_t rows, int64_t cols, int64_t all_bytes, int64_t least) {
  const bool blocks = dtype == DType::f8_e4m3 || dtype == DType::f4_e2m1;
  const int tile = dtype == DType::f8_e4m3 ? 32 : 1;
  const int64_t values = bytes_of(dtype, rows * cols), scale_rows = (rows + tile - 1) / tile;
  const int64_t scales = blocks ? scale_rows * cols / 32 : 0, stride = padded(values) + padded(scales);
  WeightCopies out;
  out.bytes_ = values + scales;
  const int64_t count = std::max({least, (all_bytes + stride - 1) / stride, int64_t(1)});
  auto memory = shared_bytes(count * stride);
  if (!memory) return memory.error();
  out.memory_ = *memory;
  fill_values(out.memory_->data(), stride);
  if (blocks) std::memset(out.memory_->data() + padded(values), 125, size_t(scales));
  for (int64_t i = 0; i < count; ++i) {
    uint8_t* data = out.memory_->data() + i * stride;
    if (i > 0) std::memcpy(data, out.memory_->data(), size_t(stride));
    const AnyView codes(data, dtype, rows, cols);
    out.copies_.push_back(blocks ? Matrix(codes, {data + padded(values), DType::f8_e8m0, scale_rows, cols / 32}, tile)
                                 : Matrix(codes));
  }
  return out;
}

const char* weights_name(DType dtype) {
  switch (dtype) {
    case DType::bf16: return "bf16";
    case DType::f8_e4m3: return "fp8";
    case DType::f4_e2m1: return "mxfp4";
    case DType::f32: return "f32";
    default: return "";
  }
}

std::string size_name(int64_t rows, int64_t cols) { return std::to_string(rows) + "x" + std::to_string(cols); }

}  // namespace fathom
