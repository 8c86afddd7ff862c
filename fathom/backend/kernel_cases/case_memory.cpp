#include "fathom/backend/kernel_cases/case_memory.h"

#include <sys/mman.h>

#include <cmath>
#include <cstring>
#include <set>

namespace fathom {
namespace {

// Prime, so that neighbouring rows differ, and far beyond what a processor guesses from.
constexpr int64_t kPattern = 65521;

int64_t padded(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// The advice is followed before a page is touched, or not at all.
Result<Buffer> allocate(CaseSpace space, int64_t bytes, bool large_pages) {
  if (space != nullptr) return space(bytes);
  auto buffer = reference_backend().memory.allocate(bytes);
  if (buffer.ok()) madvise(buffer->data(), size_t(bytes), large_pages ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  return buffer;
}

// Repeats the first `period` bytes up to `bytes`.
void repeat(uint8_t* data, int64_t period, int64_t bytes) {
  for (int64_t at = period; at < bytes; at += period)
    std::memcpy(data + at, data, size_t(std::min(period, bytes - at)));
}

// Of both signs and many sizes, since products of small or equal numbers cost a chip less power and may run faster:
// bf16 of 2^-15 to 1; E4M3 up to 1.9; all E2M1.
void fill_weights(DType dtype, uint8_t* data, int64_t bytes) {
  uint32_t state = 1;
  for (int64_t i = 0; i < std::min(bytes, kPattern - 1); ++i) {
    const auto byte = uint8_t((state = state * 1664525 + 1013904223) >> 24);
    const bool codes = dtype == DType::f8_e4m3 || dtype == DType::f4_e2m1;
    data[i] = codes ? byte & 0xbf : i % 2 == 0 ? byte : (byte & 0x87) | 0x38;
  }
  repeat(data, kPattern - 1, bytes);
}

}  // namespace

uint8_t* CaseMemory::uncounted(int64_t count) {
  auto buffer = allocate(space_, std::max<int64_t>(count, 64), large_pages);
  if (!buffer) {
    if (!error) error = buffer.error();
    return nullptr;
  }
  auto kept = std::make_shared<Buffer>(std::move(*buffer));
  kept_.push_back(kept);
  return kept->data();
}

uint8_t* CaseMemory::raw(int64_t count) {
  bytes += count;
  return uncounted(count);
}

uint8_t* CaseMemory::random(int64_t count) {
  uint8_t* data = raw(padded(count));
  if (data == nullptr) return data;
  bytes -= padded(count) - count;
  uint64_t state = 0x9E3779B97F4A7C15u;
  for (int64_t i = 0; i < count; i += 8) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    const uint64_t word = state & 0xbfbfbfbfbfbfbfbfu;  // the upper exponent bit is 0
    std::memcpy(data + i, &word, 8);
  }
  return data;
}

AnyViewMut CaseMemory::tensor(DType dtype, int64_t rows, int64_t cols) {
  uint8_t* data = raw(bytes_of(dtype, rows * cols));
  if (data == nullptr) return {};
  uint32_t state = 7;
  for (int64_t i = 0; i < std::min(rows * cols, kPattern); ++i) {
    state = state * 1664525 + 1013904223;
    store(dtype, data, i, float(state >> 8) * 0x1p-23f - 1);
  }
  repeat(data, bytes_of(dtype, kPattern), bytes_of(dtype, rows * cols));
  return {data, dtype, rows, cols};
}

Matrix CaseMemory::rows(DType dtype, int64_t rows, int64_t cols) {
  if (dtype != DType::f8_e4m3) return Matrix(tensor(dtype, rows, cols));
  uint8_t* codes = random(rows * cols);
  uint8_t* scales = raw(rows * cols / 32);
  if (error) return {};
  std::memset(scales, 125, size_t(rows * cols / 32));
  return Matrix({codes, dtype, rows, cols}, {scales, DType::f8_e8m0, rows, cols / 32}, 1);
}

uint8_t* CaseMemory::encoded(RowFormat format, int64_t count, int64_t channels) {
  const int64_t row = row_bytes(format, channels);
  uint8_t* data = random(count * row);
  if (data == nullptr || format == RowFormat::f32) return data;
  const int64_t codes = format == RowFormat::q8 ? channels : channels / 2;
  const uint8_t one = format == RowFormat::q4k ? 0x38 : 127;  // E4M3, E8M0
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t s = codes; s < row; ++s) data[i * row + s] = uint8_t(one - (data[i * row + s] & 3));
  }
  return data;
}

View<float, 2> CaseMemory::floats(int64_t rows, int64_t cols) {
  const AnyViewMut values = tensor(DType::f32, rows, cols);
  return error ? View<float, 2>() : values.as<float>();
}

Q8Rows CaseMemory::q8_rows(int64_t rows, int64_t cols) {
  return {{raw(rows * cols), DType::f8_e4m3, rows, cols}, {raw(rows * cols / 32), DType::f8_e8m0, rows, cols / 32}};
}

Turn CaseMemory::turn(int64_t rows, int64_t pairs) {
  std::vector<int64_t> positions;
  for (int64_t r = 0; r < rows; ++r) positions.push_back(5000 + r);
  std::vector<float> frequencies;
  for (int64_t i = 0; i < pairs; ++i) frequencies.push_back(float(std::pow(1e4, -double(i) / double(pairs))));
  const View<float, 1> kept = numbers(frequencies);
  return {numbers(positions), {kept.data, size_t(kept.shape[0])}, false};
}

RowSet CaseMemory::row_set(const std::vector<std::pair<int64_t, int64_t>>& pieces) {
  const OwnedRows owned(pieces);
  return {numbers(owned.positions), numbers(owned.sequence), numbers(owned.begin)};
}

Result<std::shared_ptr<WeightCopies>> WeightCopies::make(CaseSpace space, DType dtype, int64_t rows, int64_t cols,
                                                         int64_t all_bytes, bool large_pages, int64_t least, int tile) {
  const bool blocks = dtype == DType::f8_e4m3 || dtype == DType::f4_e2m1;
  if (dtype != DType::f8_e4m3) tile = 1;
  const int64_t values = bytes_of(dtype, rows * cols), scale_rows = (rows + tile - 1) / tile;
  const int64_t scales = blocks ? scale_rows * cols / 32 : 0, stride = padded(values) + padded(scales);
  const int64_t count = std::max({least, (all_bytes + stride - 1) / stride, int64_t(1)});
  auto memory = allocate(space, count * stride, large_pages);
  if (!memory) return memory.error();
  auto out = std::make_shared<WeightCopies>();
  out->bytes_ = values + scales;
  out->memory_ = std::move(*memory);
  fill_weights(dtype, out->memory_.data(), values);
  std::memset(out->memory_.data() + padded(values), 125, size_t(scales));
  for (int64_t i = 0; i < count; ++i) {
    uint8_t* data = out->memory_.data() + i * stride;
    if (i > 0) std::memcpy(data, out->memory_.data(), size_t(stride));
    const AnyView codes(data, dtype, rows, cols);
    out->copies_.push_back(blocks ? Matrix(codes, {data + padded(values), DType::f8_e8m0, scale_rows, cols / 32}, tile)
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

const char* weights_name(RowFormat format) {
  switch (format) {
    case RowFormat::f32: return "f32";
    case RowFormat::q8: return "q8";
    case RowFormat::q4k: return "q4k";
    case RowFormat::q4i: return "q4i";
  }
  return "";
}

std::string size_name(int64_t a, int64_t b) { return std::to_string(a) + "x" + std::to_string(b); }

std::vector<int32_t> choose(int64_t count, int64_t k, uint64_t seed) {
  std::set<int32_t> chosen;
  for (uint32_t i = 0; int64_t(chosen.size()) < std::min(k, count); ++i) {
    chosen.insert(int32_t(uint64_t(philox(seed, {i, 0, 0, 5})[0]) * uint64_t(count) >> 32));
  }
  return {chosen.begin(), chosen.end()};
}

}  // namespace fathom
