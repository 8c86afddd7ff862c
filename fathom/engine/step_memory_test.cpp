#include "fathom/engine/step_memory.h"

#include <gtest/gtest.h>

#include "fathom/backend/workspace.h"
#include "fathom/model/memory_plan.h"
#include "fathom/model/presets.h"

namespace fathom {
namespace {

const ModelConfig kFlash = *preset_config("flash-sparse");

// 64 sequences of five drafts: 384 rows to verify beside the prompt, and 320 of the draft pass.
constexpr LargestStep kStep{
    .prompt_rows = 2048, .sequences = 64, .drafts = 5, .context = 131'072, .batch_invariant = false, .on_device = true};

TEST(StepMemory, OfADeviceHasAWorkspaceAndOfAProcessorNone) {
  const StepMemory device = step_memory(kFlash, kStep);
  EXPECT_EQ(device.activations, activation_bytes(kFlash, 2048 + 384, 131'072));
  EXPECT_EQ(device.workspace,
            step_workspace_bytes(kFlash, {.rows = 2432, .drafted = 320, .drawn = 261, .context = 131'072}))
      << "tokens are drawn by groups of 256 rows, of which a sequence's five more are not split off";
  LargestStep step = kStep;
  step.on_device = false;
  EXPECT_EQ(step_memory(kFlash, step).workspace, 0);
  EXPECT_EQ(step_memory(kFlash, step).activations, device.activations);
  EXPECT_EQ(device.all(), device.activations + device.workspace + device.choosing);
}

TEST(StepMemory, AQueueHasTheLeastWorkspaceWhateverItsSteps) {
  const LargestStep one{.prompt_rows = 1, .sequences = 1, .drafts = 0, .context = 128, .on_device = true};
  EXPECT_EQ(step_memory(*preset_config("tiny"), one).workspace, kLeastWorkspace);
}

// 384 rows of logits of the step and 64 of drafts, of 129,280 floats; the sampler takes more beside them.
TEST(StepMemory, ChoosingIsLogitsAndWhatTheSamplerTakes) {
  const int64_t logits = (384 + 64) * int64_t(129'280) * 4;
  EXPECT_GT(step_memory(kFlash, kStep).choosing, logits);
  EXPECT_LT(step_memory(kFlash, kStep).choosing, 3 * logits);
}

}  // namespace
}  // namespace fathom
