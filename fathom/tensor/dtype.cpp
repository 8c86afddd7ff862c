#include "fathom/tensor/dtype.h"

#include <array>
#include <utility>

namespace fathom {
namespace {

struct Row {
  DType dtype;
  const char* name;
  int bits;
};

constexpr std::array kRows = {
    Row{DType::f32, "F32", 32},        Row{DType::bf16, "BF16", 16},      Row{DType::f8_e4m3, "F8_E4M3", 8},
    Row{DType::f8_e8m0, "F8_E8M0", 8}, Row{DType::f4_e2m1, "F4_E2M1", 4}, Row{DType::i8, "I8", 8},
    Row{DType::u8, "U8", 8},           Row{DType::i32, "I32", 32},        Row{DType::i64, "I64", 64},
    Row{DType::boolean, "BOOL", 8},    Row{DType::f16, "F16", 16},
};

}  // namespace

int bits_of(DType dtype) { return kRows[size_t(dtype)].bits; }

int64_t bytes_of(DType dtype, int64_t count) { return (count * bits_of(dtype) + 7) / 8; }

const char* name_of(DType dtype) { return kRows[size_t(dtype)].name; }

std::optional<DType> dtype_of(std::string_view safetensors_name) {
  for (const Row& row : kRows) {
    if (safetensors_name == row.name) return row.dtype;
  }
  return {};
}

}  // namespace fathom
