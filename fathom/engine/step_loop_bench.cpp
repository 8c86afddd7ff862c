// Host cost of a decode step (R-13: at most 200 us + 1 us a sequence on one core at 256 sequences): everything that the
// loop does on its own thread, planning, packing, committing, making events. The device is made of nothing: constant
// logits, no drafts accepted or all of them. `host_us` is the figure; the rest of the time is the executor's sampling.
#include <benchmark/benchmark.h>

#include "fathom/engine/step_loop.h"

namespace fathom {
namespace {

constexpr int64_t kVocabulary = 64;

ModelPort made_of_nothing(std::vector<float>& logits, bool perfect) {
  ModelPort out;
  out.vocabulary = kVocabulary;
  out.block = 5;
  out.forward = [&](const Batch& batch) {
    const int64_t rows = batch.logit_rows.size();
    logits.assign(size_t(rows * kVocabulary), 0.f);
    for (int64_t r = 0; r < rows; ++r) logits[size_t(r * kVocabulary + 7)] = 1;
    return View<const float, 2>(logits.data(), {rows, kVocabulary});
  };
  out.draft = [](const DraftBatch&) {};
  out.markov = [perfect](int, View<const int32_t, 1>, View<float, 2> draft, View<float, 1> confidence) {
    std::fill(draft.data, draft.data + draft.size(), 0.f);
    for (int64_t s = 0; s < confidence.size(); ++s) {
      draft(s, perfect ? 7 : 8) = 1;
      confidence[s] = 0.5f;
    }
  };
  return out;
}

// Arguments: sequences, context tokens behind each, 1: scheduled drafts, 1: asynchronous.
void host_cost_of_a_decode_step(benchmark::State& state) {
  const auto sequences = int(state.range(0));
  const int64_t context = state.range(1);
  std::vector<float> logits;
  LoopOptions options;
  options.limits.context = context + 20'000;
  options.limits.sequences = sequences;
  options.limits.step_rows = 1 << 20;
  options.limits.blocks = int32_t(blocks_for(context + 20'000) * sequences);
  options.limits.overcommit = 1e6;
  options.limits.shape = {128, 6, 20, 20};
  options.drafts = 5;
  options.asynchronous = state.range(3) != 0;
  if (state.range(2) != 0) options.curve = CostCurve{{1, 10}, {256, 12}, {1'536, 40}};
  const auto queue = std::move(*open_backend("cpu")->open_queue(1));
  StepLoop loop(std::move(options), made_of_nothing(logits, false), open_backend("cpu")->ops, *queue);
  for (int i = 0; i < sequences; ++i) {
    Request request;
    request.ids.assign(size_t(context), int32_t(i % 50));
    for (size_t k = 0; k < 8; ++k) request.ids[k] = int32_t(i >> k & 1);  // prompts differ
    request.sampling.temperature = 0;
    request.sampling.ignore_eos = true;
    check(loop.submit(std::move(request)).ok(), "the request fits");
  }
  for (int i = 0; i < 20; ++i) loop.step();
  const LoopTimes before = loop.times();
  for (auto _ : state) benchmark::DoNotOptimize(loop.step().data());
  const LoopTimes after = loop.times();
  const auto steps = double(after.steps - before.steps);
  state.counters["host_us"] = (after.host_seconds - before.host_seconds) / steps * 1e6;
  state.counters["executor_us"] = (after.step_seconds - before.step_seconds) / steps * 1e6;
  state.counters["limit_us"] = 200 + double(sequences);
}
BENCHMARK(host_cost_of_a_decode_step)
    ->ArgNames({"sequences", "context", "scheduled", "asynchronous"})
    ->Args({1, 100, 0, 0})
    ->Args({256, 100, 0, 0})
    ->Args({256, 8'192, 0, 0})
    ->Args({256, 8'192, 1, 0})
    ->Args({256, 8'192, 1, 1})
    ->Iterations(400)
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace fathom
