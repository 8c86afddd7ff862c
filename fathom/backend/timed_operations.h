// fathom/backend/timed_operations.h
// A table whose entries call those of another one and note how long each took: where a step's time goes. What runs
// between operations (the model's own arithmetic on small arrays) is in nobody's time.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "fathom/backend/ops.h"

namespace fathom {

struct OperationTime {
  std::string_view name;
  int64_t calls = 0;
  double seconds = 0;  // of the calling thread, from entry to return
};

/// `table`, timed. Missing entries stay missing. A table is plain functions, so there is one ledger a process: the last
/// table that was given here is the one that is called, by one thread at a time. A call costs about 50 ns more.
Operations timed_operations(const Operations& table);

/// What the timed table's calls took since the last take, in the order of Operations; then all is zero again.
std::vector<OperationTime> take_operation_times();

}  // namespace fathom
