#include "fathom/model/weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "fathom/model/make_checkpoint.h"
#include "fathom/model/model.h"
#include "fathom/model/presets.h"
#include "fathom/model/single_sequence.h"

namespace fathom {
namespace {

Checkpoint open_files(const MemoryCheckpoint& memory) {
  auto checkpoint = Checkpoint::open(memory.files());
  check(checkpoint.ok(), "files in memory open");
  return std::move(*checkpoint);
}

MemoryCheckpoint make(const ModelConfig& config, MakeOptions options) {
  ThreadPool pool(2);
  auto made = make_checkpoint_in_memory(config, options, int64_t(1) << 32, pool);
  check(made.ok(), "a small model fits");
  return std::move(*made);
}

// Memory that claims to be a device's.
Memory distant_memory() {
  Memory memory = cpu_backend()->memory;
  memory.host_visible = false;
  return memory;
}

std::vector<uint8_t> bytes_at(const Memory& memory, const AnyView& view) {
  std::vector<uint8_t> out(size_t(bytes_of(view.dtype, view.rows * view.cols)));
  memory.copy(out.data(), view.data, int64_t(out.size()));
  return out;
}

void expect_same(const Memory& memory, const Weights& drawn, const Weights& filled) {
  const Memory plain;
  const auto same = [&](const AnyView& a, const AnyView& b) { EXPECT_EQ(bytes_at(memory, a), bytes_at(plain, b)); };
  const auto both = [&](const Matrix& a, const Matrix& b) {
    same(a.values, b.values);
    same(a.scales, b.scales);
  };
  same(drawn.embed, filled.embed);
  both(drawn.head, filled.head);
  same(drawn.norm, filled.norm);
  both(drawn.main_proj, filled.main_proj);
  ASSERT_EQ(drawn.blocks.size(), filled.blocks.size());
  for (size_t l = 0; l < drawn.blocks.size(); ++l) {
    SCOPED_TRACE(l);
    const BlockWeights &a = drawn.blocks[l], &b = filled.blocks[l];
    same(a.attn_mix.fn, b.attn_mix.fn);
    both(a.wq_b, b.wq_b);
    both(a.wo_a, b.wo_a);
    same(a.gate, b.gate);
    both(a.shared_w2, b.shared_w2);
    for (size_t e = 0; e < b.w1.size(); ++e) {
      both(a.w1[e], b.w1[e]);
      both(a.w2[e], b.w2[e]);
    }
    if (b.engram) both(a.engram->table, b.engram->table);
    const auto base = [](const MixWeights& mix) {
      return AnyView(reinterpret_cast<const uint8_t*>(mix.base.data), DType::f32, 1, mix.base.shape[0]);
    };
    same(base(a.attn_mix), base(b.attn_mix));
  }
}

class DrawnWeights : public testing::TestWithParam<const char*> {};

TEST_P(DrawnWeights, AreThoseOfTheFilledCheckpoint) {
  const ModelConfig config = *preset_config("tiny");
  const MemoryCheckpoint full = make(config, {.seed = 3}), declared = make(config, {.holes = true});
  const Checkpoint filled = open_files(full), empty = open_files(declared);
  Memory memory = distant_memory();
  WeightDrawing drawing{3, nullptr};
  if (std::string(GetParam()) == "cuda") {
    const auto backend = cuda_backend();
    if (!backend.ok()) GTEST_SKIP() << to_string(backend.error());
    memory = backend->memory;
    drawing.draw = instruments_of(*backend).draw;
  }
  const auto drawn = bind_weights(empty, config, memory, drawing);
  ASSERT_TRUE(drawn.ok()) << to_string(drawn.error());
  const auto bound = bind_weights(filled, config, Memory{});
  ASSERT_TRUE(bound.ok());
  expect_same(memory, *drawn, *bound);
  int64_t placed = 0;
  for (const Buffer& piece : drawn->placed) placed += piece.bytes();
  EXPECT_GE(placed, placed_bytes(config, {}).device);
}

INSTANTIATE_TEST_SUITE_P(Of, DrawnWeights, testing::Values("the processor", "cuda"));

// Rank 1 of 4 has experts 2 and 3 of 8, and of the draft stages' 4 experts the second.
ModelConfig share_of_tiny() {
  ModelConfig config = *preset_config("tiny");
  config.expert_share = {1, 4};
  return config;
}

TEST(ExpertShareWeights, OfARankHoldItsExpertsAndAMapFromAllToThem) {
  const ModelConfig config = share_of_tiny();
  const MemoryCheckpoint memory = make(config, {.seed = 1});
  const Checkpoint checkpoint = open_files(memory);
  const Memory plain = cpu_backend()->memory;
  auto weights = bind_weights(checkpoint, config, plain);
  ASSERT_TRUE(weights.ok()) << to_string(weights.error());
  ASSERT_TRUE(make_expert_map(config, plain, *weights).ok());
  const BlockWeights& block = weights->blocks[0];
  ASSERT_EQ(block.w1.size(), 2u);
  EXPECT_EQ(block.gate.rows, 8);
  EXPECT_EQ(block.w1[0].values.data, checkpoint.tensor("layers.0.ffn.experts.2.w1.weight")->data);
  ASSERT_EQ(block.expert_map.shape[0], 8);
  for (int64_t e = 0; e < 8; ++e) EXPECT_EQ(block.expert_map(e, 0), e % 2);
  EXPECT_EQ(weights->blocks.back().w1.size(), 1u);
}

// What a rank computes for its own rows stands for what it would compute for everybody's: as many assignments.
TEST(ExpertShareWeights, RunAsAModelWhoseRowsAllComeToThem) {
  const ModelConfig config = share_of_tiny();
  const MemoryCheckpoint memory = make(config, {.seed = 1});
  const Checkpoint checkpoint = open_files(memory);
  const Backend backend = *cpu_backend();
  std::vector<int32_t> token_map(size_t(config.vocab_size));
  for (size_t i = 0; i < token_map.size(); ++i) token_map[i] = int32_t(i % size_t(config.engram_compressed_vocab_size));
  auto model = Model::load(checkpoint, backend, {kReferenceNumerics, token_map});
  ASSERT_TRUE(model.ok()) << to_string(model.error());
  Queue queue(1);
  auto sequence = SingleSequence::open(*model, queue, backend.memory, 64);
  ASSERT_TRUE(sequence.ok());
  sequence->begin(ReplayMode::off, 20);
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 20; ++i) ids.push_back(i * 7 % 300);
  const int64_t wanted[] = {19};
  const auto logits = sequence->feed(ids, wanted);
  ASSERT_EQ(logits.shape[0], 1);
  for (const float logit : logits.row(0)) EXPECT_TRUE(std::isfinite(logit));
  const Drafts drafts = sequence->draft(5);
  EXPECT_TRUE(std::isfinite(drafts.logits(0, 0)));
}

}  // namespace
}  // namespace fathom
