// The mixture of experts: gate, sorting, grouped products, SwiGLU, sum. Each row chooses its experts at random, as
// spec/memory.md 6 counts them; Flash's 384 experts take turns on fewer copies, enough that no cache holds the next
// one.
#include <numeric>

#include "fathom/backend/kernel_cases/case_memory.h"

namespace fathom {
namespace {

struct Mixture {
  const char* model;
  int64_t hidden, inner, experts, chosen, most_rows;
};
constexpr Mixture kMixtures[] = {{"flash", 5120, 2304, 384, 6, 2048}, {"miniature", 256, 96, 16, 2, 2048}};
constexpr int64_t kRoutings = 16;  // taken in turn, so that the same experts do not come again at once

/// Assignments of `rows` rows, sorted by expert.
struct Routing {
  View<const int32_t, 1> x_row, begin;
  int64_t distinct = 0;
};
Routing route(CaseMemory& memory, const Mixture& m, int64_t rows, uint64_t seed) {
  std::vector<std::vector<int32_t>> of_expert{size_t(m.experts)};
  for (int64_t r = 0; r < rows; ++r) {
    for (const int32_t e : choose(m.experts, m.chosen, seed * 100000 + uint64_t(r))) {
      of_expert[size_t(e)].push_back(int32_t(r));
    }
  }
  Routing routing;
  std::vector<int32_t> x_row, begin{0};
  for (const auto& of : of_expert) {
    x_row.insert(x_row.end(), of.begin(), of.end());
    begin.push_back(int32_t(x_row.size()));
    if (!of.empty()) ++routing.distinct;
  }
  routing.x_row = memory.numbers(x_row);
  routing.begin = memory.numbers(begin);
  return routing;
}

Result<KernelRun> grouped_rows(CaseSpace space, const Mixture& m, bool down,
                               const std::shared_ptr<WeightCopies>& weights, bool cold, bool large, int64_t rows) {
  const int64_t n = down ? m.hidden : m.inner, k = down ? m.inner : m.hidden, assignments = rows * m.chosen;
  auto memory = std::make_shared<CaseMemory>(space);
  memory->keep(weights);
  auto experts = std::make_shared<std::vector<Matrix>>();
  for (int64_t e = 0; e < m.experts; ++e) experts->push_back(weights->at(e));
  memory->keep(experts);
  std::vector<Routing> routings;
  double distinct = 0;
  for (int64_t i = 0; i < kRoutings; ++i) {
    routings.push_back(route(*memory, m, rows, uint64_t(i)));
    distinct += double(routings.back().distinct) / double(kRoutings);
  }
  GroupedLinear op;
  op.x = memory->rows(DType::f8_e4m3, down ? assignments : rows, k);
  op.weights = *experts;
  op.out = memory->tensor(DType::bf16, assignments, n);
  KernelWork work = on_activations(memory->bytes, 2.0 * double(assignments * n * k));
  const auto read = int64_t(distinct * double(weights->bytes()));
  if (cold) {
    work.memory_bytes = read;
    work.large_pages = large;
  } else {
    work.cache_bytes += read;
    work.cache_footprint += weights->bytes() * m.experts;
  }
  work.arithmetic = Arithmetic::bf16;
  return repeats<&Operations::grouped_linear>(memory, work, op, [routings, down](GroupedLinear& call, int64_t i) {
    const Routing& routing = routings[size_t(i % kRoutings)];
    if (!down) call.x_row = routing.x_row;
    call.begin = routing.begin;
  });
}

KernelCase grouped_case(const Mixture& m, bool down, const CaseSizes& sizes) {
  const int64_t n = down ? m.hidden : m.inner, k = down ? m.inner : m.hidden;
  KernelCase c{
      "grouped_linear", "mxfp4", size_name(n, k), m.model,
      (down ? "experts w2, " : "experts w1, w3, ") + std::to_string(m.chosen) + " of " + std::to_string(m.experts)};
  c.most_rows = 8192;
  c.sizes = {{"n", n}, {"k", k}, {"experts", m.experts}, {"chosen", m.chosen}};
  const bool cold = c.model == "flash";
  c.open = [m, down, n, k, cold, sizes]() -> Result<MakeRows> {
    // Twice what linear keeps: two rows of a call that choose neighbours must not meet the same copy in a cache.
    const auto weights =
        cold ? WeightCopies::make(sizes.space, DType::f4_e2m1, n, k, 2 * sizes.cold_bytes, sizes.large_pages)
             : WeightCopies::make(sizes.space, DType::f4_e2m1, n, k, sizes.warm_bytes, false, m.experts);
    if (!weights) return weights.error();
    return MakeRows([m, down, cold, space = sizes.space, large = sizes.large_pages, weights = *weights](int64_t rows) {
      return grouped_rows(space, m, down, weights, cold, large, rows);
    });
  };
  return c;
}

Result<KernelRun> gate_rows(CaseSpace space, const Mixture& m, const std::shared_ptr<WeightCopies>& weights, bool cold,
                            bool large, int64_t rows) {
  auto memory = std::make_shared<CaseMemory>(space);
  memory->keep(weights);
  Gate op;
  op.x = memory->tensor(DType::bf16, rows, m.hidden);
  op.bias = op.bias_image = memory->numbers(std::vector<float>(size_t(m.experts), 0.0f));
  op.scale = 1.5f;
  op.experts = memory->numbers(std::vector<int32_t>(size_t(rows * m.chosen)), m.chosen);
  op.weights = memory->floats(rows, m.chosen);
  op.weight = weights->at(0).values;
  const KernelWork work = work_of(op, cold ? 0 : weights->all_bytes(), large);
  return repeats<&Operations::gate>(memory, work, op,
                                    [weights](Gate& call, int64_t i) { call.weight = weights->at(i).values; });
}

KernelCase gate_case(const Mixture& m, const CaseSizes& sizes) {
  KernelCase c{"gate", "bf16", size_name(m.experts, m.hidden), m.model, "top " + std::to_string(m.chosen)};
  c.most_rows = m.most_rows;
  const bool cold = c.model == "flash";
  const int64_t all = cold ? sizes.cold_bytes : sizes.warm_bytes;
  c.open = [m, cold, all, space = sizes.space, large = sizes.large_pages]() -> Result<MakeRows> {
    const auto weights = WeightCopies::make(space, DType::bf16, m.experts, m.hidden, all, large);
    if (!weights) return weights.error();
    return MakeRows([m, cold, large, weights = *weights, space](int64_t rows) {
      return gate_rows(space, m, weights, cold, large, rows);
    });
  };
  return c;
}

Result<KernelRun> swiglu_rows(CaseSpace space, const Mixture& m, int64_t rows) {
  auto memory = std::make_shared<CaseMemory>(space);
  const int64_t n = rows * m.chosen;
  SwiGlu op;
  op.gate = memory->tensor(DType::bf16, n, m.inner);
  op.up = memory->tensor(DType::bf16, n, m.inner);
  op.out = memory->tensor(DType::bf16, n, m.inner);
  op.weight = memory->numbers(std::vector<float>(size_t(n), 0.5f));
  op.limit = 10;
  return repeats<&Operations::swiglu>(memory, op);
}

Result<KernelRun> swiglu_codes(CaseSpace space, const Mixture& m, int64_t rows) {
  auto memory = std::make_shared<CaseMemory>(space);
  const int64_t n = rows * m.chosen;
  SwiGlu op;
  op.gate = memory->tensor(DType::bf16, n, m.inner);
  op.up = memory->tensor(DType::bf16, n, m.inner);
  op.weight = memory->numbers(std::vector<float>(size_t(n), 0.5f));
  op.limit = 10;
  op.q8 = memory->q8_rows(n, m.inner);
  return repeats<&Operations::swiglu>(memory, op);
}

Result<KernelRun> combine_rows(CaseSpace space, const Mixture& m, int64_t rows) {
  auto memory = std::make_shared<CaseMemory>(space);
  std::vector<int32_t> place(size_t(rows * m.chosen));
  std::iota(place.begin(), place.end(), 0);
  Combine op;
  op.routed = memory->tensor(DType::bf16, rows * m.chosen, m.hidden);
  op.place = memory->numbers(place, m.chosen);
  op.shared = memory->tensor(DType::bf16, rows, m.hidden);
  op.out = memory->tensor(DType::bf16, rows, m.hidden);
  return repeats<&Operations::combine>(memory, op);
}

Result<KernelRun> group_rows(CaseSpace space, const Mixture& m, int64_t rows) {
  auto memory = std::make_shared<CaseMemory>(space);
  std::vector<int32_t> experts;
  for (int64_t r = 0; r < rows; ++r) {
    const auto chosen = choose(m.experts, m.chosen, uint64_t(r));
    experts.insert(experts.end(), chosen.begin(), chosen.end());
  }
  const size_t n = experts.size();
  GroupByExpert op;
  op.experts = memory->numbers(experts, m.chosen);
  op.weights = memory->floats(rows, m.chosen);
  op.begin = memory->numbers(std::vector<int32_t>(size_t(m.experts + 1)));
  op.row = memory->numbers(std::vector<int32_t>(n));
  op.weight = memory->numbers(std::vector<float>(n));
  op.place = memory->numbers(std::vector<int32_t>(n), m.chosen);
  return repeats<&Operations::group_by_expert>(memory, op);
}

}  // namespace

void add_expert_cases(std::vector<KernelCase>& cases, const CaseSizes& sizes) {
  for (const Mixture& m : kMixtures) {
    for (const bool down : {false, true}) cases.push_back(grouped_case(m, down, sizes));
  }
  for (const Mixture& m : kMixtures) cases.push_back(gate_case(m, sizes));
  const auto add = [&](const char* op, const Mixture& m, int64_t width, const std::string& place, auto rows_of) {
    KernelCase c{op, "", std::to_string(width), m.model, place};
    c.most_rows = m.most_rows;
    c.open = opens([m, rows_of, space = sizes.space](int64_t rows) { return rows_of(space, m, rows); });
    cases.push_back(std::move(c));
  };
  for (const Mixture& m : kMixtures) {
    add("group_by_expert", m, m.experts, std::to_string(m.chosen) + " a row", group_rows);
  }
  for (const Mixture& m : kMixtures) add("swiglu", m, m.inner, std::to_string(m.chosen) + " a row", swiglu_rows);
  for (const Mixture& m : kMixtures) {
    add("swiglu", m, m.inner, std::to_string(m.chosen) + " a row, to Q8", swiglu_codes);
  }
  for (const Mixture& m : kMixtures) add("combine", m, m.hidden, std::to_string(m.chosen) + " a row", combine_rows);
}

}  // namespace fathom
