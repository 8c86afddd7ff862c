#include "fathom/backend/timed_operations.h"

#include <chrono>

#include "fathom/backend/operation_list.h"

namespace fathom {
namespace {

using Clock = std::chrono::steady_clock;

Operations timed_table;

template <auto entry>
OperationTime time_of;

template <auto entry, class Op>
void call_timed(Queue& queue, const Op& op) {
  const auto begin = Clock::now();
  (timed_table.*entry)(queue, op);
  time_of<entry>.seconds += std::chrono::duration<double>(Clock::now() - begin).count();
  ++time_of<entry>.calls;
}

template <auto entry, class Op>
void set_timed(void (*Operations::*)(Queue&, const Op&), Operations& table) {
  if (table.*entry != nullptr) table.*entry = call_timed<entry, Op>;
}

}  // namespace

Operations timed_operations(const Operations& table) {
  timed_table = table;
  Operations timed = table;
  for_each_operation([&]<auto entry>(std::string_view) { set_timed<entry>(entry, timed); });
  take_operation_times();
  return timed;
}

std::vector<OperationTime> take_operation_times() {
  std::vector<OperationTime> times;
  for_each_operation([&]<auto entry>(std::string_view name) {
    times.push_back({name, time_of<entry>.calls, time_of<entry>.seconds});
    time_of<entry> = {};
  });
  return times;
}

}  // namespace fathom
