// What the row operations cost, for one row (a decode step) and for 64 (a prompt), on the best instruction set of this
// processor: at the sizes of the miniature by one thread (what a row costs, not how rows are shared out), attention and
// the indexer also at the sizes of V4.1 Flash, by one thread and two.
#include <benchmark/benchmark.h>

#include "fathom/backend/backend.h"
#include "fathom/backend/cpu/isa.h"
#include "fathom/backend/owned_values.h"

namespace fathom {
namespace {

struct Bench {
  explicit Bench(int threads = 1) : queue{threads} {}
  Operations ops = cpu::cpu_operations(cpu::detected_processor());
  Queue queue;
};

// Calls `work` until the time is known; counts rows.
template <class Work>
void measure(benchmark::State& state, const Work& work) {
  for (auto _ : state) work();
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

// `heads` of `channels` over a window in the ring and `top_k` selected entries. 2 dots of a key and a head are its
// work.
void latent_attention(benchmark::State& state, int64_t heads, int64_t channels, int64_t window, int64_t top_k,
                      int threads) {
  Bench bench(threads);
  const int64_t rows = state.range(0);
  const OwnedRows set({{1000, rows}}), none({{0, 0}});
  const Tensor queries = noise(DType::bf16, rows, heads * channels, 1);
  Tensor out(DType::bf16, rows, heads * channels);
  OwnedRings rings(1, 1100, int(row_bytes(RowFormat::q8, channels)));
  OwnedPages pages(1, 3 * top_k, int(row_bytes(RowFormat::q4k, channels)), 64);
  for (int64_t p = 0; p < 1100; ++p) encode_row(RowFormat::q8, noise(channels, uint64_t(p)), rings.region.entry(0, p));
  for (int64_t e = 0; e < 3 * top_k; ++e) {
    encode_row(RowFormat::q4k, noise(channels, uint64_t(e)), pages.region.entry(0, e));
  }
  std::vector<int64_t> begin, end;
  std::vector<int32_t> entries;
  const std::vector<int32_t> count(state.range(0), int32_t(top_k));
  for (int64_t r = 0; r < rows; ++r) {
    begin.push_back(1000 + r - window + 1);
    end.push_back(1000 + r + 1);
    for (int64_t i = 0; i < top_k; ++i) entries.push_back(int32_t(3 * i));
  }
  const std::vector<float> sink(size_t(heads), 0.0f);
  LatentAttention op;
  op.rows = set;
  op.queries = queries;
  op.heads = int(heads);
  op.fresh_rows = none;
  op.window_format = RowFormat::q8;
  op.ring = rings.region;
  op.window_begin = view(std::as_const(begin));
  op.window_end = view(std::as_const(end));
  op.entry_format = RowFormat::q4k;
  op.latents = pages.region;
  op.entries = view(std::as_const(entries), top_k);
  op.count = view(count);
  op.sink = view(sink);
  op.scale = 0.125f;
  op.out = out.out();
  measure(state, [&] { bench.ops.latent_attention(bench.queue, op); });
  state.counters["GFLOP/s"] = benchmark::Counter(
      double(state.iterations() * rows * heads * (window + top_k) * channels * 4) * 1e-9, benchmark::Counter::kIsRate);
}
BENCHMARK_CAPTURE(latent_attention, mini, 8, 64, 32, 64, 1)->Arg(1)->Arg(64);
BENCHMARK_CAPTURE(latent_attention, flash, 64, 512, 128, 512, 1)->Arg(1)->Arg(6)->UseRealTime();
BENCHMARK_CAPTURE(latent_attention, flash_2_threads, 64, 512, 128, 512, 2)->Arg(1)->Arg(6)->UseRealTime();

// The best `top_k` of about `entries` visible ones; `blocks` > 0: a candidate source that keeps so many blocks of 8.
void select_rows(benchmark::State& state, int heads, int channels, int64_t entries, int top_k, int blocks,
                 int threads) {
  Bench bench(threads);
  const int64_t rows = state.range(0), bytes = row_bytes(RowFormat::q4i, channels);
  const OwnedRows set({{entries, rows}});
  const Tensor weights = noise(DType::bf16, rows, heads, 1);
  std::vector<uint8_t> queries(size_t(rows * heads * bytes));
  OwnedPages pages(1, entries + rows, int(bytes), 64);
  for (int64_t i = 0; i < rows * heads; ++i) {
    encode_row(RowFormat::q4i, noise(channels, uint64_t(i)), queries.data() + i * bytes);
  }
  for (int64_t e = 0; e < entries + rows; ++e) {
    encode_row(RowFormat::q4i, noise(channels, uint64_t(9000 + e)), pages.region.entry(0, e));
  }
  std::vector<int32_t> chosen(size_t(rows * top_k)), count(size_t(rows), 0);
  std::vector<int32_t> chosen_blocks(size_t(rows * blocks)), block_count(size_t(rows), 0);
  SelectRows op;
  op.rows = set;
  op.queries = view(std::as_const(queries), heads * bytes);
  op.head_weights = weights;
  op.heads = heads;
  op.channels = channels;
  op.format = RowFormat::q4i;
  op.keys = pages.region;
  op.top_k = top_k;
  op.entries = view(chosen, top_k);
  op.count = view(count);
  if (blocks > 0) {
    op.block_size = 8;
    op.top_blocks = blocks;
    op.candidate_source = true;
    op.blocks = view(chosen_blocks, blocks);
    op.block_count = view(block_count);
  }
  measure(state, [&] { bench.ops.select_rows(bench.queue, op); });
  state.counters["GB/s"] =
      benchmark::Counter(double(state.iterations() * entries * bytes) * 1e-9, benchmark::Counter::kIsRate);
  state.counters["GOP/s"] = benchmark::Counter(
      double(state.iterations() * rows * entries * heads * channels * 2) * 1e-9, benchmark::Counter::kIsRate);
}
BENCHMARK_CAPTURE(select_rows, mini, 8, 64, 640, 64, 0, 1)->Arg(1)->Arg(64);
BENCHMARK_CAPTURE(select_rows, flash, 32, 128, 1 << 20, 512, 2048, 1)->Arg(1)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(select_rows, flash_2_threads, 32, 128, 1 << 20, 512, 2048, 2)
    ->Arg(1)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

void stream_mixes(benchmark::State& state) {
  Bench bench;
  const int64_t rows = state.range(0);
  const Tensor x = noise(DType::bf16, rows, 1024, 1), fn = noise(DType::f32, 24, 1024, 2);
  const std::vector<float> scale{0.5f, 1, 1.5f}, base = noise(24, 3);
  std::vector<float> pre(size_t(rows * 4)), post(size_t(rows * 4)), comb(size_t(rows * 16));
  StreamMixes op;
  op.streams = x;
  op.fn = fn;
  op.scale = view(scale);
  op.base = view(base);
  op.pre = view(pre, 4);
  op.post = view(post, 4);
  op.comb = view(comb, 16);
  measure(state, [&] { bench.ops.stream_mixes(bench.queue, op); });
}
BENCHMARK(stream_mixes)->Arg(1)->Arg(6)->Arg(64);

void stream_spread(benchmark::State& state) {
  Bench bench;
  const int64_t rows = state.range(0);
  const Tensor y = noise(DType::bf16, rows, 256, 1);
  Tensor x = noise(DType::bf16, rows, 1024, 2);
  const std::vector<float> post(size_t(rows * 4), 0.0f), comb(size_t(rows * 16), 0.25f);
  StreamSpread op;
  op.y = y;
  op.post = view(post, 4);
  op.comb = view(comb, 16);
  op.streams = x.out();
  measure(state, [&] { bench.ops.stream_spread(bench.queue, op); });
}
BENCHMARK(stream_spread)->Arg(1)->Arg(64);

void rms_norm(benchmark::State& state) {
  Bench bench;
  const Tensor x = noise(DType::bf16, state.range(0), 256, 1), weight = noise(DType::bf16, 1, 256, 2);
  Tensor out = x;
  RmsNorm op;
  op.x = x;
  op.weight = weight;
  op.out = out.out();
  op.eps = 1e-20f;
  measure(state, [&] { bench.ops.rms_norm(bench.queue, op); });
}
BENCHMARK(rms_norm)->Arg(1)->Arg(64);

void rope(benchmark::State& state) {
  Bench bench;
  Tensor x = noise(DType::bf16, state.range(0), 512, 1);
  const std::vector<int64_t> positions(size_t(state.range(0)), 5000);
  const std::vector<float> frequencies(8, 0.01f);
  Rope op;
  op.x = x.out();
  op.heads = 8;
  op.positions = view(positions);
  op.frequencies = frequencies;
  measure(state, [&] { bench.ops.rope(bench.queue, op); });
}
BENCHMARK(rope)->Arg(1)->Arg(64);

void encode_rows(benchmark::State& state) {
  Bench bench;
  const auto format = RowFormat(state.range(1));
  const int64_t bytes = 8 * row_bytes(format, 64);
  const Tensor x = noise(DType::bf16, state.range(0), 512, 1);
  std::vector<uint8_t> out(size_t(state.range(0) * bytes));
  EncodeRows op;
  op.x = x;
  op.heads = 8;
  op.format = format;
  op.out = view(out, bytes);
  measure(state, [&] { bench.ops.encode_rows(bench.queue, op); });
}
BENCHMARK(encode_rows)->ArgsProduct({{1, 64}, {int(RowFormat::q8), int(RowFormat::q4k), int(RowFormat::q4i)}});

// 2,880 logits; top_p in percent, 100 is off.
void sample(benchmark::State& state) {
  Bench bench;
  const int64_t rows = state.range(0), vocabulary = 2880;
  std::vector<float> logits = noise(rows * vocabulary, 1);
  for (float& logit : logits) logit *= 8;
  std::vector<RowSampling> settings(size_t(rows), RowSampling{});
  for (RowSampling& row : settings) row.top_p = float(state.range(1)) / 100;
  std::vector<int32_t> ids(size_t(rows), 0);
  Sample op;
  op.logits = view(std::as_const(logits), vocabulary);
  op.rows = settings;
  op.ids = view(ids);
  measure(state, [&] { bench.ops.sample(bench.queue, op); });
}
BENCHMARK(sample)->ArgsProduct({{1, 6}, {100, 95}});

}  // namespace
}  // namespace fathom
