#include "fathom/model/golden/golden_file.h"

#include <cstring>

#include "fathom/base/mapped_file.h"
#include "fathom/checkpoint/safetensors.h"

namespace fathom {

Result<std::map<std::string, GoldenTensor>> read_golden_file(const std::string& path) {
  const auto file = MappedFile::open(path);
  if (!file) return file.error();
  const auto header = read_safetensors_header(file->bytes(), path);
  if (!header) return header.error();
  std::map<std::string, GoldenTensor> out;
  for (const TensorEntry& entry : header->tensors) {
    GoldenTensor tensor;
    for (const int64_t dim : entry.spec.shape.dims()) tensor.shape.push_back(dim);
    const int64_t n = entry.spec.shape.elements();
    tensor.values.resize(size_t(n));
    const uint8_t* bytes = file->bytes().data() + entry.begin;
    for (int64_t i = 0; i < n; ++i) {
      switch (entry.spec.dtype) {
        case DType::f32: std::memcpy(&tensor.values[size_t(i)], bytes + i * 4, 4); break;
        case DType::i32: {
          int32_t value = 0;
          std::memcpy(&value, bytes + i * 4, 4);
          tensor.values[size_t(i)] = float(value);
          break;
        }
        case DType::u8:
        case DType::boolean:
        case DType::i8:
        case DType::f8_e4m3:
        case DType::f8_e8m0: tensor.values[size_t(i)] = float(bytes[i]); break;
        default:
          return Error{ErrorCode::bad_input, std::string("tensor of type ") + name_of(entry.spec.dtype),
                       path + ": " + entry.spec.name, "golden files hold F32, I32, U8, BOOL and 8-bit codes"};
      }
    }
    out.emplace(entry.spec.name, std::move(tensor));
  }
  return out;
}

}  // namespace fathom
