#include "fathom/cli/step_timing.h"

#include <algorithm>
#include <chrono>

#include "fathom/base/philox.h"
#include "fathom/cli/interrupt.h"
#include "fathom/cli/terminal.h"
#include "fathom/engine/batch_builder.h"
#include "fathom/engine/stream_series.h"

namespace fathom::cli {
namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

/// One entry an operation: the median of its seconds over the repeats, each of `steps` steps.
std::vector<OperationTime> medians(const std::vector<std::vector<OperationTime>>& repeats, int64_t steps) {
  std::vector<OperationTime> out;
  for (size_t i = 0; !repeats.empty() && i < repeats[0].size(); ++i) {
    std::vector<double> seconds;
    for (const auto& times : repeats) seconds.push_back(times[i].seconds / double(steps));
    const OperationTime& one = repeats[0][i];
    if (one.calls > 0) out.push_back({one.name, one.calls / steps, median(std::move(seconds))});
  }
  std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
  return out;
}

struct Stream : LiveSequence {
  SequenceCache cache;
};

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
  std::vector<Stream> sequences;
  std::vector<float> draft_logits, confidence;
  std::vector<RowSampling> greedy;
  std::vector<int32_t> drawn;

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
    return model->forward(*queue, builder->build(plan, owners), memory);
  }

  /// The likeliest token of each row, drawn as the engine draws it.
  const std::vector<int32_t>& draw(View<const float, 2> logits) {
    RowSampling likeliest;
    likeliest.temperature = 0;
    greedy.resize(size_t(logits.shape[0]), likeliest);
    drawn.resize(greedy.size());
    backend.ops.sample(*queue, {logits, greedy, View<int32_t, 1>(drawn.data(), {logits.shape[0]}), {}});
    return drawn;
  }

  /// Runs prompt positions [cached, until) of every sequence, as many steps as `step_rows` demands. The newest token of
  /// each is appended when `until` is the prompt's end.
  void prefill(int64_t until) {
    size_t at = 0;
    while (at < sequences.size()) {
      StepPlan plan;
      int64_t left = step_rows;
      std::vector<size_t> ending;
      while (at < sequences.size() && left > 0) {
        Stream& sequence = sequences[at];
        const int64_t count = std::min(left, until - sequence.cached);
        const bool last = sequence.cached + count == sequence.prompt_tokens;
        if (count > 0) {
          plan.rows.push_back({SequenceId(at), sequence.cached, int(count), int(count), 0, last ? 1 : 0});
          if (last) ending.push_back(at);
        }
        sequence.cached += count;
        left -= count;
        if (sequence.cached == until) ++at;
      }
      if (plan.empty()) return;
      const auto logits = forward(plan);
      if (!ending.empty()) draw(logits);
      for (size_t i = 0; i < ending.size(); ++i) sequences[ending[i]].ids.push_back(drawn[i]);
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
    const int64_t vocabulary = model->config().vocab_size;
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
    model->draft(*queue, batch, memory);
    draft_logits.resize(size_t(count * vocabulary));
    confidence.resize(size_t(count));
    for (int step = 0; step < drafts; ++step) {
      const View<float, 2> logits(draft_logits.data(), {count, vocabulary});
      model->markov(*queue, step, View<const int32_t, 1>(tokens.data(), {count}), logits,
                    View<float, 1>(confidence.data(), {count}));
      tokens = draw(View<const float, 2>(draft_logits.data(), {count, vocabulary}));
      for (size_t s = 0; s < sequences.size(); ++s) sequences[s].proposed.push_back(tokens[s]);
    }
  }
};

StepBench::StepBench(std::unique_ptr<State> state) : state_(std::move(state)) {}
StepBench::StepBench(StepBench&&) noexcept = default;
StepBench& StepBench::operator=(StepBench&&) noexcept = default;
StepBench::~StepBench() = default;

Result<StepBench> StepBench::open(const LoadedModel& loaded, const Common& common, const Numerics& numerics,
                                  int64_t context, int64_t sequences, int64_t step_rows, bool per_operation,
                                  const std::optional<StreamOptions>& stream) {
  if (const int64_t most = loaded.opened.config.max_position_embeddings; context > most) {
    return Error{ErrorCode::usage,
                 "context of " + with_commas(context) + " tokens exceeds the model's " + with_commas(most),
                 "--lengths, --cached", "pass smaller values"};
  }
  auto state = std::make_unique<State>();
  auto backend = open_backend(common.backend);
  if (!backend) return backend.error();
  state->backend = std::move(*backend);
  state->per_operation = per_operation;
  if (per_operation) state->backend.ops = timed_operations(state->backend.ops);
  auto model = Model::load(loaded.opened.checkpoint, state->backend, {numerics, loaded.token_map, stream});
  if (!model) return model.error();
  state->model.emplace(std::move(*model));
  auto queue = state->backend.open_queue(int(common.threads.value_or(usable_cpus())));
  if (!queue) return queue.error();
  state->queue = std::move(*queue);
  const auto blocks = int32_t(blocks_for(context) * sequences);
  auto memory =
      CacheMemory::allocate(state->backend.memory, lay_out(state->model->page_specs()), blocks, int32_t(sequences));
  if (!memory) return memory.error();
  state->memory = std::move(*memory);
  state->pools.emplace(blocks, int32_t(sequences));
  state->builder.emplace(state->model->config().engram_max_ngram_size - 1);
  state->step_rows = step_rows;
  return StepBench(std::move(state));
}

Result<StepTimes> StepBench::run(const StepCase& c, int64_t warmup, int64_t repeat) {
  State& state = *state_;
  StepTimes times;
  std::vector<double> whole;
  std::vector<std::vector<OperationTime>> operations;
  int64_t accepted = 0, steps = 0;
  for (int64_t i = 0; i < warmup + repeat; ++i) {
    if (interrupted()) return interrupted_error("fathom bench", "what was measured before is above");
    const int64_t prompt = c.decode ? c.cached : c.cached + c.length;
    // The longest that the drafts can make it, and the drafts that are verified behind the end.
    const int64_t most = c.decode ? prompt + (c.length + 1) * (1 + c.drafts) + 1 : prompt;
    if (auto made = state.make_sequences(c, prompt, most); !made) return made.error();
    if (c.cached > 0) state.prefill(c.cached);
    int64_t tokens = c.batch * c.length;
    double seconds = 0;
    if (c.drafts > 0) state.propose(c.drafts);
    if (state.per_operation) take_operation_times();  // those of the preparation
    const auto before = state.model->stream_statistics();
    if (!c.decode) {
      const auto begin = Clock::now();
      state.prefill(prompt);
      seconds = since(begin);
    } else {
      const auto begin = Clock::now();
      int64_t more = 0;
      for (int64_t step = 0; step < c.length; ++step) more += state.decode_step(c.drafts, c.random);
      seconds = since(begin);
      tokens += more;
      if (i >= warmup) {
        accepted += more;
        steps += c.length * c.batch;
      }
    }
    if (i < warmup) continue;
    if (before) {
      times.stream = sum(times.stream.value_or(StreamStatistics{}), since(*before, *state.model->stream_statistics()));
    }
    if (state.per_operation) operations.push_back(take_operation_times());
    whole.push_back(seconds);
    times.seconds.push_back(c.decode ? seconds / double(c.length) : seconds);
    times.tokens = tokens;
  }
  state.clear();
  times.operations = medians(operations, c.decode ? c.length : 1);
  times.seconds_all = median(whole);
  if (steps > 0) times.accepted_per_step = double(accepted) / double(steps);
  return times;
}

std::string StepBench::backend_name() const { return state_->backend.name; }
int StepBench::threads() const { return state_->queue->pool.threads(); }
const Numerics& StepBench::numerics() const { return state_->model->numerics(); }
int StepBench::block() const {
  const ModelConfig& config = state_->model->config();
  return config.num_nextn_predict_layers > 0 ? config.dspark_block_size : 0;
}
int64_t StepBench::cache_bytes() const { return state_->memory.bytes(); }

}  // namespace fathom::cli
