// Hyper-connections: the mixing weights with Sinkhorn, and the four streams (model.md 4).
#include <numeric>

#include "fathom/backend/kernel_cases/case_memory.h"

namespace fathom {
namespace {

constexpr int64_t kStreams = 4, kMixes = (2 + kStreams) * kStreams;
constexpr DType kBf16 = DType::bf16;

struct Site {
  const char* model;
  int64_t hidden;
};
constexpr Site kSites[] = {{"flash", 5120}, {"miniature", 256}};

Result<KernelRun> mixes_rows(CaseSpace space, const Site& site, const std::shared_ptr<WeightCopies>& fn, bool cold,
                             bool large, int64_t rows) {
  auto memory = std::make_shared<CaseMemory>(space);
  memory->keep(fn);
  const int64_t width = kStreams * site.hidden;
  StreamMixes op;
  op.streams = memory->tensor(kBf16, rows, width);
  op.pre = memory->floats(rows, kStreams);
  op.post = memory->floats(rows, kStreams);
  op.comb = memory->floats(rows, kStreams * kStreams);
  op.scale = memory->numbers(std::vector<float>{0.5f, 1, 1.5f});
  op.base = memory->numbers(std::vector<float>(size_t(kMixes), 0.1f));
  op.fn = fn->at(0).values;
  const KernelWork work = work_of(op, cold ? 0 : fn->all_bytes(), large);
  return repeats<&Operations::stream_mixes>(memory, work, op,
                                            [fn](StreamMixes& call, int64_t i) { call.fn = fn->at(i).values; });
}

Result<KernelRun> collapse_rows(CaseSpace space, const Site& site, int64_t rows) {
  auto memory = std::make_shared<CaseMemory>(space);
  StreamCollapse op;
  op.streams = memory->tensor(kBf16, rows, kStreams * site.hidden);
  op.pre = memory->floats(rows, kStreams);
  op.out = memory->tensor(kBf16, rows, site.hidden);
  return repeats<&Operations::stream_collapse>(memory, op);
}

Result<KernelRun> spread_rows(CaseSpace space, const Site& site, int64_t rows) {
  auto memory = std::make_shared<CaseMemory>(space);
  StreamSpread op;
  op.y = memory->tensor(kBf16, rows, site.hidden);
  op.post = memory->floats(rows, kStreams);
  op.comb = memory->numbers(std::vector<float>(size_t(rows * kStreams * kStreams), 0.25f), kStreams * kStreams);
  op.streams = memory->tensor(kBf16, rows, kStreams * site.hidden);
  KernelWork work = WorkReader(Memory{})(op);
  work.cache_footprint = memory->bytes;  // streams are read and written
  return repeats<&Operations::stream_spread>(memory, work, op);
}

// What stands between two sub-layers.
Result<KernelRun> collapse_sites(CaseSpace space, const Site& site, int64_t rows) {
  auto memory = std::make_shared<CaseMemory>(space);
  StreamCollapse op;
  op.streams = memory->tensor(kBf16, rows, kStreams * site.hidden);
  op.pre = memory->floats(rows, kStreams);
  op.out = memory->tensor(kBf16, rows, site.hidden);
  op.norm = {memory->tensor(kBf16, 1, site.hidden), 1e-20f};
  op.q8 = memory->q8_rows(rows, site.hidden);
  return repeats<&Operations::stream_collapse>(memory, op);
}

Result<KernelRun> spread_sites(CaseSpace space, const Site& site, int64_t rows) {
  auto memory = std::make_shared<CaseMemory>(space);
  constexpr int64_t kSlots = 6;
  std::vector<int32_t> place(size_t(rows * kSlots));
  std::iota(place.begin(), place.end(), 0);
  StreamSpread op;
  op.y = memory->tensor(kBf16, rows, site.hidden);
  op.post = memory->floats(rows, kStreams);
  op.comb = memory->numbers(std::vector<float>(size_t(rows * kStreams * kStreams), 0.25f), kStreams * kStreams);
  op.streams = memory->tensor(kBf16, rows, kStreams * site.hidden);
  op.routed = memory->tensor(kBf16, rows * kSlots, site.hidden);
  op.place = memory->numbers(place, kSlots);
  op.next.pre = memory->floats(rows, kStreams);
  op.next.out = memory->tensor(kBf16, rows, site.hidden);
  op.next.norm = {memory->tensor(kBf16, 1, site.hidden), 1e-20f};
  op.next.q8 = memory->q8_rows(rows, site.hidden);
  KernelWork work = WorkReader(Memory{})(op);
  work.cache_footprint = memory->bytes;  // streams are read and written
  return repeats<&Operations::stream_spread>(memory, work, op);
}

Result<KernelRun> mean_rows(CaseSpace space, const Site& site, int64_t rows) {
  auto memory = std::make_shared<CaseMemory>(space);
  StreamMean op;
  op.streams = memory->tensor(kBf16, rows, kStreams * site.hidden);
  op.count = int(kStreams);
  op.out = memory->tensor(kBf16, rows, site.hidden);
  return repeats<&Operations::stream_mean>(memory, op);
}

KernelCase mixes_case(const Site& site, const CaseSizes& sizes) {
  KernelCase c{"stream_mixes", "f32", size_name(kMixes, kStreams * site.hidden), site.model, "mHC, 20 Sinkhorn rounds"};
  c.most_rows = 2048;
  const bool cold = c.model == "flash";
  c.open = [site, cold, space = sizes.space, large = sizes.large_pages,
            all = cold ? sizes.cold_bytes : sizes.warm_bytes]() -> Result<MakeRows> {
    const auto fn = WeightCopies::make(space, DType::f32, kMixes, kStreams * site.hidden, all, large);
    if (!fn) return fn.error();
    return MakeRows(
        [site, fn = *fn, cold, large, space](int64_t rows) { return mixes_rows(space, site, fn, cold, large, rows); });
  };
  return c;
}

}  // namespace

void add_stream_cases(std::vector<KernelCase>& cases, const CaseSizes& sizes) {
  for (const Site& site : kSites) cases.push_back(mixes_case(site, sizes));
  const auto add = [&](const char* op, auto rows_of, const char* place = "mHC") {
    for (const Site& site : kSites) {
      KernelCase c{op, "", size_name(kStreams, site.hidden), site.model, place};
      c.most_rows = 2048;
      c.open = opens([site, rows_of, space = sizes.space](int64_t rows) { return rows_of(space, site, rows); });
      cases.push_back(std::move(c));
    }
  };
  add("stream_collapse", collapse_rows);
  add("stream_collapse", collapse_sites, "mHC, normed, to Q8");
  add("stream_spread", spread_rows);
  add("stream_spread", spread_sites, "mHC, 6 experts summed, collapsed, normed, to Q8");
  add("stream_mean", mean_rows);
}

}  // namespace fathom
