// fathom/checkpoint/safetensors.h
// One .safetensors file: 8 bytes little-endian header length N, N bytes of JSON, then data. Nothing here touches the
// data: a file that is too short is found by its size, so a damaged download is named before a byte of it is used.
// Source: spec/checkpoint.md 1. Fuzzed.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fathom/base/result.h"
#include "fathom/checkpoint/tensor_spec.h"

namespace fathom {

/// Longest header that is believed (the limit of the format's own library). Flash's longest is about 0.3 MB.
inline constexpr int64_t kMaxHeaderBytes = 100'000'000;

/// A tensor as its header declares it. Its bytes are [begin, begin + spec.bytes()) of the file.
struct TensorEntry {
  TensorSpec spec;
  int64_t begin = 0;  // from the start of the file
};

struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;  // by ascending begin
  int64_t header_bytes = 0;          // 8 + N: where data begins
  int64_t file_bytes = 0;            // what the header implies: where data ends
};

/// Reads and checks the header of a file of which `bytes` is all there is. `where` names the file in errors.
///   - the length field fits the file and kMaxHeaderBytes; the header is strict JSON
///   - every tensor has a known dtype, at most 8 dimensions, and product(shape) x itemsize bytes, without overflow
///   - no name occurs twice; data has no overlap and no gap; the file ends where the last tensor does
/// Errors: corrupt, with the tensor's name where there is one, and expected and actual values. Reads only the header.
Result<SafetensorsHeader> read_safetensors_header(std::span<const uint8_t> bytes, std::string_view where);

/// The header of a file that holds `tensors` one after the other, ready to be written: length field, JSON, and blanks
/// so that data begins at a multiple of 8.
std::string write_safetensors_header(std::span<const TensorSpec> tensors);

}  // namespace fathom
