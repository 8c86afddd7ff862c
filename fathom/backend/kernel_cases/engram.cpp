// The n-gram memory (model.md 9): row numbers, rows of a table that no cache holds, and how they enter the streams.
// Flash's table has 384 million rows; here it is cut to what is certainly beyond the caches. Pages are in memory: what
// the disk costs is not measured.
#include "fathom/backend/kernel_cases/case_memory.h"

namespace fathom {
namespace {

struct Lookup {
  const char* model;
  int64_t heads, channels, hidden, rows;  // of the table that stands for the model's
};
constexpr Lookup kMemories[] = {{"flash", 8, 256, 5120, 1 << 20}, {"miniature", 4, 32, 256, 7592}};
constexpr int64_t kOrders = 3, kStreams = 4, kStep = 4099;
constexpr DType kBf16 = DType::bf16;

Result<KernelRun> hash_rows(CaseSpace space, const Lookup& m, int64_t rows) {
  auto memory = std::make_shared<CaseMemory>(space);
  const int64_t columns = kOrders * m.heads;
  constexpr int32_t kVocabulary = 4096;
  std::vector<int32_t> ids, map;
  std::vector<int64_t> primes, offsets;
  for (int64_t r = 0; r < rows; ++r) ids.push_back(int32_t(r * 7919 % kVocabulary));
  for (int32_t i = 0; i < kVocabulary; ++i) map.push_back(i);
  for (int64_t c = 0; c < columns; ++c) {
    primes.push_back(16000057 + 2 * c);
    offsets.push_back(c * 16000200);
  }
  const auto span_of = [](auto view) { return std::span(view.data, size_t(view.shape[0])); };
  NgramHash op;
  op.rows = memory->row_set({{3, rows}});
  op.ids = memory->numbers(ids);
  op.history = memory->numbers(std::vector<int32_t>{1, 2, 3}, kOrders);
  op.token_map = span_of(View<const int32_t, 1>(memory->numbers(map)));
  op.pad = 2;
  op.multipliers = span_of(View<const int64_t, 1>(
      memory->numbers(std::vector<int64_t>{76632096046245, 4839876093313, 35959672319349, 73987337458391})));
  op.primes = span_of(View<const int64_t, 1>(memory->numbers(primes)));
  op.offsets = span_of(View<const int64_t, 1>(memory->numbers(offsets)));
  op.out = memory->numbers(std::vector<int64_t>(size_t(rows * columns)), columns);
  return repeats<&Operations::engram_hash>(memory, on_activations(rows * (8 + 8 * columns) + 16 * columns, 0), op);
}

Result<KernelRun> gather_rows(CaseSpace space, const Lookup& m, const std::shared_ptr<WeightCopies>& table, bool cold,
                              bool large, int64_t rows) {
  auto memory = std::make_shared<CaseMemory>(space);
  memory->keep(table);
  const int64_t columns = kOrders * m.heads, groups = m.channels / 32;
  EngramGather op;
  op.codes = {memory->raw(rows * columns * m.channels), DType::f8_e4m3, rows, columns * m.channels};
  op.scales = {memory->raw(rows * columns * groups), DType::f8_e8m0, rows, columns * groups};
  // Half of the table at a time, and from call to call another half, so that the same rows do not come again.
  const int64_t half = m.rows / 2;
  std::vector<int64_t> index;
  for (int64_t at = 0; at < rows * columns; ++at) {
    index.push_back(int64_t(uint64_t(philox(1, {uint32_t(at), 0, 0, 0})[0]) * uint64_t(half) >> 32));
  }
  op.index = memory->numbers(index, columns);
  const KernelWork work = work_of(op, cold ? 0 : table->bytes(), large);
  return repeats<&Operations::engram_gather>(memory, work, op, [table, half](EngramGather& call, int64_t i) {
    call.table = table->at(0).slice(i * kStep % half, half);
  });
}

Result<KernelRun> mix_rows(CaseSpace space, const Lookup& m, int64_t rows) {
  auto memory = std::make_shared<CaseMemory>(space);
  EngramMix op;
  op.streams = memory->tensor(kBf16, rows, kStreams * m.hidden);
  op.key_value = memory->tensor(kBf16, rows, (kStreams + 1) * m.hidden);
  op.q_weight = memory->tensor(kBf16, kStreams, m.hidden);
  op.k_weight = memory->tensor(kBf16, kStreams, m.hidden);
  op.eps = 1e-20f;
  // A stream: squares of both sides and their product with two weights summed, and the gated value added.
  const double operations = double(rows * kStreams * m.hidden) * (2 + 2 + 4 + 2);
  KernelWork work = on_activations(memory->bytes + rows * kStreams * m.hidden * 2, operations);
  work.cache_footprint = memory->bytes;
  return repeats<&Operations::engram_mix>(memory, work, op);
}

}  // namespace

void add_engram_cases(std::vector<KernelCase>& cases, const CaseSizes& sizes) {
  const auto name = [](const Lookup& m) { return size_name(kOrders * m.heads, m.channels); };
  for (const Lookup& m : kMemories) {
    KernelCase c{"engram_hash", "", std::to_string(kOrders * m.heads), m.model, "orders 2 to 4"};
    c.most_rows = 2048;
    c.open = opens([m, space = sizes.space](int64_t rows) { return hash_rows(space, m, rows); });
    cases.push_back(std::move(c));
  }
  for (const Lookup& m : kMemories) {
    KernelCase c{"engram_gather", "fp8", name(m), m.model, std::to_string(m.rows) + " table rows"};
    c.most_rows = 2048;
    const bool cold = c.model == "flash";
    c.open = [m, cold, space = sizes.space, large = sizes.large_pages]() -> Result<MakeRows> {
      const auto table = WeightCopies::make(space, DType::f8_e4m3, m.rows, m.channels, 0, large, 1, 1);
      if (!table) return table.error();
      return MakeRows([m, table = *table, cold, large, space](int64_t rows) {
        return gather_rows(space, m, table, cold, large, rows);
      });
    };
    cases.push_back(std::move(c));
  }
  for (const Lookup& m : kMemories) {
    KernelCase c{"engram_mix", "", size_name(kStreams, m.hidden), m.model, ""};
    c.most_rows = 2048;
    c.open = opens([m, space = sizes.space](int64_t rows) { return mix_rows(space, m, rows); });
    cases.push_back(std::move(c));
  }
}

}  // namespace fathom
