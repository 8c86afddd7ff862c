// Decode steps that a device records and runs again give what they give operation by operation, bit for bit.
#include <gtest/gtest.h>

#include <vector>

#include "fathom/model/make_checkpoint.h"
#include "fathom/model/presets.h"
#include "fathom/model/single_sequence.h"

namespace fathom {
namespace {

struct Seen {
  std::vector<std::vector<uint8_t>> logits;
  std::vector<float> latents, keys, window;
};

// A prompt of 21 tokens, then 20 tokens one by one: past groups of two, and past the windows' 16 positions.
Seen decode(Model& model, Queue& queue, const Memory& memory, bool record) {
  model.record_steps(record);
  auto sequence = SingleSequence::open(model, queue, memory, 128);
  check(sequence.ok(), "a cache of 128 tokens fits");
  sequence->begin(ReplayMode::off, 21);
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < 21; ++i) prompt.push_back(i * 11 % 300);
  sequence->feed(prompt, {});
  Seen seen;
  for (int32_t i = 0; i < 20; ++i) {
    const int32_t token[] = {i * 13 % 300};
    const int64_t position[] = {21 + i};
    const auto logits = sequence->feed(token, position);
    seen.logits.push_back(sequence->bytes(
        AnyView(reinterpret_cast<const uint8_t*>(logits.data), DType::f32, logits.shape[0], logits.shape[1])));
  }
  const auto append = [](std::vector<float>& to, const std::vector<float>& row) {
    to.insert(to.end(), row.begin(), row.end());
  };
  for (int64_t entry = 0; entry < 20; ++entry) {  // layer 2: two tokens an entry
    append(seen.latents, sequence->latent_row(2, entry));
    append(seen.keys, sequence->key_row(2, entry));
  }
  for (int64_t position = 26; position < 41; ++position) append(seen.window, sequence->window_row(3, position));
  return seen;
}

class RecordedSteps : public testing::TestWithParam<bool> {};  // whether logits stay on the device

TEST_P(RecordedSteps, GiveWhatStepsGiveOperationByOperation) {
  const auto backend = cuda_backend();
  if (!backend.ok()) GTEST_SKIP() << to_string(backend.error());
  const ModelConfig config = *preset_config("tiny");
  ThreadPool pool(2);
  const auto files = make_checkpoint_in_memory(config, {.seed = 4}, int64_t(1) << 30, pool);
  ASSERT_TRUE(files.ok());
  const auto checkpoint = Checkpoint::open(files->files());
  ASSERT_TRUE(checkpoint.ok());
  std::vector<int32_t> token_map(size_t(config.vocab_size));
  for (size_t i = 0; i < token_map.size(); ++i) token_map[i] = int32_t(i % size_t(config.engram_compressed_vocab_size));
  ModelOptions options{kReferenceNumerics, token_map};
  options.device_logits = GetParam();
  auto model = Model::load(*checkpoint, *backend, options);
  ASSERT_TRUE(model.ok()) << to_string(model.error());
  auto queue = backend->open_queue(1);
  ASSERT_TRUE(queue.ok());
  const Seen each = decode(*model, **queue, backend->memory, false);
  const Seen recorded = decode(*model, **queue, backend->memory, true);
  EXPECT_EQ(recorded.logits, each.logits);
  EXPECT_EQ(recorded.latents, each.latents);
  EXPECT_EQ(recorded.keys, each.keys);
  EXPECT_EQ(recorded.window, each.window);
  EXPECT_NE(each.logits[0], each.logits[1]) << "the steps differ, or nothing was compared";
}

INSTANTIATE_TEST_SUITE_P(Logits, RecordedSteps, testing::Bool());

}  // namespace
}  // namespace fathom
