// fathom/backend/instruments.h
// What a backend offers to whoever makes models and measures them, beside running them (backend.h): how much memory is
// free, random weights drawn where they will be read, a clock that sees the queue's work, and what the machine can do
// at most. Of these a server asks once how much memory is free, to size its cache; the rest is for `fathom bench` and
// `--model synthetic:...`.
#pragma once
#include <cstdint>

#include "fathom/backend/backend.h"
#include "fathom/backend/machine_peaks.h"
#include "fathom/backend/random_weights.h"

namespace fathom {

/// Points of a queue's work in time. One thread; no other queue's marks at the same time.
class QueueClock {
 public:
  virtual ~QueueClock() = default;
  /// A mark that is passed when everything that was queued before is done. Returns its number, from 0. Costs the
  /// processor 1 to 2 us on a device, 30 ns else; allocates only when there are more marks than ever.
  virtual int64_t mark() = 0;
  /// Seconds between two marks; waits for the later one.
  virtual double seconds(int64_t from, int64_t to) = 0;
  /// Numbers start at 0 again.
  virtual void restart() = 0;
};

struct Instruments {
  /// Bytes that could be allocated now.
  int64_t (*free_bytes)() = nullptr;
  /// The largest cache before the memory; null: level3_bytes().
  int64_t (*cache_bytes)() = nullptr;
  /// Draws a whole tensor where it lies in the backend's memory; null: write_random_weights() and Memory::copy().
  void (*draw)(const RandomWeights& weights, uint8_t* out) = nullptr;
  /// Memory that the processor fills and operations then read at the backend's full speed: its pages move to whoever
  /// touches them, or all at once to the queue's device by settle(). For measuring only: a page that has to move stops
  /// a kernel (decisions/0014). Null: Memory::allocate gives such memory, and nothing has to settle.
  Result<Buffer> (*allocate_migrating)(int64_t bytes) = nullptr;
  void (*settle)(Queue&) = nullptr;
  std::unique_ptr<QueueClock> (*open_clock)(Queue&) = nullptr;
  /// Errors: out_of_memory.
  Result<MachinePeaks> (*peaks)(Queue&) = nullptr;
  /// How often a processor has waited until all work of a queue was done; null where operations finish before they
  /// return.
  int64_t (*waits)() = nullptr;
};

Instruments instruments_of(const Backend& backend);

/// Of the cuda backend; asked for only when there is one.
Instruments cuda_instruments();

}  // namespace fathom
