// fathom/model/golden/golden_file.h
// One file of golden tensors, as floats or integers whatever their stored type. Private to the room.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "fathom/base/result.h"

namespace fathom {

struct GoldenTensor {
  std::vector<int64_t> shape;
  std::vector<float> values;  // integers below 2^24 are exact
  int64_t rows() const { return shape.empty() ? 1 : shape[0] * (shape.size() > 1 ? shape[1] : 1); }
};

/// Reads all tensors of a safetensors file (F32, I32, U8, BOOL, and raw bytes of the 8-bit types as numbers).
Result<std::map<std::string, GoldenTensor>> read_golden_file(const std::string& path);

}  // namespace fathom
