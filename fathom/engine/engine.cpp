#include "fathom/engine/engine.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "fathom/backend/instruments.h"
#include "fathom/base/processor_name.h"
#include "fathom/base/sha256.h"
#include "fathom/base/system_memory.h"
#include "fathom/engine/cache_plan.h"
#include "fathom/engine/measure_decode.h"
#include "fathom/engine/replay_meter.h"
#include "fathom/engine/step_loop.h"
#include "fathom/engine/step_memory.h"
#include "fathom/engine/stream_series.h"

namespace fathom {
namespace {

Error wrong(const char* option, const std::string& found, const std::string& remedy) {
  return {ErrorCode::usage, found, option, remedy};
}

Result<void> check_options(const EngineOptions& o, int block, int64_t vocabulary) {
  if (o.sequences < 1) return wrong("--sequences", std::to_string(o.sequences) + " sequences", "run at least 1");
  if (o.step_rows < 1)
    return wrong("--step-rows", std::to_string(o.step_rows) + " prompt rows a step", "use at least 1");
  if (o.context < 0 || o.context == 1) {
    return wrong("--context", "context of " + std::to_string(o.context) + " tokens",
                 "a prompt and an answer need at least 2; leave the option out for what fits");
  }
  if (o.threads < 0) return wrong("--threads", std::to_string(o.threads) + " threads", "use 0 for all usable CPUs");
  if (o.drafts < -1 || o.drafts > block) {
    return wrong("--drafts", std::to_string(o.drafts) + " drafts a round",
                 "this model proposes 0 to " + std::to_string(block));
  }
  for (const int32_t id : o.token_blacklist) {
    if (id < 0 || id >= vocabulary) {
      return wrong("--token-blacklist", "token id " + std::to_string(id) + " is not in the vocabulary",
                   "ids lie in 0 to " + std::to_string(vocabulary - 1));
    }
  }
  if (o.vocabulary && o.vocabulary->size() > vocabulary) {
    return wrong("vocabulary", "a vocabulary of " + std::to_string(o.vocabulary->size()) + " tokens",
                 "this model has " + std::to_string(vocabulary) + "; pass that of its tokenizer");
  }
  if (o.snapshot_bytes < -1) {
    return wrong("snapshot_bytes", std::to_string(o.snapshot_bytes) + " bytes",
                 "use 0 for none, or -1 for the default");
  }
  if (o.memory_limit_bytes < 0) {
    return wrong("--memory-limit", std::to_string(o.memory_limit_bytes) + " bytes", "use a size such as 64GiB, or 0");
  }
  return {};
}

StepMemory memory_of(const EngineOptions& options, const ModelConfig& config, bool device) {
  return step_memory(config, {.prompt_rows = options.step_rows,
                              .sequences = options.sequences,
                              .drafts = options.drafts,
                              .context = options.context > 0 ? options.context : config.max_position_embeddings,
                              .batch_invariant = options.batch_invariant,
                              .on_device = device});
}

// What caches may take: the limit, or half of what the machine has free, less what a step computes in.
CacheQuestion question_of(const EngineOptions& options, const ModelConfig& config, const CacheLayout& layout,
                          int64_t available, const StepMemory& computing) {
  CacheQuestion question;
  const int64_t share =
      options.memory_limit_bytes > 0 ? std::min(options.memory_limit_bytes, available) : available / 2;
  question.free_bytes = share - computing.all();
  question.block_bytes = layout.block_bytes;
  question.slot_bytes = layout.slot_bytes;
  question.context = options.context;
  question.model_context = config.max_position_embeddings;
  question.sequences = options.sequences;
  return question;
}

// Page specs "ring.0" to "ring.(E - 1)".
std::vector<size_t> encoder_rings_of(const std::vector<PageSpec>& specs, int encoder_layers) {
  std::vector<size_t> out;
  for (size_t i = 0; i < specs.size(); ++i) {
    for (int layer = 0; layer < encoder_layers; ++layer) {
      if (specs[i].name == "ring." + std::to_string(layer)) out.push_back(i);
    }
  }
  return out;
}

// Measured now, or within the last hour. That times cannot be kept is no reason not to start.
Result<CostCurve> decode_curve(const EngineOptions& options, const std::string& model, const ModelPort& port,
                               int32_t blocks) {
  const int sequences = int(std::min<int64_t>(options.sequences, blocks));
  const auto sizes = curve_sizes(sequences * (1 + options.drafts));
  CostCurveKey key;
  key.fields.set("unit", Json::of("ms"));
  key.fields.set("model", Json::of(model));
  key.fields.set("backend", Json::of(options.backend));
  key.fields.set("processor", Json::of(processor_name()));
  key.fields.set("threads", Json::of(options.threads));
  key.fields.set("numerics", Json::of(options.numerics->name));
  key.fields.set("batch_invariant", Json::of(options.batch_invariant));
  key.fields.set("sequences", Json::of(sequences));
  key.fields.set("sizes", Json::array());
  for (const int size : sizes) key.fields.fields.back().second.push(Json::of(size));
  const int64_t now =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  if (!options.step_times.empty()) {
    auto stored = load_cost_curve(options.step_times, key, now);
    if (stored.curve) return std::move(*stored.curve);
  }
  auto curve = measure_decode(port, sizes, sequences);
  if (curve.ok() && !options.step_times.empty()) (void)store_cost_curve(options.step_times, key, *curve, now);
  return curve;
}

}  // namespace

struct Engine::State {
  EngineOptions options;
  Backend backend;
  std::unique_ptr<Queue> queue;
  std::unique_ptr<QueueClock> clock;  // of a device: how long a step takes decides how many drafts are worth it
  std::optional<Model> model;
  CacheMemory memory;
  int64_t window_bytes = 0;           // of a snapshot; 0: none are taken
  std::vector<size_t> encoder_rings;  // page specs whose last entries a snapshot holds
  std::optional<EngineStatistics> statistics;
  std::optional<StreamSeries> stream_series;
  std::optional<StepLog> step_log;
  std::optional<StepLoop> loop;
  std::optional<ReplayMeter> meter;

  ModelPort port() {
    ModelPort out;
    out.vocabulary = model->config().vocab_size;
    out.block =
        std::min(model->config().num_nextn_predict_layers > 0 ? model->config().dspark_block_size : 0, kMaxDrafts);
    out.history = model->config().engram_max_ngram_size - 1;
    out.shape = model->replay_shape();
    out.logits_memory = backend.memory;
    out.forward = [this](const Batch& batch) { return model->forward(*queue, batch, memory); };
    out.clock = clock.get();
    if (!backend.memory.host_visible) {
      out.expect = [this](const Batch& batch) { model->expect(*queue, batch, memory); };
    }
    out.propose = [this](const DraftBatch& batch, const DraftDraws& draws) {
      return model->propose(*queue, batch, draws, memory);
    };
    out.draft = [this](const DraftBatch& batch) { model->draft(*queue, batch, memory); };
    out.markov = [this](int step, View<const int32_t, 1> previous, View<float, 2> logits, View<float, 1> confidence) {
      model->markov(*queue, step, previous, logits, confidence);
    };
    out.copy_block = [this](int32_t from, int32_t to) { memory.copy_block(from, to); };
    out.copy_slot = [this](int32_t from, int32_t to) { memory.copy_slot(from, to); };
    out.window_bytes = window_bytes;
    out.save_windows = [this](int32_t slot, int64_t position, std::span<uint8_t> bytes) {
      memory.save_windows(encoder_rings, model->replay_shape().window, slot, position, bytes);
    };
    out.restore_windows = [this](int32_t slot, int64_t position, std::span<const uint8_t> bytes) {
      memory.restore_windows(encoder_rings, model->replay_shape().window, slot, position, bytes);
    };
    return out;
  }
};

Engine::Engine(std::unique_ptr<State> state) : state_(std::move(state)) {}
Engine::Engine(Engine&&) noexcept = default;
Engine& Engine::operator=(Engine&&) noexcept = default;
Engine::~Engine() = default;

Result<Engine> Engine::open(const Checkpoint& checkpoint, std::span<const int32_t> token_map, EngineOptions options) {
  auto state = std::make_unique<State>();
  auto backend = open_backend(options.backend);
  if (!backend) return backend.error();
  state->backend = std::move(*backend);
  const bool device = !state->backend.memory.host_visible;
  if (!options.numerics) options.numerics = default_numerics(device);
  auto model = Model::load(checkpoint, state->backend,
                           {*options.numerics, token_map, options.placement, options.draw_seed, device});
  if (!model) return model.error();
  state->model.emplace(std::move(*model));
  const ModelConfig& config = state->model->config();

  const int block = state->port().block;
  if (options.sequences == -1) options.sequences = device ? 256 : 16;
  if (auto checked = check_options(options, block, config.vocab_size); !checked) return checked.error();
  options.backend = state->backend.name;
  // Drafts change how many rows a step has; that they change no bit is what transparent sampling promises.
  if (!device || options.verification == Verification::transparent) options.batch_invariant = true;
  const bool schedule = options.schedule_drafts && options.drafts < 0 && block > 0;
  if (options.drafts < 0) options.drafts = block;
  if (options.threads == 0) options.threads = usable_cpus();
  CacheLayout layout = lay_out(state->model->page_specs());
  const auto stream = state->model->stream_statistics();
  // Slots of experts in RAM have been taken; experts on disk are mapped as they come.
  const bool maps = stream && !stream->over_bus;
  const int64_t available = instruments_of(state->backend).free_bytes() - (maps ? stream->limit_bytes : 0);
  const StepMemory computing = memory_of(options, config, device);
  auto plan = plan_cache(question_of(options, config, layout, available, computing));
  if (!plan) return plan.error();
  options.context = plan->context;
  if (options.most_blocks > 0) {
    const auto least = int32_t(blocks_for(plan->context));  // one sequence of the context must fit
    plan->blocks = std::min(plan->blocks, std::max(options.most_blocks, least));
  }

  auto queue = state->backend.open_queue(options.threads);
  if (!queue) return queue.error();
  state->queue = std::move(*queue);
  state->queue->batch_invariant = options.batch_invariant;
  state->queue->scaled_products = options.numerics->scaled_products;
  if (auto prepared = state->queue->prepare(computing.workspace); !prepared) return prepared.error();
  if (device) state->clock = instruments_of(state->backend).open_clock(*state->queue);
  auto memory = CacheMemory::allocate(state->backend.memory, std::move(layout), plan->blocks, options.sequences);
  if (!memory) return memory.error();
  state->memory = std::move(*memory);

  LoopOptions loop;
  loop.limits = {.context = options.context,
                 .sequences = options.sequences,
                 .step_rows = options.step_rows,
                 .blocks = plan->blocks};
  loop.limits.shape = state->model->replay_shape();
  loop.limits.overcommit = options.overcommit;
  loop.limits.separate = options.separate_steps;
  state->encoder_rings = encoder_rings_of(state->model->page_specs(), loop.limits.shape.encoder_layers);
  if (options.prefix_cache && options.snapshot_bytes != 0) {
    const int64_t one = state->memory.window_bytes(state->encoder_rings, loop.limits.shape.window);
    if (options.snapshot_bytes < 0) {
      options.snapshot_bytes =
          std::max(plan->blocks * state->memory.layout().block_bytes / 16, int64_t(options.sequences) * 4 * one);
    }
    loop.limits.snapshot_bytes = state->window_bytes = one;
    loop.limits.snapshots.budget_bytes = options.snapshot_bytes;
  }
  loop.prefix_cache = options.prefix_cache;
  const std::string identity = hex_text(checkpoint.identity());
  loop.prefix.weights_digest = identity;
  loop.prefix.numerics = options.numerics->name + std::string("/") + options.backend;
  loop.replay = options.replay;
  loop.drafts = options.drafts;
  loop.eos_id = config.eos_token_id;
  loop.verification = options.verification;
  loop.batch_invariant = options.batch_invariant;
  loop.token_blacklist = options.token_blacklist;
  loop.vocabulary = options.vocabulary;
  loop.grammar = options.grammar;
  if (!options.asynchronous) options.asynchronous = device;
  loop.asynchronous = *options.asynchronous;
  if (schedule) {
    auto curve = decode_curve(options, identity, state->port(), plan->blocks);
    if (!curve) return curve.error();
    loop.curve = std::move(*curve);
    loop.sizes_of_curve = device;
  }
  options.schedule_drafts = schedule;
  if (options.metrics != nullptr) loop.statistics = &state->statistics.emplace(*options.metrics, options.log);
  if (options.metrics != nullptr) state->stream_series.emplace(*options.metrics, stream && stream->over_bus);
  if (options.step_log) loop.step_log = &state->step_log.emplace();
  state->options = std::move(options);
  state->loop.emplace(loop, state->port(), state->backend.ops, *state->queue);
  state->meter.emplace(*state->loop, state->options.replay, ReplayMeterOptions{.share = state->options.replay_sample},
                       state->options.metrics);
  if (const std::string& path = state->options.record; !path.empty()) {
    if (auto recording = state->loop->record_to(path); !recording) return recording.error();
  }
  return Engine(std::move(state));
}

Result<RequestId> Engine::submit(Request request) { return state_->meter->submit(std::move(request)); }
void Engine::cancel(RequestId request) { state_->loop->cancel(request); }
std::span<const Event> Engine::step() {
  const std::span<Event> events = state_->loop->step();
  state_->meter->look_at(events);
  if (state_->stream_series) {
    if (const auto stream = stream_statistics()) state_->stream_series->show(*stream);
  }
  return events;
}
bool Engine::idle() const { return state_->loop->idle(); }
bool Engine::idle_work() { return state_->meter->measure_one(); }
ReplayDivergence Engine::replay_divergence(ReplayCause cause) const { return state_->meter->quality().of(cause); }
PrefixStatistics Engine::prefix_statistics() const { return state_->loop->prefix_statistics(); }
std::optional<StreamStatistics> Engine::stream_statistics() const { return state_->model->stream_statistics(); }
const EngineStatistics* Engine::statistics() const { return state_->statistics ? &*state_->statistics : nullptr; }
Json Engine::state(const StateOptions& options) const { return state_->loop->state(options); }
std::string Engine::steps_json(size_t most) const {
  return state_->step_log ? state_->step_log->json(most) : R"({"steps":[]})";
}
LoopTimes Engine::times() const { return state_->loop->times(); }
const ModelConfig& Engine::config() const { return state_->model->config(); }
const EngineOptions& Engine::options() const { return state_->options; }
int64_t Engine::cache_bytes() const { return state_->memory.bytes(); }
std::string Engine::backend_name() const { return state_->backend.name; }

}  // namespace fathom
