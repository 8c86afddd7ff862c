// fathom/model/single_sequence.h
// One sequence and a model, without an engine: feed tokens, get logits, take tokens back, draft. For checks, benchmarks
// and whoever wants to see the least that it takes to run the network.
#pragma once
#include <vector>

#include "fathom/cache/sequence_cache.h"
#include "fathom/model/model.h"

namespace fathom {

class SingleSequence {
 public:
  /// Room for `context` tokens. Errors: out_of_memory. `model` and `queue` must outlive it.
  static Result<SingleSequence> open(Model& model, Queue& queue, const Memory& memory, int64_t context);

  /// Fixes the visibility rules of a prompt of `length` tokens; call it before the first token.
  void begin(ReplayMode mode, int64_t length, std::optional<int64_t> kept_rows = {});

  /// The encoder windows before the current length, as a snapshot keeps them (engine.md R-21).
  std::vector<uint8_t> snapshot() const;

  /// Starts over with a prompt that begins with the first `hit` tokens that were fed: their global entries stay, what
  /// the rings hold is lost, but for `snapshot`, taken at `snapshot_at`, where the plan uses it. Feed the prompt from
  /// replay().start on.
  void begin_after_hit(ReplayMode mode, int64_t length, int64_t hit, std::optional<int64_t> snapshot_at = {},
                       std::span<const uint8_t> snapshot = {});

  /// Marks positions [first, last) as an image. Call it before their tokens are fed.
  void mark_image(int64_t first, int64_t last);

  /// Appends tokens in one call. `logit_positions`: absolute positions among them whose logits are wanted, rising.
  View<const float, 2> feed(std::span<const int32_t> ids, std::span<const int64_t> logit_positions,
                            const Trace* trace = nullptr);

  /// Says that feed() will be given so many tokens next, all of whose logits are wanted.
  void expect(int64_t tokens);

  /// Forgets everything at and above `length` (rejected drafts).
  void take_back(int64_t length);

  /// Draft logits after the token `newest`, which comes next and has not been fed.
  Drafts draft(int32_t newest);
  /// Drafts behind it, drawn at once.
  DrawnDrafts propose(int32_t newest, const DraftDraws& draws);

  /// Entry of a ring or page as its values. `row_channels` wide.
  std::vector<float> window_row(int layer, int64_t position) const;
  std::vector<float> latent_row(int layer, int64_t entry) const;
  std::vector<float> key_row(int layer, int64_t entry) const;

  /// Rows that the model gave, as the processor can read them, dense.
  std::vector<uint8_t> bytes(AnyView rows) const;

  int64_t length() const { return int64_t(ids_.size()); }
  const Replay& replay() const { return replay_; }
  Model& model() { return *model_; }
  Queue& queue() { return *queue_; }

 private:
  SingleSequence(Model& model, Queue& queue, CacheMemory memory, int32_t blocks);
  template <class Use>
  void with_batch(int64_t start, std::span<const int32_t> ids, std::span<const int64_t> logit_positions,
                  const Use& use);
  template <class Use>
  auto with_draft_batch(int32_t newest, const Use& use);

  Model* model_;
  Queue* queue_;
  CacheMemory memory_;
  CachePools pools_;
  SequenceCache cache_;
  Replay replay_;
  std::vector<int32_t> ids_;
  std::vector<uint8_t> image_;
};

}  // namespace fathom
