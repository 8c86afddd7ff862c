#include "fathom/backend/timed_operations.h"

#include <algorithm>

#include "fathom/backend/operation_list.h"
#include "fathom/backend/tables_under_test.h"

namespace fathom {
namespace {

OperationTime time_named(const std::vector<OperationTime>& times, std::string_view name) {
  return *std::find_if(times.begin(), times.end(), [&](const OperationTime& time) { return time.name == name; });
}

TEST(TimedOperationsTest, CallsAreCountedAndComputeWhatTheTableComputes) {
  const Operations timed = timed_operations(reference_operations());
  Queue queue{1};
  const std::vector<float> a = {1, 2}, b = {10, 20};
  std::vector<float> out(2);
  const AddRows op{{a.data(), {1, 2}}, {b.data(), {1, 2}}, {out.data(), {1, 2}}};
  timed.add_rows(queue, op);
  timed.add_rows(queue, op);
  EXPECT_EQ(out, (std::vector<float>{11, 22}));
  const auto times = take_operation_times();
  EXPECT_EQ(times.size(), list_operations(timed).size());
  EXPECT_EQ(time_named(times, "add_rows").calls, 2);
  EXPECT_GT(time_named(times, "add_rows").seconds, 0);
  EXPECT_EQ(time_named(times, "linear").calls, 0);
  EXPECT_EQ(time_named(take_operation_times(), "add_rows").calls, 0) << "a take starts anew";
}

TEST(TimedOperationsTest, AMissingEntryStaysMissing) {
  Operations table = reference_operations();
  table.sample = nullptr;
  const Operations timed = timed_operations(table);
  EXPECT_EQ(timed.sample, nullptr);
  EXPECT_NE(timed.accept, nullptr);
}

}  // namespace
}  // namespace fathom
