// fathom/model/model.h
// The network: token ids and caches in, logits and drafts out. One code path for prefill, chunks, decode and
// verification, and for every backend. No scheduling, no sampling, no request in sight. Source: spec/model.md.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "fathom/backend/backend.h"
#include "fathom/cache/cache_memory.h"
#include "fathom/checkpoint/checkpoint.h"
#include "fathom/model/batch.h"
#include "fathom/model/config.h"
#include "fathom/model/layer_plan.h"
#include "fathom/model/numerics.h"
#include "fathom/model/placement.h"

namespace fathom {

struct ModelOptions {
  Numerics numerics = kReferenceNumerics;
  /// Compressed id of every token id (model.md 9.1), from tokenizer/compressed_vocabulary.h. Copied. Needed when the
  /// configuration has Engram layers.
  std::span<const int32_t> token_map;
  /// Where weights live. The same results, bit for bit, wherever that is.
  Placement placement = {};
  /// Set: the checkpoint only declares its weights (make_checkpoint with holes); those of this seed
  /// (initial_weights.h) are drawn in the backend's memory, which is a device's.
  std::optional<uint64_t> draw_seed = {};
  /// Logits of forward() lie in the backend's own memory instead of memory that the processor reads, and it returns
  /// before they are there: for operations of the same queue, without bus or processor in between.
  bool device_logits = false;
};

/// Draft logits and what the confidence head reads; views into the model's scratch, valid until its next call.
struct Drafts {
  View<const float, 2> logits;  // [sequences * block, vocabulary] before the Markov term; block-major inside a sequence
  AnyView hidden;               // [sequences * block, H] collapsed, before the norm
};

/// Sees every intermediate value that has a golden tensor: "layers.3.streams", "layers.2.index_score" and so on. For
/// checks only; it slows the run down.
using Trace = std::function<void(std::string_view name, AnyView value)>;

/// Owns bound weights and scratch; one thread at a time may call it. The checkpoint must outlive it.
class Model {
 public:
  /// Binds names to views and checks every shape (all problems in one error). Weights stay where the checkpoint maps
  /// them; small misaligned tensors are copied. Errors: bad_input (configuration, tensors), unsupported (the backend
  /// lacks an operation), out_of_memory (a limit below two experts; weights that do not fit, with the bytes needed and
  /// free), usage (nothing to read from: files in memory, drawn weights, or a backend that reads no files).
  ///
  /// Of a checkpoint with the experts of one rank (config.expert_share), they stand in for all: expert e of the gate is
  /// number e mod (experts of the rank). So the rank has as many assignments as it would get from all ranks under even
  /// routing. That is for measuring; the results are no model's.
  static Result<Model> load(const Checkpoint& checkpoint, const Backend& backend, ModelOptions options);

  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;
  ~Model();

  const ModelConfig& config() const;
  const std::vector<LayerPlan>& plan() const;  // backbone layers
  const Numerics& numerics() const;
  ReplayShape replay_shape() const;
  /// In the order that forward() expects them in the cache's layout.
  const std::vector<PageSpec>& page_specs() const;
  /// Of the routed experts; nothing unless they are streamed. Any thread.
  std::optional<StreamStatistics> stream_statistics() const;

  /// Runs the batch and writes its rows into the caches: global entries of rows from store_from, windows, compressor
  /// states, and the draft stages' windows. Returns the logits [logit_rows, vocabulary], valid until the next call.
  /// Allocates only when a batch is larger than any before. On a device, a batch of decode rows (all of whose logits
  /// are wanted) is recorded when its shape comes for the third time, and then launched as one, unless its
  /// experts are in RAM.
  View<const float, 2> forward(Queue& queue, const Batch& batch, CacheMemory& cache, const Trace* trace = nullptr);

  /// Writes the tables of a step that forward() is expected to be given next, while the device works on what it has
  /// been given: rows, owners, slots and replay count, ids, history and blocks are not read. Does nothing unless such a
  /// step has been recorded. Leaves what the calls before have returned as it is.
  void expect(Queue& queue, const Batch& batch, CacheMemory& cache);

  /// False: every operation of forward() and propose() is launched by itself from now on, so that each can be timed.
  void record_steps(bool on);

  /// Runs the draft stages once for each sequence. Their windows must hold the context up to `last`: every backbone row
  /// that forward() ran has been written. Leaves the caches as they are.
  Drafts draft(Queue& queue, const DraftBatch& batch, CacheMemory& cache);

  /// draft() and markov() in turn, with every token drawn from its logits as soon as they are there and given to the
  /// position behind it. Returns before it is done: see DrawnDrafts. On a device it is recorded as forward() is, when a
  /// number of sequences (with these `draws`) comes for the third time. What it returns is valid until the next call
  /// but expect().
  DrawnDrafts propose(Queue& queue, const DraftBatch& batch, const DraftDraws& draws, CacheMemory& cache);

  /// Draft position `step` of every sequence of the last draft() call: adds the Markov term of the token before it.
  ///   previous    [sequences] the newest token for step 0, then the draft before
  ///   logits      [sequences, vocabulary] out
  ///   confidence  [sequences] out: probability that this draft is accepted if all before it are
  void markov(Queue& queue, int step, View<const int32_t, 1> previous, View<float, 2> logits,
              View<float, 1> confidence);

 private:
  struct State;
  // forward() without waiting; `repeatable`: step.h.
  View<const float, 2> compute(Queue& queue, const Operations& ops, const Batch& batch, CacheMemory& cache,
                               const Trace* trace, bool repeatable);
  DrawnDrafts draw_drafts(Queue& queue, const Operations& ops, const DraftBatch& batch, const DraftDraws& draws,
                          CacheMemory& cache);
  explicit Model(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace fathom
