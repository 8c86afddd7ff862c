// fathom/backend/operation_work.h
// What one call of an operation has to do whatever the kernel is, counted from the operation itself, and how fast a
// machine could do it at best: the yardstick of `fathom bench kernels` and `fathom bench prefill|decode
// --per-operation`. Sources: spec/model.md 3, spec/memory.md 1, 5, 6.
#pragma once
#include <cstdint>

#include "fathom/backend/backend.h"
#include "fathom/backend/machine_peaks.h"

namespace fathom {

/// In which numbers the multiply-adds can be done at best: f8_e4m3 and f4_e2m1 are exact in bf16, f4_e2m1 against
/// f4_e2m1 is exact in int8 (twice a code is a whole number up to 12).
enum class Arithmetic : uint8_t { f32, bf16, int8 };
const char* name_of(Arithmetic arithmetic);

/// Bytes are counted once, however often a kernel reads them.
struct KernelWork {
  int64_t memory_bytes = 0;      // read where no cache holds it: weights, keys, tables
  bool large_pages = false;      // these lie in pages of 2 MiB
  int64_t cache_bytes = 0;       // read and written where the last calls left it: activations
  int64_t cache_footprint = 0;   // of these: what the calls go over again and again; says which cache holds it
  int64_t memory_footprint = 0;  // the same of memory_bytes, where that is known; 0: more than caches hold
  double operations = 0;         // two a multiply-add
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

/// Work of a call that has just been made. What depends on the data (which experts were chosen, how many entries) is
/// read from the operation's arrays, so its queue must be done. Small arrays only: at most some per row.
class WorkReader {
 public:
  explicit WorkReader(const Memory& memory) : memory_(memory) {}

  KernelWork operator()(const Embed& op) const;
  KernelWork operator()(const GatherRows& op) const;
  KernelWork operator()(const AddRows& op) const;
  KernelWork operator()(const QuantizeRows& op) const;
  KernelWork operator()(const Linear& op) const;
  KernelWork operator()(const GroupedLinear& op) const;
  KernelWork operator()(const RmsNorm& op) const;
  KernelWork operator()(const Rope& op) const;
  KernelWork operator()(const EncodeRows& op) const;
  KernelWork operator()(const StoreRing& op) const;
  KernelWork operator()(const StorePaged& op) const;
  KernelWork operator()(const Compress& op) const;
  KernelWork operator()(const SelectRows& op) const;
  KernelWork operator()(const LatentAttention& op) const;
  KernelWork operator()(const Gate& op) const;
  KernelWork operator()(const GroupByExpert& op) const;
  KernelWork operator()(const SwiGlu& op) const;
  KernelWork operator()(const Combine& op) const;
  KernelWork operator()(const NgramHash& op) const;
  KernelWork operator()(const EngramGather& op) const;
  KernelWork operator()(const EngramMix& op) const;
  KernelWork operator()(const StreamMixes& op) const;
  KernelWork operator()(const StreamCollapse& op) const;
  KernelWork operator()(const StreamSpread& op) const;
  KernelWork operator()(const StreamMean& op) const;
  KernelWork operator()(const Sample& op) const;
  KernelWork operator()(const Accept& op) const;

 private:
  Memory memory_;
};

}  // namespace fathom
