// What a row does by itself: embedding, norm, rotation, rounding; and the draw of a token.
#include "fathom/backend/kernel_cases/case_memory.h"

namespace fathom {
namespace {

constexpr DType kBf16 = DType::bf16;

Result<KernelRun> norm_rows(CaseSpace space, int64_t width, int64_t rows) {
  auto memory = std::make_shared<CaseMemory>(space);
  RmsNorm op;
  op.x = memory->tensor(kBf16, rows, width);
  op.weight = memory->tensor(kBf16, 1, width);
  op.out = memory->tensor(kBf16, rows, width);
  op.eps = 1e-20f;
  return repeats<&Operations::rms_norm>(memory, op);
}

// Rows that only products read.
Result<KernelRun> norm_codes(CaseSpace space, int64_t width, int64_t rows) {
  auto memory = std::make_shared<CaseMemory>(space);
  RmsNorm op;
  op.x = memory->tensor(kBf16, rows, width);
  op.weight = memory->tensor(kBf16, 1, width);
  op.eps = 1e-20f;
  op.q8 = memory->q8_rows(rows, width);
  return repeats<&Operations::rms_norm>(memory, op);
}

struct Turned {
  const char* model;
  int64_t heads, channels, turned;
  const char* place;
};
constexpr Turned kTurned[] = {{"flash", 64, 512, 64, "queries, 64 turned"},
                              {"flash", 32, 128, 64, "index queries, 64 turned"},
                              {"miniature", 8, 64, 16, "queries, 16 turned"}};

Result<KernelRun> rope_rows(CaseSpace space, const Turned& t, int64_t rows) {
  auto memory = std::make_shared<CaseMemory>(space);
  const Turn turn = memory->turn(rows, t.turned / 2);
  Rope op;
  op.x = memory->tensor(kBf16, rows, t.heads * t.channels);
  op.heads = int(t.heads);
  op.positions = turn.positions;
  op.frequencies = turn.frequencies;
  KernelWork work = WorkReader(Memory{})(op);
  work.cache_footprint = memory->bytes;  // of all channels, some of which are turned
  return repeats<&Operations::rope>(memory, work, op);
}

Result<KernelRun> quantize_rows(CaseSpace space, int64_t width, int64_t rows) {
  auto memory = std::make_shared<CaseMemory>(space);
  QuantizeRows op;
  const Q8Rows q8 = memory->q8_rows(rows, width);
  op.x = memory->tensor(kBf16, rows, width);
  op.codes = q8.codes;
  op.scales = q8.scales;
  return repeats<&Operations::quantize_rows>(memory, op);
}

// Attention's results, turned back in front of wo_a (profile deepinfer).
Result<KernelRun> quantize_turned(CaseSpace space, const Turned& t, int64_t rows) {
  auto memory = std::make_shared<CaseMemory>(space);
  QuantizeRows op;
  const Q8Rows q8 = memory->q8_rows(rows, t.heads * t.channels);
  op.x = memory->tensor(kBf16, rows, t.heads * t.channels);
  op.codes = q8.codes;
  op.scales = q8.scales;
  op.heads = int(t.heads);
  op.turn = memory->turn(rows, t.turned / 2);
  op.turn.inverse = true;
  return repeats<&Operations::quantize_rows>(memory, op);
}

Result<KernelRun> add_rows(CaseSpace space, int64_t width, int64_t rows) {
  auto memory = std::make_shared<CaseMemory>(space);
  AddRows op;
  op.a = memory->floats(rows, width);
  op.b = memory->floats(rows, width);
  op.out = memory->floats(rows, width);
  return repeats<&Operations::add_rows>(memory, op);
}

// Rows of the embedding, taken at random from a table that no cache holds, once for each of four streams.
Result<KernelRun> embed_rows(CaseSpace space, const std::shared_ptr<WeightCopies>& table, bool large, int64_t rows) {
  auto memory = std::make_shared<CaseMemory>(space);
  memory->keep(table);
  constexpr int kStreams = 4;
  // Half of the table at a time, and from call to call another half, so that the same rows do not come again.
  constexpr int64_t kStep = 1009;
  const AnyView all = table->at(0).values;
  const int64_t half = all.rows / 2;
  Embed op;
  op.streams = kStreams;
  op.out = memory->tensor(kBf16, rows, kStreams * all.cols);
  KernelWork work = on_activations(memory->bytes, 0);
  work.memory_bytes = rows * all.cols * 2;
  work.large_pages = large;
  std::vector<int32_t> ids;
  for (int64_t r = 0; r < rows; ++r) {
    ids.push_back(int32_t(uint64_t(philox(1, {uint32_t(r), 0, 0, 0})[0]) * uint64_t(half) >> 32));
  }
  op.ids = memory->numbers(ids);
  return repeats<&Operations::embed>(
      memory, work, op, [all, half](Embed& call, int64_t i) { call.table = all.slice(i * kStep % half, half); });
}

// Peaked logits, as a model's are: powers of uniform numbers.
Result<KernelRun> sample_rows(CaseSpace space, int64_t vocabulary, float top_p, int64_t rows) {
  auto memory = std::make_shared<CaseMemory>(space);
  Sample op;
  View<float, 2> logits = memory->floats(rows, vocabulary);
  if (memory->error) return *memory->error;
  for (int64_t r = 0; r < rows; ++r) {
    for (float& logit : logits.row(r)) logit *= 12 * logit * logit;
  }
  std::vector<RowSampling> settings(size_t(rows), RowSampling{.top_p = top_p});
  for (size_t r = 0; r < settings.size(); ++r) settings[r].position = uint32_t(r);
  const View<RowSampling, 1> kept = memory->numbers(settings);
  op.logits = logits;
  op.rows = {kept.data, size_t(rows)};
  op.ids = memory->numbers(std::vector<int32_t>(size_t(rows)));
  return repeats<&Operations::sample>(memory, op);
}

}  // namespace

void add_row_cases(std::vector<KernelCase>& cases, const CaseSizes& sizes) {
  const CaseSpace space = sizes.space;
  const auto add = [&](const char* op, const char* weights, const std::string& shape, const char* model,
                       const char* place, int64_t most_rows, OpenCase open) {
    KernelCase c{op, weights, shape, model, place};
    c.most_rows = most_rows;
    c.open = std::move(open);
    cases.push_back(std::move(c));
  };
  const auto open_width = [space](auto rows_of, int64_t width) {
    return opens([rows_of, width, space](int64_t rows) { return rows_of(space, width, rows); });
  };
  const auto open_table = [space, large = sizes.large_pages](int64_t vocabulary, int64_t hidden) -> OpenCase {
    return [vocabulary, hidden, large, space]() -> Result<MakeRows> {
      const auto table = WeightCopies::make(space, kBf16, vocabulary, hidden, 0, large);
      if (!table) return table.error();
      return MakeRows([table = *table, large, space](int64_t rows) { return embed_rows(space, table, large, rows); });
    };
  };
  // A third of Flash's table: 441 MB, which no cache holds.
  add("embed", "bf16", "43093x5120", "flash", "4 streams", 2048, open_table(43093, 5120));
  add("rms_norm", "", "5120", "flash", "attention, experts", 2048, open_width(norm_rows, 5120));
  add("rms_norm", "", "1280", "flash", "queries", 2048, open_width(norm_rows, 1280));
  add("rms_norm", "", "1280", "flash", "queries, to Q8", 2048, open_width(norm_codes, 1280));
  add("rms_norm", "", "256", "miniature", "attention, experts", 2048, open_width(norm_rows, 256));
  add("rms_norm", "", "128", "miniature", "queries, to Q8", 2048, open_width(norm_codes, 128));
  for (const Turned& t : kTurned) {
    add("rope", "", size_name(t.heads, t.channels), t.model, t.place, 2048,
        opens([t, space](int64_t rows) { return rope_rows(space, t, rows); }));
  }
  add("quantize_rows", "", "5120", "flash", "Q8", 2048, open_width(quantize_rows, 5120));
  add("quantize_rows", "", "256", "miniature", "Q8", 2048, open_width(quantize_rows, 256));
  for (const Turned& t : {kTurned[0], kTurned[2]}) {
    add("quantize_rows", "", size_name(t.heads, t.channels), t.model, "attention's results, turned back", 2048,
        opens([t, space](int64_t rows) { return quantize_turned(space, t, rows); }));
  }
  add("add_rows", "", "129280", "flash", "logits", 64, open_width(add_rows, 129280));
  add("add_rows", "", "2880", "miniature", "logits", 2048, open_width(add_rows, 2880));
  for (const float top_p : {1.0f, 0.95f}) {
    const auto open = [top_p, space](int64_t vocabulary) {
      return opens([top_p, vocabulary, space](int64_t rows) { return sample_rows(space, vocabulary, top_p, rows); });
    };
    const char* place = top_p < 1 ? "top-p 0.95" : "all tokens";
    add("sample", "", "129280", "flash", place, 64, open(129280));
    add("sample", "", "2880", "miniature", place, 64, open(2880));
  }
}

}  // namespace fathom
