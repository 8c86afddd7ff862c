// fathom/backend/kernel_cases/copies.h
// Memory of the cases: copies of what a kernel reads, taken in turn.
#pragma once
#include <algorithm>
#include <memory>
#include <vector>

#include "fathom/backend/kernel_cases.h"

namespace fathom {

/// Bytes that are neither NaN nor huge nor tiny in any of the formats: below 64. As bf16 0.04 to 1, as E4M3 up to 1.9.
void fill_values(uint8_t* data, int64_t bytes);
/// Numbers in [-1, 1) that repeat after a while: bf16 or f32.
void fill_activations(AnyViewMut out);

/// One run of bytes from the reference backend's memory. Errors: out_of_memory.
Result<std::shared_ptr<Buffer>> shared_bytes(int64_t bytes);

/// The rows of an activation with its memory.
struct Activations {
  std::shared_ptr<Buffer> memory;
  AnyViewMut values;
  AnyViewMut scales;  // of Q8
  int64_t bytes() const { return memory->bytes(); }
  Matrix matrix() const { return scales.data == nullptr ? Matrix(values) : Matrix(values, scales, 1); }
};
/// bf16 or f32 rows, or Q8 rows with their scales. Errors: out_of_memory.
Result<Activations> make_activations(DType dtype, int64_t rows, int64_t cols);

/// Copies of one weight matrix, one behind the other.
class WeightCopies {
 public:
  /// Copies of `all_bytes` together, two at least unless one is that long. Errors: out_of_memory.
  static Result<WeightCopies> make(DType dtype, int64_t rows, int64_t cols, int64_t all_bytes, int64_t least = 1);
  int64_t count() const { return int64_t(copies_.size()); }
  int64_t bytes() const { return bytes_; }  // of one copy, scales included
  const Matrix& at(int64_t i) const { return copies_[size_t(i % count())]; }

 private:
  std::shared_ptr<Buffer> memory_;
  std::vector<Matrix> copies_;
  int64_t bytes_ = 0;
};

/// "fp8" and so on: what the model's users call the formats of weights.
const char* weights_name(DType dtype);
std::string size_name(int64_t rows, int64_t cols);  // "2304x5120"

/// Shared by the files of this folder.
struct CaseSizes {
  int64_t cold_bytes, warm_bytes;
};
void add_product_cases(std::vector<KernelCase>& cases, const CaseSizes& sizes);

}  // namespace fathom
