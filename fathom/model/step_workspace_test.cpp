// What the operations of a step would take of a device's workspace, asked for each call, is what was planned before.
#include <gtest/gtest.h>

#include "fathom/backend/workspace_under_test.h"
#include "fathom/model/make_checkpoint.h"
#include "fathom/model/memory_plan.h"
#include "fathom/model/text_under_test.h"

namespace fathom {
namespace {

/// A model on a table that asks and then calls `operations`, and does nothing where that is empty.
struct Asking {
  std::vector<int32_t> token_map;
  std::optional<Checkpoint> checkpoint;
  Backend backend = *open_backend("cpu");
  std::unique_ptr<Queue> queue = std::move(*backend.open_queue(2));
  std::optional<Model> model;

  Asking(const MemoryCheckpoint& files, const ModelConfig& config, const Numerics& numerics, bool computes) {
    token_map = token_map_of(config);
    checkpoint.emplace(std::move(*Checkpoint::open(files.files())));
    backend.ops = asking_operations(computes ? backend.ops : Operations());
    auto loaded = Model::load(*checkpoint, backend, {numerics, token_map});
    check(loaded.ok(), "the model opens");
    model.emplace(std::move(*loaded));
    most_asked_workspace = 0;
  }
};

TEST(StepWorkspace, OfSmallModelsStaysBelowThePlan) {
  ModelConfig wide = wide_experts();
  wide.moe_intermediate_size = 2304;
  ThreadPool pool(2);
  for (const ModelConfig& config : {*preset_config("tiny"), wide}) {
    const auto made = make_checkpoint_in_memory(config, {.seed = 5}, int64_t(1) << 31, pool);
    ASSERT_TRUE(made.ok()) << to_string(made.error());
    for (const Numerics& numerics : {kReferenceNumerics, kDeepinferNumerics}) {
      for (const bool invariant : {true, false}) {
        Asking asking(*made, config, numerics, true);
        asking.queue->batch_invariant = invariant;
        logits_of_text(*asking.model, *asking.queue, asking.backend.memory, 400, 300);
        const StepSizes sizes{
            .rows = 300, .drafted = config.dspark_block_size, .drawn = 1, .context = 416, .batch_invariant = invariant};
        EXPECT_GT(most_asked_workspace, 0);
        EXPECT_LE(most_asked_workspace, step_workspace_bytes(config, sizes)) << numerics.name;
      }
    }
  }
}

// Of V4.1 Flash whole: its weights are declared, and operations do nothing, so that a step is what it asks for.
TEST(StepWorkspace, OfFlashIsThePlan) {
  const ModelConfig config = *preset_config("flash-sparse");
  ThreadPool pool(2);
  const auto made = make_checkpoint_in_memory(config, {.holes = true}, 0, pool);
  if (!made && made.error().code == ErrorCode::out_of_memory) GTEST_SKIP() << to_string(made.error());
  ASSERT_TRUE(made.ok()) << to_string(made.error());
  Asking asking(*made, config, kDeepinferNumerics, false);
  for (const int64_t context : {4096, 131'072}) {
    for (const int64_t rows : {1, 9, 64, 300, 1024, 2304, 4000}) {
      for (const bool invariant : {true, false}) {
        asking.queue->batch_invariant = invariant;
        most_asked_workspace = 0;
        auto sequence = std::move(*SingleSequence::open(*asking.model, *asking.queue, asking.backend.memory, context));
        sequence.begin(ReplayMode::off, rows);
        std::vector<int64_t> positions;
        for (int64_t p = 0; p < rows; ++p) positions.push_back(p);
        sequence.feed(std::vector<int32_t>(size_t(rows), 7), positions);
        const RowSampling drawn[5] = {};
        sequence.propose(7, {.positions = 5, .rows = drawn, .law_tokens = 16});
        const int64_t planned = step_workspace_bytes(
            config, {.rows = rows, .drafted = 5, .drawn = 1, .context = context, .batch_invariant = invariant});
        EXPECT_LE(most_asked_workspace, planned) << rows << " rows, context " << context;
        EXPECT_GE(most_asked_workspace, planned / 10 * 9) << rows << " rows, context " << context;
      }
    }
  }
}

}  // namespace
}  // namespace fathom
