// fathom/backend/tables_under_test.h
// What the tests of operations share: every table that this machine can run. A test is written once, from the spec, and
// runs over all tables; those that are not the definition are compared with it too.
#pragma once
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "fathom/backend/backend.h"
#include "fathom/backend/cpu/isa.h"
#include "fathom/backend/host.h"
#include "fathom/backend/owned_values.h"

namespace fathom {

/// The reference, then the cpu backend with each instruction set that the processor has, then a device if there is one.
inline const std::vector<Backend>& tables_under_test() {
  static const std::vector<Backend> all = [] {
    std::vector<Backend> tables{reference_backend()};
    for (const cpu::Processor& processor : cpu::runnable_processors()) {
      const std::string name = std::string("cpu_") + cpu::name_of(processor.isa) + (processor.bf16_dot ? "_bf16" : "");
      tables.push_back(host_backend(name, cpu::cpu_operations(processor), cpu::describe(processor)));
    }
    if (const auto device = cuda_backend(); device.ok()) tables.push_back(*device);
    return tables;
  }();
  return all;
}

/// Two threads: what a piece boundary changes would show.
inline std::unique_ptr<Queue> queue_under_test(const Backend& backend) {
  auto queue = backend.open_queue(2);
  check(queue.ok(), "a queue of a table under test opens");
  return std::move(*queue);
}

/// A suite that runs once for each table: `ops()` is the one under test, `definition()` the reference, which may be
/// given the queue of any.
class OverTables : public testing::TestWithParam<size_t> {
 protected:
  const Operations& ops() const { return tables_under_test()[GetParam()].ops; }
  const Operations& definition() const { return tables_under_test()[0].ops; }
  std::unique_ptr<Queue> opened = queue_under_test(tables_under_test()[GetParam()]);
  Queue& queue = *opened;
};

inline auto all_tables() { return testing::Range(size_t(0), tables_under_test().size()); }
inline std::string table_name(const testing::TestParamInfo<size_t>& info) {
  return tables_under_test()[info.param].name;
}

}  // namespace fathom
