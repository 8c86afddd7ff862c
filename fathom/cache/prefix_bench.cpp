// What the prefix cache costs the engine's thread: a lookup of a long prompt, and a request's whole life.
#include <benchmark/benchmark.h>

#include "fathom/cache/prefix_fixture.h"

namespace fathom {
namespace {

// A prompt that is there whole, with its keys computed anew; blocks a second.
void lookup(benchmark::State& state) {
  const int64_t blocks = state.range(0);
  CachePools pools(int32_t(blocks) + 8, 2);
  const int32_t root = pools.prefixes.open_root(root_of("salt"), state.range(1) ? sha256_key : xxh3_key, 0);
  const auto prompt = tokens_from(0, blocks * kBlockTokens + 1);
  run_through(pools, root, prompt);
  for (auto _ : state) {
    PrefixChain chain = chain_of(root);
    benchmark::DoNotOptimize(pools.prefixes.lookup(chain, prompt, false).blocks.data());
  }
  state.SetItemsProcessed(state.iterations() * blocks);
}
BENCHMARK(lookup)->ArgNames({"blocks", "sha256"})->Args({32, 0})->Args({8'192, 0})->Args({32, 1});

// Prompts of 32 blocks, all different, in a full cache: each admits, evicts, publishes and ends; blocks a second.
void churn(benchmark::State& state) {
  CachePools pools(4'096, 2);
  const int32_t root = pools.prefixes.open_root(root_of("salt"), xxh3_key, 0);
  int32_t first = 0;
  for (auto _ : state) run_through(pools, root, tokens_from(first += 7'919, 32 * kBlockTokens + 1));
  state.SetItemsProcessed(state.iterations() * 32);
}
BENCHMARK(churn);

}  // namespace
}  // namespace fathom
