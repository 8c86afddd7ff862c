#include "fathom/backend/kernel_cases.h"

#include <algorithm>

#include "fathom/backend/kernel_cases/case_memory.h"

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
  // What the calls go over again and again lies in the caches as far as they reach, at best the nearest ones.
  const double footprint = double(std::max<int64_t>(work.cache_footprint, 1));
  double left = footprint, cache = 0;
  const auto take = [&](int64_t size, double rate) {
    const double part = std::min(left, double(size));
    cache += double(work.cache_bytes) * part / footprint / rate;
    left -= part;
  };
  take(peaks.l1_bytes * peaks.threads, peaks.l1);
  take((peaks.l2_bytes - peaks.l1_bytes) * peaks.threads, peaks.l2);
  take(peaks.l3_bytes, peaks.l3);
  const double memory_bytes = double(work.memory_bytes) + double(work.cache_bytes) * left / footprint;
  KernelBound bound{KernelBound::By::memory,
                    memory_bytes / (work.large_pages ? peaks.memory_large_pages : peaks.memory)};
  const auto at_least = [&](KernelBound::By by, double seconds) {
    if (seconds > bound.seconds) bound = {by, seconds};
  };
  at_least(KernelBound::By::cache, cache);
  at_least(KernelBound::By::compute, work.operations / peak);
  return bound;
}

std::vector<KernelCase> kernel_cases(int64_t cold_bytes, int64_t warm_bytes, bool large_pages) {
  std::vector<KernelCase> cases;
  const CaseSizes sizes{cold_bytes, warm_bytes, large_pages};
  add_product_cases(cases, sizes);
  add_expert_cases(cases, sizes);
  add_attention_cases(cases, sizes);
  add_stream_cases(cases, sizes);
  add_engram_cases(cases, sizes);
  add_row_cases(cases, sizes);
  return cases;
}

}  // namespace fathom
