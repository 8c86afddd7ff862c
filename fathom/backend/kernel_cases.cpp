#include "fathom/backend/kernel_cases.h"

#include "fathom/backend/kernel_cases/case_memory.h"

namespace fathom {

int64_t KernelCase::size(std::string_view name) const {
  for (const auto& [own, value] : sizes) {
    if (own == name) return value;
  }
  return 0;
}

std::vector<KernelCase> kernel_cases(int64_t cold_bytes, int64_t warm_bytes, bool large_pages, CaseSpace space) {
  std::vector<KernelCase> cases;
  const CaseSizes sizes{cold_bytes, warm_bytes, large_pages, space};
  add_product_cases(cases, sizes);
  add_expert_cases(cases, sizes);
  add_attention_cases(cases, sizes);
  add_stream_cases(cases, sizes);
  add_engram_cases(cases, sizes);
  add_row_cases(cases, sizes);
  return cases;
}

}  // namespace fathom
