// fathom/backend/cpu/operations.cpp
// The whole dispatch of the CPU variants: chosen when a backend is opened.
#include <cstdlib>

#include "fathom/backend/backend.h"
#include "fathom/backend/cpu/isa.h"
#include "fathom/backend/cpu/product.h"
#include "fathom/backend/cpu/row_operations.h"
#include "fathom/backend/host.h"

namespace fathom {
namespace cpu {
namespace {

constexpr ProductVariant kPortable{&kProductPortable, nullptr};
constexpr ProductVariant kAvx2{&kProductAvx2, nullptr};
constexpr ProductVariant kAvx512{&kProductAvx512, nullptr, true};
constexpr ProductVariant kAvx512Bf16{&kProductAvx512, &kProductAvx512Bf16, true};

template <const ProductVariant& variant>
void set_products(Operations& table) {
  table.linear = [](Queue& queue, const Linear& op) { run_linear(queue, op, variant); };
  table.grouped_linear = [](Queue& queue, const GroupedLinear& op) { run_grouped_linear(queue, op, variant); };
  if (&variant == &kPortable) return;  // its gate is the reference's
  table.gate = [](Queue& queue, const Gate& op) { run_gate(queue, op, variant); };
}

}  // namespace

Operations cpu_operations(const Processor& processor) {
  Operations table = reference_operations();  // what has no fast variant is slow, never missing
  table.name = "cpu";
  set_row_operations(table, processor);
  switch (processor.isa) {
    case Isa::portable: set_products<kPortable>(table); break;
    case Isa::avx2: set_products<kAvx2>(table); break;
    case Isa::avx512:
    case Isa::amx: processor.bf16_dot ? set_products<kAvx512Bf16>(table) : set_products<kAvx512>(table); break;
  }
  return table;
}

}  // namespace cpu

Result<Backend> cpu_backend() {
  const char* cap = std::getenv("FATHOM_CPU_ISA");
  const auto chosen = cpu::capped_processor(cpu::detected_processor(), cap ? cap : "");
  if (!chosen.ok()) return chosen.error();
  return host_backend("cpu", cpu::cpu_operations(*chosen), cpu::describe(*chosen));
}

}  // namespace fathom
