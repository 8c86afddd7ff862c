// A decode step that is not larger, and whose text is not longer, than those before it allocates nothing, on any
// thread: neither the arrays of the batch nor the network nor the drafts. Scratch memory is not made by operator new:
// it shows in the heap's bytes. Threads take work as they come, so each may meet its largest need after the warm-up,
// once; what is lost in every step, or grows with it, moves the heap again and again.
#include <gtest/gtest.h>
#include <malloc.h>

#include <cstdlib>
#include <memory>

#include "fathom/base/philox.h"
#include "fathom/engine/batch_builder.h"
#include "fathom/engine/counted_allocations.h"
#include "fathom/model/attention/cache_map.h"
#include "fathom/model/make_checkpoint.h"
#include "fathom/model/model.h"
#include "fathom/model/presets.h"

namespace fathom {
namespace {

int64_t heap_bytes() {
  const auto info = mallinfo2();
  return int64_t(info.uordblks) + int64_t(info.hblkhd);
}

/// Two sequences of random tokens and a model of random weights.
class Decoding {
 public:
  static constexpr int64_t kTokens = 600;
  static constexpr int kThreads = 2;

  explicit Decoding(const ModelConfig& config) : config_(config), builder_(config.engram_max_ngram_size - 1) {
    for (int64_t id = 0; id < config.vocab_size; ++id) {
      token_map_.push_back(int32_t(id % config.engram_compressed_vocab_size));
    }
    weights_.emplace(std::move(*make_checkpoint_in_memory(config, {.seed = 3}, int64_t(16) << 30, queue_->pool)));
    checkpoint_.emplace(std::move(*Checkpoint::open(weights_->files())));
    model_.emplace(std::move(*Model::load(*checkpoint_, backend_, {kReferenceNumerics, token_map_})));
    const auto blocks = int32_t(blocks_for(kTokens));
    memory_.emplace(std::move(*CacheMemory::allocate(backend_.memory, lay_out(model_->page_specs()),
                                                     kSequences * blocks + 1, kSequences + 1)));
    for (int s = 0; s < kSequences; ++s) {
      LiveSequence& one = live_[s];
      for (uint32_t i = 0; i < kTokens; ++i) {
        one.ids.push_back(int32_t(philox(7, {i, uint32_t(s), 0, 0})[0] % uint64_t(config.vocab_size)));
      }
      one.slot = slots_[s] = s + 1;
      for (int32_t b = 0; b < blocks; ++b) one.blocks.push_back(1 + s * blocks + b);
      one.replay = replay_[s] = plan_replay(model_->replay_shape(), ReplayMode::off, kTokens, 0, false);
      sequences_[s] = &one;
    }
    logits_.resize(size_t(kSequences * config.vocab_size));
  }

  /// `rows` more of each sequence, whose logits are all wanted, and a block of drafts behind them.
  void step(int rows) {
    plan_.rows.clear();
    for (int s = 0; s < kSequences; ++s) {
      plan_.rows.push_back({SequenceId(s + 1), at_, rows, rows, 0, rows});
      tokens_[s] = live_[s].ids[size_t(at_ + rows)];
      last_[s] = at_ + rows - 1;
    }
    model_->forward(*queue_, builder_.build(plan_, sequences_), *memory_);
    at_ += rows;
    for (LiveSequence& one : live_) one.cached = at_;
    model_->draft(*queue_, {{tokens_, {kSequences}}, {last_, {kSequences}}, {slots_, {kSequences}}, replay_}, *memory_);
    for (int i = 0; i < int(config_.dspark_block_size); ++i) {
      model_->markov(*queue_, i, {tokens_, {kSequences}}, {logits_.data(), {kSequences, config_.vocab_size}},
                     {confidence_, {kSequences}});
    }
    queue_->wait();
  }

  /// Goes on behind `at` tokens. Rings hold later ones, on which no allocation depends.
  void begin_again(int64_t at) { at_ = at; }

 private:
  static constexpr int kSequences = 2;

  ModelConfig config_;
  Backend backend_ = *open_backend("cpu");
  std::unique_ptr<Queue> queue_ = std::move(*backend_.open_queue(kThreads));
  std::vector<int32_t> token_map_;
  std::optional<MemoryCheckpoint> weights_;
  std::optional<Checkpoint> checkpoint_;
  std::optional<Model> model_;
  std::optional<CacheMemory> memory_;
  BatchBuilder builder_;
  StepPlan plan_;
  LiveSequence live_[kSequences];
  const LiveSequence* sequences_[kSequences];
  Replay replay_[kSequences];
  int32_t tokens_[kSequences], slots_[kSequences];
  int64_t last_[kSequences], at_ = 0;
  float confidence_[kSequences];
  std::vector<float> logits_;
};

void expect_no_allocations(const ModelConfig& config) {
  constexpr int kSteps = 40;
  Decoding decoding(config);
  decoding.step(550);
  for (int i = 0; i < 4; ++i) decoding.step(6), decoding.step(1);
  decoding.begin_again(200);
  // Looked at afterwards, since a failed expectation allocates.
  int64_t allocations[kSteps + 1], heap[kSteps + 1];
  for (int i = 0; i <= kSteps; ++i) {
    allocations[i] = allocations_of_all_threads();
    heap[i] = heap_bytes();
    decoding.step(i % 2 == 0 ? 1 : 6);
  }
  int moves = 0;
  for (int i = 1; i <= kSteps; ++i) {
    EXPECT_EQ(allocations[i], allocations[0]) << "step " << i;
    moves += heap[i] != heap[i - 1];
  }
  EXPECT_LE(moves, Decoding::kThreads) << "from " << heap[0] << " to " << heap[kSteps] << " bytes";
}

TEST(SteadyStep, AllocatesNothing) { expect_no_allocations(*preset_config("mini-random")); }

// Real widths, 2 + 1 layers: 4 GB of weights, two minutes beside other work, most of them to make the weights.
TEST(SteadyStep, OfFlashAllocatesNothing) {
  if (std::getenv("FATHOM_LONG") == nullptr) GTEST_SKIP() << "takes 5 GB of memory: set FATHOM_LONG=1";
  expect_no_allocations(
      *preset_config("flash-slice", {.encoder_layers = 2, .decoder_layers = 1, .experts = 8, .engram_vocab = 1000}));
}

}  // namespace
}  // namespace fathom
