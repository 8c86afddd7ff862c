// Where the engine waits for a device in a steady decode (engine.md ): for the tokens of a step, and for its
// drafts; nowhere between the forward pass and the choice of tokens, and not for anything in pieces.
#include <gtest/gtest.h>

#include "fathom/backend/instruments.h"
#include "fathom/engine/engine.h"
#include "fathom/model/make_checkpoint.h"
#include "fathom/model/presets.h"

namespace fathom {
namespace {

struct Case {
  float temperature = 0;
  int drafts = 0;
  int64_t waits = 0;  // of a step
};

class DeviceWaits : public testing::TestWithParam<Case> {};

TEST_P(DeviceWaits, AreForTheTokensOfAStepAndForItsDrafts) {
  const auto backend = cuda_backend();
  if (!backend.ok()) GTEST_SKIP() << to_string(backend.error());
  const ModelConfig config = *preset_config("tiny");
  ThreadPool pool(2);
  const auto files = make_checkpoint_in_memory(config, {.seed = 4}, int64_t(1) << 30, pool);
  ASSERT_TRUE(files.ok());
  const auto checkpoint = Checkpoint::open(files->files());
  ASSERT_TRUE(checkpoint.ok());
  std::vector<int32_t> token_map;
  for (int64_t i = 0; i < config.vocab_size; ++i) {
    token_map.push_back(int32_t(i % int64_t(config.engram_compressed_vocab_size)));
  }
  EngineOptions options;
  options.backend = "cuda";
  options.sequences = 4;
  options.context = 256;
  options.drafts = GetParam().drafts;
  options.prefix_cache = false;
  options.asynchronous = false;
  auto engine = Engine::open(*checkpoint, token_map, options);
  ASSERT_TRUE(engine.ok()) << to_string(engine.error());
  for (int r = 0; r < 4; ++r) {
    Request request;
    request.ids = {1, 2, 3 + r, 4, 5};
    request.sampling.temperature = GetParam().temperature;
    request.sampling.max_tokens = 200;
    request.sampling.ignore_eos = true;
    request.sampling.seed = uint64_t(r);
    ASSERT_TRUE(engine->submit(std::move(request)).ok());
  }
  for (int step = 0; step < 12; ++step) engine->step();  // prompts, and steps that are not recorded yet
  const auto waits = instruments_of(*backend).waits;
  const int64_t before = waits();
  for (int step = 0; step < 10; ++step) engine->step();
  EXPECT_EQ(waits() - before, 10 * GetParam().waits);
}

INSTANTIATE_TEST_SUITE_P(Steps, DeviceWaits,
                         testing::Values(Case{0, 0, 1}, Case{1, 0, 1}, Case{0, 5, 2}, Case{1, 5, 2}));

}  // namespace
}  // namespace fathom
