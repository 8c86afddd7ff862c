// fathom/backend/kernel_cases.h
// The operations of the table at the shapes of V4.1 Flash and of the miniature, with the bytes and operations that the
// formats ask of each: what `fathom bench kernels` times. Sources: spec/model.md 1, 3; spec/memory.md 1, 5.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "fathom/backend/backend.h"
#include "fathom/backend/machine_peaks.h"

namespace fathom {

/// In which numbers the multiply-adds can be done at best: f8_e4m3 and f4_e2m1 are exact in bf16, f4_e2m1 against
/// f4_e2m1 is exact in int8 (twice a code is a whole number up to 12).
enum class Arithmetic : uint8_t { f32, bf16, int8 };
const char* name_of(Arithmetic arithmetic);

/// What one call has to do whatever the kernel is. Bytes are counted once, however often a kernel reads them.
struct KernelWork {
  int64_t memory_bytes = 0;     // read where no cache holds it: weights, keys, tables
  bool large_pages = false;     // these lie in pages of 2 MiB
  int64_t cache_bytes = 0;      // read and written where the last calls left it: activations
  int64_t cache_footprint = 0;  // of these: what the calls go over again and again; says which cache holds it
  double operations = 0;        // two a multiply-add
  Arithmetic arithmetic = Arithmetic::f32;
};

/// The least time a call can take on a machine: the longest of its parts, as if they were done at once.
struct KernelBound {
  enum class By : uint8_t { memory, cache, compute };
  By by = By::memory;
  double seconds = 0;
};
const char* name_of(KernelBound::By by);
KernelBound bound_of(const KernelWork& work, const MachinePeaks& peaks);

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
