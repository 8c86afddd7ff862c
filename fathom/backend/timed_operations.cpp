#include "fathom/backend/timed_operations.h"

#include <algorithm>

#include "fathom/backend/operation_list.h"

namespace fathom {
namespace {

// The weight of a product; none: all zero.
struct Shape {
  DType dtype = DType::f32;
  int64_t experts = 0, rows = 0, cols = 0;
  friend bool operator==(const Shape&, const Shape&) = default;
};

Shape shape_of(const Linear& op) { return {op.weight.dtype(), 1, op.weight.rows(), op.weight.cols()}; }
Shape shape_of(const GroupedLinear& op) {
  if (op.weights.empty()) return {};
  return {op.weights[0].dtype(), int64_t(op.weights.size()), op.weights[0].rows(), op.weights[0].cols()};
}
template <class Op>
Shape shape_of(const Op&) {
  return {};
}

const char* weight_name(DType dtype) {
  switch (dtype) {
    case DType::bf16: return "bf16";
    case DType::f8_e4m3: return "fp8";
    case DType::f4_e2m1: return "mxfp4";
    default: return "f32";
  }
}

std::string text_of(const Shape& s) {
  if (s.experts == 0) return "";
  return (s.experts > 1 ? std::to_string(s.experts) + " " : "") + weight_name(s.dtype) + " " + std::to_string(s.rows) +
         "x" + std::to_string(s.cols);
}

// Marks of a call whose time is not known yet.
struct Call {
  int64_t begin = 0, end = 0;
};

struct Total {
  Shape shape;
  OperationTime time;
  std::vector<Call> pending;
  std::vector<KernelWork> counted;  // whose bound is not known yet
};

struct Ledger {
  Operations table;
  QueueClock* clock = nullptr;
  const Memory* memory = nullptr;
  const MachinePeaks* peaks = nullptr;
};
Ledger ledger;

template <auto entry>
std::vector<Total> totals_of;

template <auto entry>
Total& total_of(const Shape& shape) {
  for (Total& total : totals_of<entry>) {
    if (total.shape == shape) return total;
  }
  return totals_of<entry>.emplace_back(Total{shape, {}, {}, {}});
}

template <auto entry, class Op>
void call_timed(Queue& queue, const Op& op) {
  if (ledger.clock == nullptr && ledger.memory == nullptr) return (ledger.table.*entry)(queue, op);
  Total& total = total_of<entry>(shape_of(op));
  ++total.time.calls;
  if (ledger.clock != nullptr) {
    Call call;
    call.begin = ledger.clock->mark();
    (ledger.table.*entry)(queue, op);
    call.end = ledger.clock->mark();
    total.pending.push_back(call);
    return;
  }
  (ledger.table.*entry)(queue, op);
  queue.wait();
  total.counted.push_back(WorkReader(*ledger.memory)(op));
}

// `footprint`: bytes that a step reads beside activations.
void add_counted(Total& total, int64_t footprint) {
  for (KernelWork& work : total.counted) {
    total.time.memory_bytes += work.memory_bytes;
    total.time.cache_bytes += work.cache_bytes;
    total.time.operations += work.operations;
    work.memory_footprint = footprint;
    total.time.bound_seconds += bound_of(work, *ledger.peaks).seconds;
  }
  total.counted.clear();
}

template <auto entry, class Op>
void set_timed(void (*Operations::*)(Queue&, const Op&), Operations& table) {
  if (table.*entry != nullptr) table.*entry = call_timed<entry, Op>;
}

}  // namespace

Operations timed_operations(const Operations& table) {
  ledger = {table};
  Operations timed = table;
  for_each_operation([&]<auto entry>(std::string_view) {
    set_timed<entry>(entry, timed);
    totals_of<entry>.clear();
  });
  return timed;
}

void time_operations(QueueClock* clock) { ledger.clock = clock; }

void count_operations(const Memory* memory, const MachinePeaks* peaks) {
  ledger.memory = memory;
  if (peaks != nullptr) ledger.peaks = peaks;
}

std::vector<OperationTime> take_operation_times(int64_t steps) {
  std::vector<OperationTime> times;
  int64_t footprint = 0;
  for_each_operation([&]<auto entry>(std::string_view) {
    for (const Total& total : totals_of<entry>) {
      for (const KernelWork& work : total.counted) footprint += work.memory_bytes;
    }
  });
  footprint /= std::max<int64_t>(steps, 1);
  for_each_operation([&]<auto entry>(std::string_view name) {
    for (Total& total : totals_of<entry>) {
      if (total.time.calls == 0) continue;
      for (const Call& call : total.pending) total.time.seconds += ledger.clock->seconds(call.begin, call.end);
      add_counted(total, footprint);
      total.time.name = name;
      total.time.shape = text_of(total.shape);
      times.push_back(std::move(total.time));
      total.time = {};
      total.pending.clear();  // keeps its memory
    }
  });
  if (ledger.clock != nullptr) ledger.clock->restart();
  return times;
}

}  // namespace fathom
