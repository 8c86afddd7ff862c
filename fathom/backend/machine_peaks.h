// fathom/backend/machine_peaks.h
// What this processor can do at most, measured: the yardsticks of `fathom bench kernels`.
#pragma once
#include <cstdint>
#include <string>

#include "fathom/base/result.h"
#include "fathom/base/thread_pool.h"

namespace fathom {

/// Of all threads of the pool together.
struct MachinePeaks {
  int threads = 1;
  int64_t l1_bytes = 0, l2_bytes = 0;  // of one core
  int64_t l3_bytes = 0;                // that the cores share
  // Reading, bytes a second: each thread its own part, over and over.
  double memory = 0;              // a part far larger than the caches, in pages of 4 KiB, as files are mapped
  double memory_large_pages = 0;  // in pages of 2 MiB, where the system gives them: fewer translations
  double l3 = 0, l2 = 0, l1 = 0;
  int64_t memory_read = 0, l3_read = 0, l2_read = 0, l1_read = 0;  // bytes that all threads went over
  // Multiply-adds on registers, two operations each, operations a second.
  double f32 = 0, bf16 = 0, int8 = 0;
  std::string f32_by, bf16_by, int8_by;  // the instruction: "vdpbf16ps"; of AMX none yet
};

/// Caches as the system names them; 32 KiB, 1 MiB and 32 MiB where it does not.
int64_t level1_bytes();
int64_t level2_bytes();
int64_t level3_bytes();

/// The best of several runs each, with the best instructions of this processor (whatever FATHOM_CPU_ISA says), until a
/// round of about half a second finds nothing better: a neighbour that takes a core for a while must not become the
/// yardstick. Memory: four times the level 3 cache, 256 MiB at least. One caller of the pool at a time.
/// Errors: out_of_memory.
Result<MachinePeaks> measure_peaks(ThreadPool& pool, int most_rounds = 4);

}  // namespace fathom
