#include "fathom/model/model.h"

#include <algorithm>
#include <cmath>

#include "fathom/backend/instruments.h"
#include "fathom/backend/recorder.h"
#include "fathom/base/system_memory.h"
#include "fathom/model/attention/attention.h"
#include "fathom/model/attention/rope_frequencies.h"
#include "fathom/model/block.h"
#include "fathom/model/draft/draft.h"
#include "fathom/model/engram/engram.h"
#include "fathom/model/memory_plan.h"
#include "fathom/model/missing.h"
#include "fathom/model/moe/expert_slots.h"
#include "fathom/model/moe/expert_stream.h"
#include "fathom/model/step_recordings.h"
#include "fathom/model/step_tables.h"
#include "fathom/model/tensor_list.h"
#include "fathom/model/weights.h"

namespace fathom {

struct Model::State {
  ModelConfig config;
  std::vector<LayerPlan> plan;   // backbone and draft stages
  std::vector<LayerPlan> shown;  // backbone only
  Numerics numerics;
  Operations ops;
  Weights weights;
  std::unique_ptr<PieceStream> stream;  // null unless experts are read from files,
  std::unique_ptr<ExpertSlots> slots;   // or copied from host memory
  std::optional<HostReader> reader;     // of Engram tables that stay in files which a device does not read
  std::unique_ptr<Queue> side_queue;    // of a device
  SideQueue side;
  CacheMap map;
  std::vector<EngramHash> hashes;
  Buffer token_map_bytes;
  std::span<const int32_t> token_map;    // in memory that operations reach
  std::vector<float> plain, compressed;  // rotary frequencies; operations take them by value
  Memory memory;
  bool records = true, device_logits = false;
  // Of a sub-layer; of a call; of a call, tables; of a call, what the processor reads.
  Scratch scratch, kept, host, results;
  StepRecordings recordings;
  Batch tables;  // of the last step of the backbone, as operations read them
  // Of the last draft() call, for markov().
  Drafts drafts;
  int64_t draft_sequences = 0;
  // A step whose tables expect() has written; forgotten when other tables are.
  struct Expected {
    StepShape shape;
    std::vector<Replay> replay;
    View<const float, 2> logits;
  };
  std::optional<Expected> expected;

  State(const Memory& m, const Recorder& r)
      : memory(m), scratch(m), kept(m), host(Scratch::tables(m, r)), results(Scratch::shared(m)), recordings(r, host) {}

  int backtrack() const { return config.num_nextn_predict_layers > 0 ? config.dspark_block_size + 1 : 1; }
  Step step(Queue& queue, const Trace* trace) { return step(queue, ops, trace); }
  Step step(Queue& queue, const Operations& table, const Trace* trace) {
    // Whoever looks at values or at the time of an operation wants one after the other; a step that is not run queues
    // nothing anywhere.
    const bool beside = side_queue && records && trace == nullptr && &table == &ops;
    return {queue,
            table,
            scratch,
            kept,
            host,
            results,
            numerics,
            config,
            trace,
            memory,
            stream.get(),
            slots.get(),
            reader ? &*reader : nullptr,
            beside ? &side : nullptr};
  }
  void reset() {
    expected.reset();
    for (Scratch* one : {&scratch, &kept, &host, &results}) one->reset();
  }
  bool settled() const { return scratch.settled() && kept.settled() && host.settled() && results.settled(); }
  // Which experts are copied is decided while a step runs.
  bool may_record() const { return records && !slots && recordings.possible(); }
  StepShape shape_of(const Queue& queue, const Batch& batch, const CacheMemory& cache) const {
    return {StepShape::Kind::backbone,
            &queue,
            batch.rows.rows(),
            batch.rows.sequences(),
            (batch.blocks.shape[1] + kTableBlocks - 1) / kTableBlocks,
            0,
            cache.blocks_begin(),
            cache.slots_begin()};
  }
  int64_t moves() const { return scratch.moves() + kept.moves() + host.moves() + results.moves(); }
};

Model::Model(std::unique_ptr<State> state) : state_(std::move(state)) {}
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;
Model::~Model() = default;

const ModelConfig& Model::config() const { return state_->config; }
const std::vector<LayerPlan>& Model::plan() const { return state_->shown; }
const Numerics& Model::numerics() const { return state_->numerics; }
const std::vector<PageSpec>& Model::page_specs() const { return state_->map.specs; }
std::optional<StreamStatistics> Model::stream_statistics() const {
  if (state_->slots) return state_->slots->statistics();
  if (!state_->stream) return {};
  return state_->stream->statistics();
}

ReplayShape Model::replay_shape() const {
  const ModelConfig& c = state_->config;
  return {int(c.sliding_window), state_->backtrack(), encoder_layers(c), decoder_layers(c)};
}

namespace {

// What the backend cannot do with weights, and what there is no room for: before gigabytes are read or drawn.
Result<void> check_placement(const Placement& placement, const ModelOptions& options, const ModelConfig& config,
                             const Backend& backend, const std::string& where) {
  const bool device = !backend.memory.host_visible;
  if (device && placement.experts == Place::disk) {
    return Error{ErrorCode::usage, "backend " + backend.name + " does not read mapped files", "--experts disk",
                 "use --experts ram, which keeps them in host memory, or --backend cpu"};
  }
  check(!options.draw_seed || placement.engram != Place::disk, "drawn weights lie in no file");
  if (!device) return {};
  return check_room(config, placement, {instruments_of(backend).free_bytes(), available_memory_bytes()}, where);
}

// The processor's operations, for tables that stay in files.
Result<HostReader> open_reader() {
  auto backend = cpu_backend();
  if (!backend) return backend.error();
  constexpr int kMostThreads = 8;  // a page that is not in memory takes a thread 0.1 ms
  auto queue = backend->open_queue(std::min(usable_cpus(), kMostThreads));
  if (!queue) return queue.error();
  return HostReader{backend->ops, std::move(*queue)};
}

}  // namespace

Result<Model> Model::load(const Checkpoint& checkpoint, const Backend& backend, ModelOptions options) {
  auto config = parse_model_config(checkpoint.config(), checkpoint.path_of("config.json"));
  if (!config) return config.error();
  if (const auto problems = compare(checkpoint, tensor_list(*config)); !problems.empty()) {
    Error first = problems.front();
    if (problems.size() > 1) {
      first.remedy +=
          "; " + std::to_string(problems.size() - 1) + " more problems: fathom inspect --problems lists them";
    }
    return first;
  }
  if (auto missing = missing_operations(backend); !missing.ok()) return missing.error();
  const Placement& placement = options.placement;
  const std::string where = checkpoint.location();
  if (auto right = check_placement(placement, options, *config, backend, where); !right) return right.error();
  const bool device = !backend.memory.host_visible;
  int64_t slots = 0;
  if (placement.experts == Place::ram) {
    const int64_t free = device ? instruments_of(backend).free_bytes() : available_memory_bytes();
    const auto fitting = expert_slots(*config, placement, free);
    if (!fitting) return fitting.error();
    slots = *fitting;
  }
  std::optional<WeightDrawing> drawing;
  if (options.draw_seed) {
    check(device, "weights are drawn in a device's memory");
    drawing = {*options.draw_seed, instruments_of(backend).draw};
  }
  auto weights = bind_weights(checkpoint, *config, backend.memory, drawing, placement);
  if (!weights) return weights.error();
  auto state = std::make_unique<State>(backend.memory, recorder_of(backend));
  state->device_logits = options.device_logits;
  if (auto made = make_expert_map(*config, backend.memory, *weights); !made) return made.error();
  if (placement.experts == Place::disk) {
    auto stream = open_expert_stream(checkpoint, *config, placement.stream, *weights);
    if (!stream) return stream.error();
    state->stream = std::move(*stream);
  }
  if (placement.experts == Place::ram) {
    auto opened = open_expert_slots(backend, *config, slots, *weights);
    if (!opened) return opened.error();
    state->slots = std::move(*opened);
  }
  if (device && placement.engram == Place::disk && !config->engram_layer_ids.empty()) {
    auto reader = open_reader();
    if (!reader) return reader.error();
    state->reader.emplace(std::move(*reader));
  }
  if (backend.wait_for != nullptr && !state->slots) {
    auto queue = backend.open_queue(1);
    if (!queue) return queue.error();
    if (auto prepared = (*queue)->prepare(side_workspace_bytes(*config)); !prepared) return prepared.error();
    state->side_queue = std::move(*queue);
    state->side = {state->side_queue.get(), backend.wait_for};
  }
  state->config = std::move(*config);
  state->plan = plan_layers(state->config);
  state->shown.assign(state->plan.begin(), state->plan.begin() + state->config.num_hidden_layers);
  state->numerics = options.numerics;
  state->ops = backend.ops;
  state->weights = std::move(*weights);
  state->map = map_cache(state->config, state->plan, state->numerics, state->backtrack());
  state->plain = plain_frequencies(state->config);
  state->compressed = compressed_frequencies(state->config);
  if (!state->config.engram_layer_ids.empty()) {
    state->hashes = engram_hashes(state->config);
    if (options.token_map.empty() || int64_t(options.token_map.size()) > state->config.vocab_size) {
      return Error{ErrorCode::bad_input,
                   "compressed vocabulary map has " + std::to_string(options.token_map.size()) + " entries",
                   checkpoint.path_of("tokenizer.json"),
                   "a model with Engram layers needs a tokenizer of at most " +
                       std::to_string(state->config.vocab_size) + " tokens"};
    }
    // Tokenizers may end before the embedding does; what lies behind maps to 0, as the reference does.
    auto bytes = backend.memory.shared(state->config.vocab_size * int64_t(sizeof(int32_t)));
    if (!bytes) return bytes.error();
    state->token_map_bytes = std::move(*bytes);
    auto* ids = reinterpret_cast<int32_t*>(state->token_map_bytes.data());
    std::copy(options.token_map.begin(), options.token_map.end(), ids);
    state->token_map = {ids, size_t(state->config.vocab_size)};
  }
  return Model(std::move(state));
}

namespace {

// First visible window position of each row, and one past the last.
struct Visibility {
  View<int64_t, 1> begin, end;
};

enum class Half { encoder, first_decoder, decoder };

Visibility visibility(Step& step, const RowSet& rows, std::span<const Replay> replay, Half half) {
  const int64_t n = rows.rows(), window = step.config.sliding_window;
  Visibility out{step.host.vector<int64_t>(n), step.host.vector<int64_t>(n)};
  for (int64_t r = 0; r < n; ++r) {
    const int64_t p = rows.positions[r];
    const Replay& view = replay[size_t(rows.sequence[r])];
    int64_t cut = view.encoder_cut;
    if (half != Half::encoder && p >= view.decoder_cut) {
      cut = half == Half::first_decoder ? view.first_decoder_cut : view.decoder_cut;
    }
    out.begin[r] = std::max({int64_t(0), p - window + 1, cut});
    out.end[r] = p + 1;
  }
  return out;
}

// What one layer leaves to the next.
struct Pass {
  Streams streams;
  RowSubset running;  // rows that run; its index counts the batch's rows
  View<const uint8_t, 1> image;
  Visibility window;
  Shared shared;
};

// [rows, cols] of 4-byte elements, and the subset's rows of it.
template <class T>
View<T, 2> take_table(Step& step, const RowSubset& subset, View<const T, 2> table) {
  const auto out = step.kept.table<T>(subset.rows.rows(), table.shape[1]);
  const auto bytes = [](auto* data, int64_t rows, int64_t cols) {
    using Byte = std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(data)>>, const uint8_t, uint8_t>;
    return BasicAnyView<Byte>(reinterpret_cast<Byte*>(data), DType::i32, rows, cols);
  };
  step.ops.gather_rows(step.queue, {bytes(table.data, table.shape[0], table.shape[1]), subset.index,
                                    bytes(out.data, out.shape[0], out.shape[1])});
  return out;
}

// The same of one number a row, which an operation wrote.
View<int32_t, 1> take_column(Step& step, const RowSubset& subset, View<const int32_t, 1> values) {
  const auto out = take_table<int32_t>(step, subset, View<const int32_t, 2>(values.data, {values.shape[0], 1}));
  return {out.data, {out.shape[0]}};
}

// The same of numbers that the processor wrote.
template <class T>
View<T, 1> take_vector(Step& step, const RowSubset& subset, View<const T, 1> values) {
  const auto out = step.host.vector<T>(subset.rows.rows());
  for (int64_t i = 0; i < out.shape[0]; ++i) out[i] = values[subset.index[i]];
  return out;
}

// Drops the rows that nothing reads from here on. `going` is a subset of the rows that run.
void narrow(Step& step, Pass& pass, const RowSubset& going) {
  if (going.all) return;
  Streams streams = make_streams(step, going.rows.rows());
  step.ops.gather_rows(step.queue, {pass.streams.x, going.index, streams.x});
  streams.pre = take_table<float>(step, going, pass.streams.pre);
  pass.streams = streams;
  if (!pass.image.empty()) pass.image = take_vector(step, going, pass.image);
  if (RowSelection& chosen = pass.shared.selection; chosen.kv_source >= 0) {
    chosen.entries = take_table(step, going, chosen.entries);
    chosen.count = take_column(step, going, chosen.count);
  }
  if (Candidates& blocks = pass.shared.candidates; !blocks.count.empty()) {
    blocks.blocks = take_table<int32_t>(step, going, blocks.blocks);
    blocks.count = take_column(step, going, blocks.count);
  }
  const auto index = pass.running.all ? going.index : take_vector(step, going, pass.running.index);
  pass.running = {going.rows, index, false};
}

// The first decoder layer: all rows feed its global cache, some its window, and the last ones go on (model.md 13.2).
AttentionRows enter_decoder(Step& step, Pass& pass, const Batch& batch, AnyView norm) {
  AttentionRows in;
  const SiteInput all = site_input(step, pass.streams, norm);
  in.global_u = all.u;
  in.global_rows = batch.rows;
  const RowSubset going = rows_from(step, batch.rows, [&](int64_t i) { return batch.replay[size_t(i)].decoder_from; });
  const RowSubset windowed =
      rows_from(step, batch.rows, [&](int64_t i) { return batch.replay[size_t(i)].decoder_window_from; });
  in.u = take(step, going, in.global_u);
  in.rounded = going.all ? all.rounded : rounded_input(step, in.u);
  in.window_u = windowed.rows.rows() == going.rows.rows() ? in.u : take(step, windowed, in.global_u);
  in.window_rows = windowed.rows;
  narrow(step, pass, going);
  pass.window = visibility(step, pass.running.rows, batch.replay, Half::first_decoder);
  return in;
}

// The last layer: rows without logits end in its window, nobody reads what it would make of them.
AttentionRows enter_last_layer(Step& step, Pass& pass, const Batch& batch, AnyView norm) {
  AttentionRows in;
  const SiteInput all = site_input(step, pass.streams, norm);
  in.window_u = in.global_u = all.u;
  in.window_rows = in.global_rows = pass.running.rows;
  int64_t next = 0;  // of the rows with logits, which rise as the rows do
  const RowSubset going = rows_where(step, pass.running.rows, [&](int32_t r) {
    const int32_t row = pass.running.all ? r : pass.running.index[r];
    if (next == batch.logit_rows.shape[0] || batch.logit_rows[next] != row) return false;
    ++next;
    return true;
  });
  in.u = take(step, going, in.global_u);
  in.rounded = going.all ? all.rounded : rounded_input(step, in.u);
  narrow(step, pass, going);
  pass.window = visibility(step, pass.running.rows, batch.replay, Half::decoder);
  return in;
}

// Logits of the wanted rows only.
View<const float, 2> logits_of(Step& step, const Weights& weights, const Pass& pass, View<const int32_t, 1> wanted,
                               bool on_device) {
  const int64_t n = wanted.shape[0];
  Scratch& where = on_device ? step.kept : step.results;  // the sampler masks and reads them
  const auto logits = where.table<float>(n, step.config.vocab_size);
  if (n == 0) return logits;
  auto index = step.host.vector<int32_t>(n);
  for (int64_t i = 0, at = 0; i < n; ++i) {
    while (!pass.running.all && at < pass.running.rows.rows() && pass.running.index[at] != wanted[i]) ++at;
    check(pass.running.all || at < pass.running.rows.rows(), "a row whose logits are wanted runs the decoder");
    index[i] = pass.running.all ? wanted[i] : int32_t(at);
  }
  const AnyViewMut hidden = collapse(step, pass.streams);
  const AnyViewMut last = step.activations(n, hidden.cols);
  step.ops.gather_rows(step.queue, {hidden, index, last});
  step.ops.linear(step.queue, {Matrix(rms_norm(step, last, weights.norm)), weights.head,
                               AnyViewMut(reinterpret_cast<uint8_t*>(logits.data), DType::f32, n, logits.shape[1]), 1});
  return logits;
}

}  // namespace

void Model::record_steps(bool on) { state_->records = on; }

View<const float, 2> Model::forward(Queue& queue, const Batch& batch, CacheMemory& cache, const Trace* trace) {
  State& s = *state_;
  const bool traced = trace != nullptr && *trace;
  View<const float, 2> logits;
  if (traced || !s.may_record() || !is_repeatable(s.config, s.backtrack(), batch)) {
    s.recordings.settle(queue);
    s.recordings.reads_from_queue();
    logits = compute(queue, s.ops, batch, cache, trace, false);
  } else if (const StepShape shape = s.shape_of(queue, batch, cache);
             s.expected && s.expected->shape == shape && s.recordings.is_ready(shape, s.moves()) &&
             is_as_expected(batch, s.tables, s.expected->replay)) {
    fill_in(batch, s.tables);
    logits = s.expected->logits;
    s.expected.reset();
    s.recordings.launch(queue, shape, s.moves());
  } else {
    logits = s.recordings.run(queue, shape, s.ops, s.moves(),
                              [&](const Operations& ops) { return compute(queue, ops, batch, cache, nullptr, true); });
  }
  if (!s.device_logits) queue.wait();
  return logits;
}

void Model::expect(Queue& queue, const Batch& batch, CacheMemory& cache) {
  State& s = *state_;
  // Where the processor reads Engram rows, tables depend on ids.
  if (!s.may_record() || s.reader || !s.recordings.has_sent() || !s.settled() ||
      !is_repeatable(s.config, s.backtrack(), batch)) {
    return;
  }
  const StepShape shape = s.shape_of(queue, batch, cache);
  if (!s.recordings.is_ready(shape, s.moves())) return;
  s.recordings.settle(queue);
  const auto logits = compute(queue, s.recordings.silent(), batch, cache, nullptr, true);
  s.expected = {shape, {batch.replay.begin(), batch.replay.end()}, logits};
}

View<const float, 2> Model::compute(Queue& queue, const Operations& ops, const Batch& given, CacheMemory& cache,
                                    const Trace* trace, bool repeatable) {
  State& s = *state_;
  const ModelConfig& c = s.config;
  s.reset();
  Step step = s.step(queue, ops, trace);
  step.repeatable = repeatable;
  step.dummy_sequence = int32_t(given.rows.sequences());
  s.tables = s.memory.host_visible ? given : as_tables(step, given);
  const Batch batch = s.tables;

  auto store_from = s.host.vector<int64_t>(batch.rows.sequences());
  for (int64_t i = 0; i < store_from.shape[0]; ++i) store_from[i] = batch.replay[size_t(i)].store_from;
  int64_t most_positions = 0;
  for (int64_t r = 0; r < batch.rows.rows(); ++r) {
    most_positions = std::max(most_positions, batch.rows.positions[r] + 1);
  }
  const AttentionContext context{s.map,   cache,        batch.blocks,   batch.slots,   store_from,
                                 s.plain, s.compressed, batch.captures, most_positions};

  Pass pass{open_streams(step, s.weights.embed, batch.ids),
            {batch.rows, {}, true},
            batch.image,
            visibility(step, batch.rows, batch.replay, Half::encoder),
            {}};
  AnyViewMut features;  // [rows, targets * H], of the rows that run the target layers
  RowSet feature_rows;
  int64_t target = 0;
  size_t engram_layer = 0;
  const int first_decoder = encoder_layers(c), last = c.num_hidden_layers - 1;

  for (int l = 0; l < c.num_hidden_layers; ++l) {
    const LayerPlan& plan = s.plan[size_t(l)];
    const BlockWeights& w = s.weights.blocks[size_t(l)];
    AttentionRows in;
    if (l == first_decoder) in = enter_decoder(step, pass, batch, w.attn_norm);
    if (plan.engram) {
      engram(step, *w.engram, s.hashes[engram_layer++], s.token_map, batch, pass.streams.x, l);
    }
    if (plan.draft_input) {
      if (features.data == nullptr) {
        features = s.kept.rows(s.numerics.activations, pass.running.rows.rows(),
                               int64_t(c.dspark_target_layer_ids.size()) * c.hidden_size);
        feature_rows = pass.running.rows;
      }
      step.ops.stream_mean(queue,
                           {pass.streams.x, c.hc_mult, features.columns(target++ * c.hidden_size, c.hidden_size)});
    }
    if (l == last && plan.decoder && l != first_decoder && !step.traced()) {
      in = enter_last_layer(step, pass, batch, w.attn_norm);
    } else if (l != first_decoder) {
      if (l == first_decoder + 1) pass.window = visibility(step, pass.running.rows, batch.replay, Half::decoder);
      const SiteInput all = site_input(step, pass.streams, w.attn_norm);
      in.u = in.window_u = in.global_u = all.u;
      in.rounded = all.rounded;
      in.window_rows = in.global_rows = pass.running.rows;
    }
    in.rows = pass.running.rows;
    in.window_begin = pass.window.begin;
    in.window_end = pass.window.end;
    const SiteMixes mixes = site_mixes(step, w.attn_mix, pass.streams);
    spread(step, {attention(step, context, w, l, plan, in, pass.shared)}, mixes, pass.streams, w.ffn_norm);
    s.scratch.reset();
    step.next_block = l == last ? nullptr : &s.weights.blocks[size_t(l) + 1];
    step.next_rows = l + 1 == last ? batch.logit_rows.shape[0] : pass.running.rows.rows();
    // Engram changes the streams before they are read.
    const bool passes = l != last && !s.plan[size_t(l) + 1].engram;
    expert_site(step, w, pass.streams, pass.image, c.num_experts_per_tok,
                passes ? s.weights.blocks[size_t(l) + 1].attn_norm : AnyView());
    s.scratch.reset();
    step.record(l, "streams", pass.streams.x);
  }

  if (features.data != nullptr) {
    step.record("main_hidden", features);
    extend_draft_windows(step, context, s.weights, features, feature_rows);
  }
  return logits_of(step, s.weights, pass, batch.logit_rows, s.device_logits);
}

Drafts Model::draft(Queue& queue, const DraftBatch& batch, CacheMemory& cache) {
  State& s = *state_;
  check(s.config.num_nextn_predict_layers > 0, "the model has draft stages");
  s.recordings.settle(queue);
  s.reset();
  Step step = s.step(queue, nullptr);
  const View<const int32_t, 1> slots = copied(s.host, batch.slots);
  const AttentionContext context{s.map, cache, {}, slots, {}, s.plain, s.compressed, {}, 0};
  s.drafts = draft_logits(step, context, s.weights, batch);
  s.draft_sequences = batch.tokens.shape[0];
  queue.wait();
  return s.drafts;
}

void Model::markov(Queue& queue, int draft_step, View<const int32_t, 1> previous, View<float, 2> logits,
                   View<float, 1> confidence) {
  State& s = *state_;
  const int64_t n = s.draft_sequences;
  check(previous.shape[0] == n && draft_step < s.config.dspark_block_size,
        "markov() follows draft() of the same sequences");
  Step step = s.step(queue, nullptr);
  s.scratch.reset();
  s.host.reset();
  s.results.reset();
  const AnyViewMut score = step.results.rows(DType::f32, n, 1);
  add_markov(step, s.weights, s.drafts, draft_step, previous, logits, score);
  queue.wait();
  for (int64_t i = 0; i < n; ++i) confidence[i] = confidence_of(score.as<float>()(i, 0));
}

DrawnDrafts Model::propose(Queue& queue, const DraftBatch& batch, const DraftDraws& draws, CacheMemory& cache) {
  State& s = *state_;
  const int64_t n = batch.tokens.shape[0];
  check(s.config.num_nextn_predict_layers > 0, "the model has draft stages");
  check(draws.positions <= s.config.dspark_block_size && int64_t(draws.rows.size()) == draws.positions * n,
        "every draft has its draw");
  const auto work = [&](const Operations& ops) { return draw_drafts(queue, ops, batch, draws, cache); };
  if (s.may_record()) {
    const StepShape shape{
        StepShape::Kind::drafts, &queue,           n * s.config.dspark_block_size, n,
        draws.positions,         draws.law_tokens, cache.blocks_begin(),           cache.slots_begin()};
    return s.recordings.run(queue, shape, s.ops, s.moves(), work);
  }
  s.recordings.settle(queue);
  s.recordings.reads_from_queue();
  return work(s.ops);
}

DrawnDrafts Model::draw_drafts(Queue& queue, const Operations& ops, const DraftBatch& batch, const DraftDraws& draws,
                               CacheMemory& cache) {
  State& s = *state_;
  s.reset();
  Step step = s.step(queue, ops, nullptr);
  const int64_t n = batch.tokens.shape[0], positions = draws.positions;
  const View<const int32_t, 1> slots = copied(s.host, batch.slots);
  View<const int32_t, 1> previous = copied(s.host, batch.tokens);
  const auto rows = s.host.vector<RowSampling>(positions * n);
  std::copy(draws.rows.begin(), draws.rows.end(), rows.data);
  const auto order = s.host.vector<int32_t>(positions);
  for (int64_t p = 0; p < positions; ++p) order[p] = int32_t(p);
  const AttentionContext context{s.map, cache, {}, slots, {}, s.plain, s.compressed, {}, 0};
  const Drafts drafts = draft_logits(step, context, s.weights, batch);

  const auto ids = s.kept.table<int32_t>(positions, n);  // each is read by the position behind it
  const auto logits = s.kept.table<float>(n, s.config.vocab_size);
  const auto scores = s.results.table<float>(positions, n);
  View<TokenWeight, 2> laws;
  View<int32_t, 1> counts;
  if (draws.law_tokens > 0) {
    laws = s.results.table<TokenWeight>(positions * n, draws.law_tokens);
    counts = s.results.vector<int32_t>(positions * n);
  }
  for (int64_t p = 0; p < positions; ++p) {
    s.scratch.reset();
    const AnyViewMut score(reinterpret_cast<uint8_t*>(scores.row(p).data()), DType::f32, n, 1);
    add_markov(step, s.weights, drafts, int(p), previous, logits, score);
    Sample op;
    op.logits = logits;
    op.rows = {rows.data + p * n, size_t(n)};
    op.ids = {ids.row(p).data(), {n}};
    if (draws.law_tokens > 0) {
      op.lists = {laws.row(p * n).data(), {n, draws.law_tokens}};
      op.list_counts = {counts.data + p * n, {n}};
    }
    step.ops.sample(queue, op);
    previous = op.ids;
  }
  const auto told = s.results.table<int32_t>(positions, n);
  const auto bytes = [&](View<int32_t, 2> table) {
    return AnyViewMut(reinterpret_cast<uint8_t*>(table.data), DType::i32, positions, n);
  };
  step.ops.gather_rows(queue, {bytes(ids), order, bytes(told)});
  return {told, scores, laws, counts};
}

}  // namespace fathom
