// fathom/model/text_under_test.h
// What tests share that run a whole model: a configuration, the map of its tokens, and a text with drafts.
#pragma once
#include <vector>

#include "fathom/base/philox.h"
#include "fathom/model/make_checkpoint.h"
#include "fathom/model/presets.h"
#include "fathom/model/single_sequence.h"

namespace fathom {

/// Dimensions of tiny; experts of 3 x 128 x 1024 weights, 209 KB: many pages each.
inline ModelConfig wide_experts() {
  ModelConfig config = *preset_config("tiny");
  config.moe_intermediate_size = 1024;
  return config;
}

/// Token i is token i of the Engram's vocabulary, over and over.
inline std::vector<int32_t> token_map_of(const ModelConfig& config) {
  std::vector<int32_t> out;
  for (int64_t id = 0; id < config.vocab_size; ++id) out.push_back(int32_t(id % config.engram_compressed_vocab_size));
  return out;
}

/// `tiny` with random weights, in memory.
struct TinyFiles {
  ModelConfig config = *preset_config("tiny");
  ThreadPool pool{2};
  MemoryCheckpoint made = std::move(*make_checkpoint_in_memory(config, {.seed = 5}, int64_t(1) << 31, pool));
  Checkpoint checkpoint = std::move(*Checkpoint::open(made.files()));
  std::vector<int32_t> token_map = token_map_of(config);
};

/// Logits of a prompt of `tokens` in pieces of `chunk`, of eight tokens after it, and of drafts behind each of these.
inline std::vector<float> logits_of_text(Model& model, Queue& queue, const Memory& memory, int64_t tokens,
                                         int64_t chunk) {
  auto sequence = std::move(*SingleSequence::open(model, queue, memory, tokens + 16));
  sequence.begin(ReplayMode::off, tokens);
  std::vector<float> out;
  const auto keep = [&](View<const float, 2> logits) {
    const size_t at = out.size();
    out.resize(at + size_t(logits.size()));
    memory.copy(out.data() + at, logits.data, logits.size() * int64_t(sizeof(float)));
  };
  std::vector<int32_t> ids;
  for (uint32_t i = 0; i < uint32_t(tokens) + 8; ++i) ids.push_back(int32_t(5 + philox(9, {i, 0, 0, 0})[0] % 300));
  for (int64_t at = 0; at < tokens; at += chunk) {
    const int64_t last = std::min(at + chunk, tokens) - 1;
    keep(sequence.feed(std::span(ids).subspan(size_t(at), size_t(last + 1 - at)), std::vector<int64_t>{last}));
  }
  for (int64_t at = tokens; at < tokens + 8; ++at) {
    keep(sequence.feed(std::span(ids).subspan(size_t(at), 1), std::vector<int64_t>{at}));
    keep(sequence.draft(7).logits);
  }
  return out;
}

}  // namespace fathom
