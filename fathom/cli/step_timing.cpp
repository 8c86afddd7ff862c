#include "fathom/cli/step_timing.h"

#include <algorithm>
#include <chrono>

#include "fathom/base/philox.h"
#include "fathom/cli/interrupt.h"
#include "fathom/cli/median.h"
#include "fathom/cli/terminal.h"
#include "fathom/engine/batch_builder.h"
#include "fathom/engine/stream_series.h"

namespace fathom::cli {
namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

constexpr int64_t kComputedPast = 4096;  // tokens of a copied past that are computed

/// The entry of the same operation and shape; null: it did not run.
const OperationTime* entry_of(const std::vector<OperationTime>& times, const OperationTime& wanted) {
  for (const OperationTime& one : times) {
    if (one.name == wanted.name && one.shape == wanted.shape) return &one;
  }
  return nullptr;
}

/// One entry an operation: the median of its seconds over the repeats, each of `steps` steps, with what was counted in
/// as many.
std::vector<OperationTime> medians(const std::vector<std::vector<OperationTime>>& repeats,
                                   const std::vector<OperationTime>& counted, int64_t steps) {
  std::vector<OperationTime> out;
  for (size_t i = 0; !repeats.empty() && i < repeats[0].size(); ++i) {
    const OperationTime& one = repeats[0][i];
    std::vector<double> seconds;
    for (const auto& times : repeats) {
      const OperationTime* same = entry_of(times, one);
      seconds.push_back(same == nullptr ? 0 : same->seconds / double(steps));
    }
    OperationTime& entry = out.emplace_back(OperationTime{one.name, one.shape, one.calls / steps});
    entry.seconds = median(std::move(seconds));
    const OperationTime* work = entry_of(counted, one);
    if (work == nullptr) continue;
    entry.memory_bytes = work->memory_bytes / steps;
    entry.cache_bytes = work->cache_bytes / steps;
    entry.operations = work->operations / double(steps);
    entry.bound_seconds = work->bound_seconds / double(steps);
  }
  std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
  return out;
}

struct Stream : LiveSequence {
  SequenceCache cache;
};

enum class Run { warm_up, measure, time, count };

/// What one case takes, in this order. With `per_operation` operations are timed as well, beside each measurement or,
/// `apart` from it, in runs of their own, and their work is counted once.
std::vector<Run> runs_of(int64_t warmup, int64_t repeat, bool per_operation, bool apart) {
  std::vector<Run> runs(size_t(warmup), Run::warm_up);
  runs.insert(runs.end(), size_t(repeat), Run::measure);
  if (!per_operation) return runs;
  if (apart) runs.insert(runs.end(), size_t(repeat), Run::time);
  runs.push_back(Run::count);
  return runs;
}

}  // namespace

struct StepBench::State {
  Backend backend;
  std::unique_ptr<Queue> queue;
  std::optional<Model> model;
  CacheMemory memory;
  std::optional<CachePools> pools;
  std::optional<BatchBuilder> builder;
  int64_t step_rows = 0;
  bool per_operation = false;
  std::unique_ptr<QueueClock> clock;  // of per_operation, with the machine's peaks
  std::optional<MachinePeaks> peaks;
  std::vector<Stream> sequences;
  std::vector<RowSampling> greedy;
  Buffer choice;  // of draw(): how rows are drawn, and what came of it
  std::vector<int32_t> drawn;
  double launch_seconds = 0;  // in forward(), which on a device returns before the device is done
  int64_t forwards = 0;       // calls of it

  void clear() {
    for (Stream& sequence : sequences) free_sequence(*pools, sequence.cache);
    sequences.clear();
  }

  int32_t random_token(int64_t sequence, int64_t position) const {
    const uint32_t random = philox(0, {uint32_t(sequence), uint32_t(position), 0, 0})[0];
    return int32_t(int64_t(random) % model->config().vocab_size);
  }

  Result<void> make_sequences(const StepCase& c, int64_t prompt, int64_t most) {
    clear();
    for (int64_t s = 0; s < c.batch; ++s) {
      Stream sequence;
      for (int64_t i = 0; i < prompt; ++i) sequence.ids.push_back(random_token(s, i));
      sequence.prompt_tokens = prompt;
      sequence.replay = plan_replay(model->replay_shape(), c.replay, prompt);
      sequences.push_back(std::move(sequence));
      Stream& last = sequences.back();
      if (auto room = reserve(*pools, last.cache, most); !room) return room;
      last.blocks = last.cache.blocks;
      last.slot = last.cache.slot;
    }
    return {};
  }

  View<const float, 2> forward(const StepPlan& plan) {
    std::vector<const LiveSequence*> owners;
    for (const StepPlan::Rows& rows : plan.rows) owners.push_back(&sequences[size_t(rows.sequence)]);
    const auto begin = Clock::now();
    const auto logits = model->forward(*queue, builder->build(plan, owners), memory);
    launch_seconds += since(begin);
    ++forwards;
    return logits;
  }

  /// The likeliest token of each row, drawn as the engine draws it.
  const std::vector<int32_t>& draw(View<const float, 2> logits) {
    const int64_t rows = logits.shape[0], bytes = rows * int64_t(sizeof(RowSampling) + sizeof(int32_t));
    if (choice.bytes() < bytes) {
      auto room = backend.memory.shared(bytes);
      check(room.ok(), "a few bytes for each row");
      choice = std::move(*room);
    }
    auto* settings = reinterpret_cast<RowSampling*>(choice.data());
    const View<int32_t, 1> ids(reinterpret_cast<int32_t*>(settings + rows), {rows});
    std::fill_n(settings, rows, RowSampling{.temperature = 0});
    backend.ops.sample(*queue, {logits, {settings, size_t(rows)}, ids, {}});
    queue->wait();
    drawn.assign(ids.data, ids.data + rows);
    return drawn;
  }

  /// Runs prompt positions [cached, until) of the first `count` sequences, as many steps as `step_rows` demands. The
  /// newest token of each is appended when `until` is the prompt's end.
  void prefill(int64_t until, size_t count) {
    size_t at = 0;
    while (at < count) {
      StepPlan plan;
      int64_t left = step_rows;
      std::vector<size_t> ending;
      while (at < count && left > 0) {
        Stream& sequence = sequences[at];
        const int64_t rows = std::min(left, until - sequence.cached);
        const bool last = sequence.cached + rows == sequence.prompt_tokens;
        if (rows > 0) {
          plan.rows.push_back({SequenceId(at), sequence.cached, int(rows), int(rows), 0, last ? 1 : 0});
          if (last) ending.push_back(at);
        }
        sequence.cached += rows;
        left -= rows;
        if (sequence.cached == until) ++at;
      }
      if (plan.empty()) return;
      const auto logits = forward(plan);
      if (!ending.empty()) draw(logits);
      for (size_t i = 0; i < ending.size(); ++i) sequences[ending[i]].ids.push_back(drawn[i]);
    }
  }

  /// Gives every sequence a past of `cached` tokens: the beginning of the first one's is computed, and its blocks and
  /// its slot are copied to all. Where it is done already, every sequence goes back to there.
  void copy_past(const StepCase& c, bool anew) {
    if (anew) {
      Stream& first = sequences[0];
      const int64_t computed = std::min(c.cached, kComputedPast);
      first.prompt_tokens = computed;
      first.replay = plan_replay(model->replay_shape(), c.replay, computed);
      prefill(computed, 1);
      first.prompt_tokens = c.cached;
      first.replay = plan_replay(model->replay_shape(), c.replay, c.cached);
      const int64_t sources = std::max<int64_t>(1, computed / kBlockTokens);
      for (Stream& sequence : sequences) {
        for (size_t b = 0; b < sequence.blocks.size(); ++b) {
          const int32_t from = first.blocks[size_t(int64_t(b) % sources)];
          if (from != sequence.blocks[b]) memory.copy_block(from, sequence.blocks[b]);
        }
        if (sequence.slot != first.slot) memory.copy_slot(first.slot, sequence.slot);
      }
    }
    for (size_t s = 0; s < sequences.size(); ++s) {
      sequences[s].ids.resize(size_t(c.cached));
      sequences[s].ids.push_back(random_token(int64_t(s), c.cached));
      sequences[s].cached = c.cached;
      sequences[s].proposed.clear();
    }
  }

  /// One round: verifies the drafts of every sequence, appends what was accepted and one token more, drafts again.
  /// Returns the drafts that were accepted.
  int64_t decode_step(int drafts, bool random) {
    StepPlan plan;
    for (size_t s = 0; s < sequences.size(); ++s) {
      const int count = 1 + int(sequences[s].proposed.size());
      plan.rows.push_back({SequenceId(s), sequences[s].cached, count, count, count - 1, count});
    }
    draw(forward(plan));
    size_t row = 0;
    int64_t accepted = 0;
    for (size_t s = 0; s < sequences.size(); ++s) {
      Stream& sequence = sequences[s];
      const int count = plan.rows[s].count;
      int kept = 0;
      for (; kept < count; ++kept) {
        const int32_t token =
            random ? random_token(int64_t(s), int64_t(sequence.ids.size())) : drawn[row + size_t(kept)];
        sequence.ids.push_back(token);
        if (kept == count - 1 || sequence.proposed[size_t(kept)] != token) break;
      }
      accepted += kept;
      sequence.cached += kept + 1;
      sequence.proposed.clear();
      row += size_t(count);
    }
    if (drafts > 0) propose(drafts);
    return accepted;
  }

  void propose(int drafts) {
    const auto count = int64_t(sequences.size());
    std::vector<int32_t> tokens, slots;
    std::vector<int64_t> last;
    std::vector<Replay> replay;
    for (const Stream& sequence : sequences) {
      tokens.push_back(sequence.ids.back());
      last.push_back(sequence.cached - 1);
      slots.push_back(sequence.cache.slot);
      replay.push_back(sequence.replay);
    }
    const DraftBatch batch{View<const int32_t, 1>(tokens.data(), {count}), View<const int64_t, 1>(last.data(), {count}),
                           View<const int32_t, 1>(slots.data(), {count}), replay};
    greedy.assign(size_t(count * drafts), RowSampling{.temperature = 0});
    const DrawnDrafts block = model->propose(*queue, batch, {drafts, greedy}, memory);
    queue->wait();
    for (int64_t s = 0; s < count; ++s) {
      for (int step = 0; step < drafts; ++step) sequences[size_t(s)].proposed.push_back(block.ids(step, s));
    }
  }

  /// Brings the sequences to where the case begins; `again`: behind another run of the same case.
  Result<void> prepare(const StepCase& c, bool again) {
    const bool keeps = c.copied && again;
    if (!keeps) {
      const int64_t prompt = c.decode ? c.cached : c.cached + c.length;
      // The longest that the drafts can make it, and the drafts that are verified behind the end.
      const int64_t most = c.decode ? prompt + (c.length + 1) * (1 + c.drafts) + 1 : prompt;
      if (auto made = make_sequences(c, prompt, most); !made) return made;
    }
    if (c.copied) {
      copy_past(c, !keeps);
    } else if (c.cached > 0) {
      prefill(c.cached, sequences.size());
    }
    return {};
  }

  /// What the case times. Returns the drafts that were accepted.
  int64_t run(const StepCase& c) {
    int64_t accepted = 0;
    if (!c.decode) prefill(c.cached + c.length, sequences.size());
    for (int64_t step = 0; c.decode && step < c.length; ++step) accepted += decode_step(c.drafts, c.random);
    return accepted;
  }
};

StepBench::StepBench(std::unique_ptr<State> state) : state_(std::move(state)) {}
StepBench::StepBench(StepBench&&) noexcept = default;
StepBench& StepBench::operator=(StepBench&&) noexcept = default;
StepBench::~StepBench() = default;

Result<StepBench> StepBench::open(const LoadedModel& loaded, const Common& common, const StepBenchOptions& options) {
  if (const int64_t most = loaded.opened.config.max_position_embeddings; options.context > most) {
    return Error{ErrorCode::usage,
                 "context of " + with_commas(options.context) + " tokens exceeds the model's " + with_commas(most),
                 "--lengths, --cached", "pass smaller values"};
  }
  auto state = std::make_unique<State>();
  auto backend = open_backend(common.backend);
  if (!backend) return backend.error();
  state->backend = std::move(*backend);
  state->per_operation = options.per_operation;
  if (options.per_operation) state->backend.ops = timed_operations(state->backend.ops);
  const bool device = !state->backend.memory.host_visible;
  auto model = Model::load(loaded.opened.checkpoint, state->backend,
                           {options.numerics.value_or(default_numerics(device)), loaded.token_map, options.placement,
                            loaded.draw_seed, true});
  if (!model) return model.error();
  state->model.emplace(std::move(*model));
  auto queue = state->backend.open_queue(int(common.threads.value_or(usable_cpus())));
  if (!queue) return queue.error();
  state->queue = std::move(*queue);
  state->queue->batch_invariant = options.batch_invariant || !device;
  state->queue->scaled_products = state->model->numerics().scaled_products;
  if (options.per_operation) {
    const Instruments instruments = instruments_of(state->backend);
    auto peaks = instruments.peaks(*state->queue);
    if (!peaks) return peaks.error();
    state->peaks = std::move(*peaks);
    state->clock = instruments.open_clock(*state->queue);
  }
  const auto blocks = int32_t(blocks_for(options.context) * options.sequences);
  auto memory = CacheMemory::allocate(state->backend.memory, lay_out(state->model->page_specs()), blocks,
                                      int32_t(options.sequences));
  if (!memory) return memory.error();
  state->memory = std::move(*memory);
  state->pools.emplace(blocks, int32_t(options.sequences));
  state->builder.emplace(state->model->config().engram_max_ngram_size - 1);
  state->step_rows = options.step_rows;
  return StepBench(std::move(state));
}

Result<StepTimes> StepBench::run(const StepCase& c, int64_t warmup, int64_t repeat) {
  State& state = *state_;
  StepTimes times;
  std::vector<double> whole, launches;
  std::vector<std::vector<OperationTime>> operations;
  std::vector<OperationTime> counted;
  int64_t accepted = 0, steps = 0;
  // A host's clock disturbs nobody, a device's marks do: there the operations have runs of their own.
  const bool marks_disturb = !state.backend.memory.host_visible;
  const std::vector<Run> runs = runs_of(warmup, repeat, state.per_operation, marks_disturb);
  for (size_t i = 0; i < runs.size(); ++i) {
    if (interrupted()) return interrupted_error("fathom bench", "what was measured before is above");
    const Run run = runs[i];
    if (auto ready = state.prepare(c, i > 0); !ready) return ready.error();
    state.model->record_steps(c.recorded && (run == Run::warm_up || run == Run::measure));
    if (c.drafts > 0) state.propose(c.drafts);
    const auto before = state.model->stream_statistics();
    const bool timed = run == Run::time || (run == Run::measure && state.per_operation && !marks_disturb);
    if (timed) time_operations(state.clock.get());
    if (run == Run::count) count_operations(&state.backend.memory, &*state.peaks);
    state.launch_seconds = 0;
    state.forwards = 0;
    const auto begin = Clock::now();
    const int64_t more = state.run(c);
    const double seconds = since(begin);
    if (timed) operations.push_back(take_operation_times());
    if (run == Run::count) counted = take_operation_times(state.forwards);
    time_operations(nullptr);
    count_operations(nullptr, nullptr);
    if (run != Run::measure) continue;
    if (c.decode) {
      accepted += more;
      steps += c.length * c.batch;
    }
    if (before) {
      times.stream = sum(times.stream.value_or(StreamStatistics{}), since(*before, *state.model->stream_statistics()));
    }
    whole.push_back(seconds);
    launches.push_back(state.launch_seconds / (c.decode ? double(c.length) : 1));
    times.seconds.push_back(c.decode ? seconds / double(c.length) : seconds);
    times.tokens = c.batch * c.length + more;
  }
  state.clear();
  times.operations = medians(operations, counted, c.decode ? c.length : 1);
  times.seconds_all = median(whole);
  if (marks_disturb) times.launch_seconds = median(launches);
  if (steps > 0) times.accepted_per_step = double(accepted) / double(steps);
  return times;
}

std::string StepBench::backend_name() const { return state_->backend.name; }
int StepBench::threads() const { return state_->queue->pool.threads(); }
const Numerics& StepBench::numerics() const { return state_->model->numerics(); }
bool StepBench::batch_invariant() const { return state_->queue->batch_invariant; }
int64_t StepBench::cache_bytes() const { return state_->memory.bytes(); }
const std::optional<MachinePeaks>& StepBench::peaks() const { return state_->peaks; }

}  // namespace fathom::cli
