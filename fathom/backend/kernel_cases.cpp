#include "fathom/backend/kernel_cases.h"

#include "fathom/backend/kernel_cases/copies.h"

namespace fathom {

const char* name_of(Arithmetic arithmetic) {
  switch (arithmetic) {
    case Arithmetic::f32: return "f32";
    case Arithmetic::bf16: return "bf16";
    case Arithmetic::int8: return "int8";
  }
  return "";
}

const char* name_of(KernelBound::By by) {
  switch (by) {
    case KernelBound::By::memory: return "memory";
    case KernelBound::By::cache: return "cache";
    case KernelBound::By::compute: return "compute";
  }
  return "";
}

KernelBound bound_of(const KernelWork& work, const MachinePeaks& peaks) {
  const double peak = work.arithmetic == Arithmetic::int8   ? peaks.int8
                      : work.arithmetic == Arithmetic::bf16 ? peaks.bf16
                                                            : peaks.f32;
  // Threads share the footprint: each core keeps its part.
  const int64_t part = work.cache_footprint / peaks.threads;
  const bool beyond = work.cache_footprint > peaks.l3_bytes;
  const double cache = part <= peaks.l1_bytes ? peaks.l1 : part <= peaks.l2_bytes ? peaks.l2 : peaks.l3;
  const double memory_bytes = double(work.memory_bytes) + (beyond ? double(work.cache_bytes) : 0);
  KernelBound bound{KernelBound::By::memory, memory_bytes / peaks.memory};
  const auto at_least = [&](KernelBound::By by, double seconds) {
    if (seconds > bound.seconds) bound = {by, seconds};
  };
  if (!beyond) at_least(KernelBound::By::cache, double(work.cache_bytes) / cache);
  at_least(KernelBound::By::compute, work.operations / peak);
  return bound;
}

std::vector<KernelCase> kernel_cases(int64_t cold_bytes, int64_t warm_bytes) {
  std::vector<KernelCase> cases;
  const CaseSizes sizes{cold_bytes, warm_bytes};
  add_product_cases(cases, sizes);
  return cases;
}

}  // namespace fathom
