// fathom/engine/engine.h
// Requests in, tokens out. step() plans, builds, runs and commits one batch of many sequences: on the caller's thread,
// or with a thread beside it that runs a step while the next one is planned. Source: spec/engine.md 1, 3, 4, 7, 8.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "fathom/cache/prefix_index.h"
#include "fathom/checkpoint/checkpoint.h"
#include "fathom/engine/loop_times.h"
#include "fathom/engine/replay_quality.h"
#include "fathom/engine/request.h"
#include "fathom/engine/state_dump.h"
#include "fathom/engine/statistics.h"
#include "fathom/grammar/compile/compile_pool.h"
#include "fathom/model/model.h"

namespace fathom {

struct EngineOptions {
  std::string backend;                     // "": best present
  std::optional<Numerics> numerics = {};   // none: default_numerics of the backend
  std::optional<uint64_t> draw_seed = {};  // the checkpoint only declares its weights: ModelOptions::draw_seed
  Placement placement = {};                // where weights live
  int threads = 0;                         // 0: all usable CPUs
  int64_t context = 0;                     // longest prompt + answer; 0: what fits, at most the model's
  int sequences = -1;                      // running at once; -1: 256 on a device, 16 else
  int64_t step_rows = 2048;                // prompt rows of a step beside the decode rows
  bool separate_steps = false;             // prompt and decode rows do not share a step (spec/engine.md 3.3)
  ReplayMode replay = ReplayMode::compact;
  int drafts = -1;                                      // verified drafts a round; -1: the model's whole block
  Verification verification = Verification::rejection;  // of requests that do not say
  std::vector<int32_t> token_blacklist = {};            // tokens that no request may draw
  int64_t memory_limit_bytes = 0;  // 0: none; cache and scratch must stay below (weights are mapped)
  bool batch_invariant = false;    // a row has the same bits in any batch on devices too; always so on a CPU,
                                   // and where `verification` is transparent
  bool prefix_cache = true;        // prompts find what earlier ones have computed
  int64_t snapshot_bytes = -1;     // of window snapshots in host memory; 0: none, a hit replays a few rows, which
                                   // changes bits; -1: a sixteenth of what the blocks take, at least four for each
                                   // of `sequences`
  int32_t most_blocks = 0;         // of 128 tokens for all sequences together; 0: what memory allows and they can use
  std::optional<bool> asynchronous = {};  // the next step is planned while one runs, on a thread of its own; nothing:
                                          // on a device, where nobody else wants the processor (decisions/0013)
  /// With drafts = -1: as many drafts are verified as their confidence and the measured cost of a row are worth, the
  /// same for none at all; a request with a seed under rejection keeps them all. Measures steps at the start, about a
  /// hundred of them, unless times of the last hour lie in `step_times`.
  bool schedule_drafts = false;
  std::string step_times = {};  // a folder; "": they are not kept
  double overcommit = 0.3;      // admitted beyond what surely fits; above 0 somebody may be preempted
  // What is told of requests and steps, besides events; null for nothing. They outlive the engine.
  Metrics* metrics = nullptr;
  Log* log = nullptr;
  double replay_sample = 0;  // share of the requests whose answers idle_work() scores again with replay off
  bool step_log = false;     // keeps the last 10,000 steps (10 MB once they have run)
  std::string record = {};   // a file that every decision of the scheduler is written to; "": none
  std::optional<grammar::Vocabulary> vocabulary = {};  // of the tokenizer; none: constraints are refused
  grammar::CompilePoolOptions grammar = {};            // how constraints are compiled
};

/// One thread at a time. Requests run in the order of submit(); several run together as far as rows, blocks and slots
/// go.
class Engine {
 public:
  /// Errors: those of Model::load and open_backend; out_of_memory names the largest context or sequence count that
  /// fits; usage for options that make no sense.
  static Result<Engine> open(const Checkpoint& checkpoint, std::span<const int32_t> token_map, EngineOptions options);

  Engine(Engine&&) noexcept;
  Engine& operator=(Engine&&) noexcept;
  ~Engine();

  /// Queues a request. What is wrong with it (empty prompt, id out of range, too long, bad parameter) comes back as an
  /// error here and nothing is queued.
  Result<RequestId> submit(Request request);
  /// Ends a request; its Finish comes with the next step. Unknown ids are ignored.
  void cancel(RequestId request);

  /// Runs one step and returns what it brought; valid until the next call. Empty when idle.
  std::span<const Event> step();
  bool idle() const;
  /// Of all tenants since the start.
  /// Something worth doing while nobody is served, as long as one prompt takes; false when there is nothing. Only while
  /// idle().
  bool idle_work();
  /// What bounded replay cost the answers that were scored so far.
  ReplayDivergence replay_divergence(ReplayCause cause) const;
  PrefixStatistics prefix_statistics() const;
  /// Of streamed experts; nothing when they are not. Any thread.
  std::optional<StreamStatistics> stream_statistics() const;
  /// Null without metrics. Its stalled() and the registry may be read from any thread.
  const EngineStatistics* statistics() const;
  /// What runs and waits, between two steps (docs: state_dump.h).
  Json state(const StateOptions& options = {}) const;
  /// {"steps": [...]} of the last `most` steps; {"steps":[]} without a step log.
  std::string steps_json(size_t most) const;
  /// Where the time of all steps went.
  LoopTimes times() const;

  const ModelConfig& config() const;
  const EngineOptions& options() const;  // resolved: no zeros left
  int64_t cache_bytes() const;
  std::string backend_name() const;

 private:
  struct State;
  explicit Engine(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace fathom
