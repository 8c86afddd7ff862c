// fathom/backend/timed_operations.h
// A table whose entries call those of another one and note what each did: where a step's time goes, and what it would
// take at best. What runs between operations (the model's own arithmetic on small arrays) is in nobody's time.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fathom/backend/instruments.h"
#include "fathom/backend/operation_work.h"

namespace fathom {

/// All calls of one operation, products by the shape of their weight.
struct OperationTime {
  std::string_view name;
  std::string shape;  // "fp8 32768x1280", "6 mxfp4 2304x5120"; empty: no product
  int64_t calls = 0;
  double seconds = 0;  // between the queue's marks before and after
  // Counted calls only (KernelWork); the bound of each call for itself, added up over calls.
  int64_t memory_bytes = 0, cache_bytes = 0;
  double operations = 0, bound_seconds = 0;
};

/// `table`, whose calls are noted when one of the functions below asks for it and cost some nanoseconds more else.
/// Missing entries stay missing. A table is plain functions, so there is one ledger a process: the last table that was
/// given here is the one that is called, by one thread at a time.
Operations timed_operations(const Operations& table);

/// From now on every call is timed by `clock`, which must live until the times are taken; null: no longer.
void time_operations(QueueClock* clock);

/// From now on the work of every call is counted once it is done, which waits for it; null: no longer. Both must live
/// until the counts are taken. Keeps 56 bytes a call until then.
void count_operations(const Memory* memory, const MachinePeaks* peaks);

/// What was noted since the last take, in the order of Operations, and of shapes as they came first; then all is
/// forgotten. Waits for the last call. Counted calls were of `steps` steps that are alike: what one of them reads of
/// weights, keys and tables is what they go over again and again, and lies in the caches as far as they reach.
std::vector<OperationTime> take_operation_times(int64_t steps = 1);

}  // namespace fathom
