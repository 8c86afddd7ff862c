// Tables of spec/memory.md 1, 2, 3 and 7; cases kv-08 and mem-01.
#include "fathom/model/memory_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fathom/model/inspect.h"
#include "fathom/model/presets.h"

namespace fathom {
namespace {

const ModelConfig kFlash;

TEST(CacheSizes, OfFlashAre890BytesATokenAndAPaddedBlockAndSlot) {
  const CacheSizes sizes = cache_sizes(kFlash);
  EXPECT_EQ(sizes.bytes_per_token, 890);
  EXPECT_EQ(sizes.layout.block_bytes, 114'048);
  EXPECT_EQ(sizes.layout.slot_bytes, 3'128'928);
}

TEST(CacheSizes, OfTheFp8LatentVariantAre1490BytesAToken) {
  ModelConfig config;
  config.use_fp4_sparse_kv = false;
  EXPECT_EQ(cache_sizes(config).bytes_per_token, 1490);
}

TEST(CacheSizes, FixedPartsAreThoseOfTheTable) {
  EXPECT_EQ(minimum_state_bytes(kFlash), 2'906'112 + 24'576);
  EXPECT_EQ(encoder_ring_bytes(kFlash), 1'415'040);
  EXPECT_EQ(longest_backtrack(kFlash), 6);
}

// kv-08: the estimate knows the compressed cache. The expected values are given to 5 %; they are 890 bytes a token.
TEST(CacheSizes, Kv08EstimatesTheCompressedCache) {
  EXPECT_EQ(growing_cache_bytes(kFlash, 30'000), 26'700'000);
  EXPECT_EQ(growing_cache_bytes(kFlash, 200'000), 178'000'000);
  EXPECT_EQ(growing_cache_bytes(kFlash, 1'048'576), 933'232'640);
}

TEST(CacheSizes, AnUnfinishedGroupTakesNoEntry) {
  // 1 token: only layer 20 has an entry (288 + 68); 2 tokens: 890 each.
  EXPECT_EQ(growing_cache_bytes(kFlash, 1), 356);
  EXPECT_EQ(growing_cache_bytes(kFlash, 2), 1780);
  EXPECT_EQ(growing_cache_bytes(kFlash, 0), 0);
}

// memory.md 2: totals with the minimum state, and sequences in 100 GiB with the state slot.
TEST(CacheSizes, TotalsPerSequenceAreThoseOfTheTable) {
  EXPECT_EQ(growing_cache_bytes(kFlash, 4'096) + minimum_state_bytes(kFlash), 6'576'128);
  EXPECT_EQ(growing_cache_bytes(kFlash, 131'072) + minimum_state_bytes(kFlash), 119'584'768);
  EXPECT_EQ(growing_cache_bytes(kFlash, 1'048'576) + minimum_state_bytes(kFlash), 936'163'328);
  const std::pair<int64_t, int64_t> rows[] = {{4'096, 15'850}, {8'192, 10'304}, {32'768, 3'325}, {131'072, 896},
                                              {262'144, 454},  {524'288, 228},  {1'048'576, 114}};
  for (const auto& [context, sequences] : rows) {
    const int64_t each = growing_cache_bytes(kFlash, context) + cache_sizes(kFlash).layout.slot_bytes;
    EXPECT_EQ((int64_t(100) << 30) / each, sequences) << context;
  }
}

// memory.md 3.
TEST(WeightBytes, SubsetsOfFlashAreThoseOfTheTable) {
  EXPECT_EQ(device_weight_bytes(kFlash, {.engram_on_device = true}), 510'286'023'000);
  EXPECT_EQ(device_weight_bytes(kFlash, {}), 510'286'023'000 - 202'758'032'400);
  EXPECT_EQ(device_weight_bytes(kFlash, {.embed_on_device = false}), 510'286'023'000 - 202'758'032'400 - 1'323'827'200);
  // One of 64 ranks: no tables, no vision, 1/64 of the experts (40 x 384 + 3 x 128, 18,800,640 bytes each).
  const int64_t experts = int64_t(40 * 384 + 3 * 128) * 18'800'640;
  EXPECT_EQ(device_weight_bytes(kFlash, {.vision_on_device = false, .expert_ranks = 64}),
            510'286'023'000 - 202'758'032'400 - 970'536'960 - experts + experts / 64);
}

// memory.md 7: a row of a prefill chunk takes 40,960 bytes of streams and 65,536 of queries.
TEST(Activations, GrowWithRowsAndBoundTheScores) {
  const int64_t row = 40'960 + 65'536 + 7 * 2 * 2304 * 2;
  EXPECT_EQ(activation_bytes(kFlash, 1, 1024), row + 2048);
  EXPECT_EQ(activation_bytes(kFlash, 8192, 1 << 20), 8192 * row + (int64_t(1) << 30));
}

// What arranging the rows of 384 experts takes, six of each row in steps of 32 of an expert, is the greediest operation
// of a prompt.
TEST(StepWorkspace, OfAPromptIsThatOfItsExperts) {
  const StepSizes prompt{.rows = 8192, .drawn = 64, .context = 131'072};
  EXPECT_EQ(step_workspace_bytes(kFlash, prompt), (49'152 + 384 * 31) / 32 * 32 * int64_t(5120) * 2);
  StepSizes invariant = prompt;
  invariant.batch_invariant = true;
  EXPECT_EQ(step_workspace_bytes(kFlash, invariant), step_workspace_bytes(kFlash, prompt));
}

TEST(StepWorkspace, BesideAnotherQueueItIsThatOfTheRowsOfTheSharedExpert) {
  EXPECT_EQ(side_workspace_bytes(kFlash), kMostRowsBeside * 5120 * 2);
}

TEST(StepWorkspace, OfFewRowsIsThatOfScoresAndDraws) {
  // One row: scores of 1,048,576 entries and of those that the next 16 blocks of a table may have more, the worth of
  // blocks of eight, what is found (32 bytes) and candidates of two choices; their counts are the queue's.
  constexpr int64_t kEntries = 1'048'576 + 15 * 128, kWorth = 525'312, kFound = 256, kCandidates = 131'072;
  EXPECT_EQ(step_workspace_bytes(kFlash, {.rows = 1, .drawn = 1, .context = 1'048'576}),
            4 * kEntries + kWorth + kFound + kCandidates);
  // 256 draws with lists of laws, 517,120 bytes a row.
  EXPECT_EQ(step_workspace_bytes(kFlash, {.rows = 1, .drawn = 256, .context = 4096}), 256 * 517'120);
}

// "And of smaller ones": tiles that are not full make some numbers of rows greedier than the next ones.
TEST(StepWorkspace, OfALargerStepIsNoSmaller) {
  for (const bool invariant : {true, false}) {
    int64_t before = 0;
    for (int64_t rows = 3000; rows < 14'000; rows += 61) {
      const int64_t now = step_workspace_bytes(
          kFlash, {.rows = rows, .drafted = rows / 2, .drawn = 1, .context = 4096, .batch_invariant = invariant});
      ASSERT_GE(now, before) << rows << " rows";
      before = now;
    }
  }
}

constexpr double kGiB = double(int64_t(1) << 30);

// mem-01: 48 GiB of device memory, 44.2 GiB of weights, 1.9 of workspace, 0.2 fixed; 262,144 tokens fit.
TEST(FitCache, Mem01ComputesWhatFitsBeforeLoading) {
  CacheDemand demand;
  demand.free_bytes = int64_t((48 - 44.2 - 1.9 - 0.2) * kGiB);
  demand.context = 262'144;
  demand.block_bytes = 890 * 128;
  const CacheFit fit = fit_cache(demand);
  EXPECT_TRUE(fit.fits);
  EXPECT_NEAR(double(fit.needed_bytes) / kGiB, 0.22, 0.005);
  EXPECT_NEAR(double(demand.free_bytes) / kGiB, 1.7, 0.01);
  EXPECT_GE(fit.largest_context, 262'144);
}

TEST(FitCache, Mem01SaysTheLargestContextThatFits) {
  CacheDemand demand;
  demand.free_bytes = 10'000'000;
  demand.context = 262'144;
  demand.sequences = 2;
  demand.block_bytes = 114'048;
  demand.slot_bytes = 3'128'928;
  // (5,000,000 - 3,128,928) / 114,048 = 16.4: 16 blocks of 128 tokens for each of two.
  const CacheFit fit = fit_cache(demand);
  EXPECT_FALSE(fit.fits);
  EXPECT_EQ(fit.largest_context, 2'048);
  EXPECT_EQ(fit.largest_sequences, 0);
  const auto error = check_fit(demand, fit_cache(demand)).error();
  EXPECT_EQ(error.code, ErrorCode::out_of_memory);
  EXPECT_THAT(to_string(error), testing::AllOf(testing::HasSubstr("262,144"), testing::HasSubstr("2,048 tokens")));
  demand.context = 2'048;
  EXPECT_TRUE(check_fit(demand, fit_cache(demand)).ok());
  demand.context = 2'049;
  EXPECT_FALSE(check_fit(demand, fit_cache(demand)).ok());
}

TEST(FitCache, NothingLeftIsNoCrash) {
  const CacheFit fit = fit_cache({.free_bytes = -5, .context = 1, .block_bytes = 114'048, .slot_bytes = 3'128'928});
  EXPECT_FALSE(fit.fits);
  EXPECT_EQ(fit.largest_context, 0);
  EXPECT_EQ(fit.largest_sequences, 0);
}

// checkpoint.md 4, column "parameters".
TEST(Inspect, ParametersOfFlashAreThoseOfTheTable) {
  const WeightTotals totals = weight_totals(tensor_list(kFlash));
  EXPECT_EQ(totals.all, (Totals{96'085, 510'286'023'000, 763'205'315'794}));
  EXPECT_EQ(totals.of(WeightGroup::routed_experts).parameters, 543'581'798'400);
  EXPECT_EQ(totals.of(WeightGroup::engram_tables).parameters, 196'613'849'600);
  EXPECT_EQ(totals.of(WeightGroup::dspark).parameters, 14'225'362'530);
  EXPECT_EQ(totals.of(WeightGroup::attention).parameters, 5'064'696'320);
  EXPECT_EQ(totals.of(WeightGroup::shared_experts).parameters, 1'415'577'600);
  EXPECT_EQ(totals.of(WeightGroup::engram_projections).parameters, 314'654'720);
  EXPECT_EQ(totals.of(WeightGroup::gates).parameters, 78'673'920);
  EXPECT_EQ(totals.of(WeightGroup::indexers).parameters, 43'516'416);
  EXPECT_EQ(totals.dtypes.front().first, DType::i8);
  EXPECT_EQ(totals.dtypes.size(), 5u);
}

TEST(Inspect, FindsTensorsByPattern) {
  const auto checkpoint = Checkpoint::open(embedded_model());
  ASSERT_TRUE(checkpoint.ok());
  EXPECT_EQ(find_tensors(*checkpoint, "*").size(), 1545u);
  EXPECT_EQ(find_tensors(*checkpoint, "layers.?.attn.attn_sink").size(), 10u);
  EXPECT_EQ(find_tensors(*checkpoint, "*.ffn.experts.*.w1.scale").size(), 10u * 16 + 3 * 8);
  EXPECT_EQ(find_tensors(*checkpoint, "norm.weight").size(), 1u);
  EXPECT_EQ(find_tensors(*checkpoint, "").size(), 0u);
  EXPECT_EQ(find_tensors(*checkpoint, "embed").size(), 0u);
  EXPECT_EQ(unaligned_tensors(*checkpoint), 0);
}

TEST(Inspect, DerivedValuesOfFlash) {
  const Derived derived = derived_values(kFlash);
  EXPECT_EQ(derived.encoder_layers, 20);
  EXPECT_EQ(derived.decoder_layers, 20);
  EXPECT_EQ(derived.engram_lookups, 24);
  EXPECT_EQ(derived.cache_bytes_per_token, 890);
}

}  // namespace
}  // namespace fathom
