// fathom/backend/kernel_cases.h
// The operations of the table at the shapes of V4.1 Flash and of the miniature, with the bytes and operations that the
// formats ask of each: what `fathom bench kernels` times. Sources: spec/model.md 1, 3; spec/memory.md 1, 5.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fathom/backend/operation_work.h"

namespace fathom {

/// One shape with a number of rows, ready to be called. Owns or shares its memory.
struct KernelRun {
  KernelWork work;
  std::function<void(const Operations&, Queue&)> call;  // each call takes the next copy of what is read from memory
  /// What the first call writes, against its definition (written_arrays.h). Runs both, the definition on one thread.
  std::function<double(const Operations&, Queue&)> error;
};

/// One operation at one shape.
struct KernelCase {
  std::string op;       // the entry of the table: "linear"
  std::string weights;  // format of what is read: "bf16", "fp8", "mxfp4", "q8"; empty: activations only
  std::string shape;    // "2304x5120"
  std::string model;    // "flash", "miniature"
  std::string place;    // in the model: "expert w1, w3"
  int64_t most_rows = 8192;
  /// Where other libraries have it too, what they must know beside the rows: "n", "k" of a product; with "experts" and
  /// "chosen" of each row; "heads", "channels", "keys" of attention. Empty: they have not.
  std::vector<std::pair<const char*, int64_t>> sizes{};
  int64_t size(std::string_view name) const;  // 0: it has none of that name
  /// Makes the weights; what it returns makes the rows. Errors: out_of_memory.
  std::function<Result<std::function<Result<KernelRun>(int64_t rows)>>()> open{};
};

/// Where cases have their memory: what the processor fills and operations read at the backend's full speed
/// (Instruments::allocate_migrating). Null: the processor's own.
using CaseSpace = Result<Buffer> (*)(int64_t bytes);

/// All cases, by operation. What Flash reads from memory is kept in copies of `cold_bytes` together at least, so that
/// no cache holds the next one; the miniature's weights lie in copies of `warm_bytes`, about what the model takes.
/// `large_pages`: what is read from memory lies in pages of 2 MiB where the system gives them, not in those of 4 KiB in
/// which files are mapped.
std::vector<KernelCase> kernel_cases(int64_t cold_bytes, int64_t warm_bytes, bool large_pages = false,
                                     CaseSpace space = nullptr);

}  // namespace fathom
