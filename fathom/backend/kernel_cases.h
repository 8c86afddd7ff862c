// fathom/backend/kernel_cases.h
// The operations of the table at the shapes of V4.1 Flash and of the miniature, with the bytes and operations that the
// formats ask of each: what `fathom bench kernels` times. Sources: spec/model.md 1, 3; spec/memory.md 1, 5.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "fathom/backend/operation_work.h"

namespace fathom {

/// One shape with a number of rows, ready to be called. Owns or shares its memory.
struct KernelRun {
  KernelWork work;
  std::function<void(const Operations&, Queue&)> call;  // each call takes the next copy of what is read from memory
};

/// One operation at one shape.
struct KernelCase {
  std::string op;       // the entry of the table: "linear"
  std::string weights;  // format of what is read: "bf16", "fp8", "mxfp4", "q8"; empty: activations only
  std::string shape;    // "2304x5120"
  std::string model;    // "flash", "miniature"
  std::string place;    // in the model: "expert w1, w3"
  int64_t most_rows = 8192;
  int64_t n = 0, k = 0;  // of a plain product, which other libraries have too; else 0
  /// Makes the weights; what it returns makes the rows. Errors: out_of_memory.
  std::function<Result<std::function<Result<KernelRun>(int64_t rows)>>()> open{};
};

/// All cases, by operation. What Flash reads from memory is kept in copies of `cold_bytes` together at least, so that
/// no cache holds the next one; the miniature's weights lie in copies of `warm_bytes`, about what the model takes.
/// `large_pages`: what is read from memory lies in pages of 2 MiB where the system gives them, not in those of 4 KiB in
/// which files are mapped.
std::vector<KernelCase> kernel_cases(int64_t cold_bytes, int64_t warm_bytes, bool large_pages = false);

}  // namespace fathom
