#include "fathom/cli/loaded_model.h"

#include <algorithm>

#include "fathom/backend/backend.h"
#include "fathom/checkpoint/embedded_model.h"
#include "fathom/cli/cache_folder.h"
#include "fathom/cli/log.h"
#include "fathom/cli/option_value.h"
#include "fathom/tokenizer/compressed_vocabulary.h"

namespace fathom::cli {
namespace {

constexpr const char* kMapFile = "engram_token_map.json";

Error as_input_error(Error error) {
  if (error.code == ErrorCode::unsupported) error.code = ErrorCode::bad_input;
  return error;
}

/// A folder without tokenizer (golden data, random weights) may bring the map itself: {"size": n, "map": [...]}.
Result<std::vector<int32_t>> read_token_map(const Checkpoint& checkpoint) {
  const auto text = checkpoint.read_text(kMapFile);
  if (!text) return text.error();
  const auto tree = parse_json(*text, kMapFile);
  if (!tree) return tree.error();
  std::vector<int32_t> map;
  if (const Json* list = tree->find("map"); list != nullptr && list->is_array()) {
    for (const Json& item : list->items) map.push_back(int32_t(item.as_int64().value_or(-1)));
  }
  if (map.empty() || *std::min_element(map.begin(), map.end()) < 0) {
    return Error{ErrorCode::bad_input, "no list of compressed ids", checkpoint.path_of(kMapFile) + ": map",
                 "delete the file, or copy it again"};
  }
  return map;
}

/// Whether the backend that will run the weights has memory of its own, in which it draws them.
Result<bool> draws_on_device(const SyntheticModel& model, WeightData data, const Common& common) {
  const bool runs = data == WeightData::to_run || data == WeightData::to_measure;
  if (!runs || model.preset == "flash-sparse") return false;
  const auto backend = open_backend(common.backend);
  if (!backend) return backend.error();
  return !backend->memory.host_visible;
}

}  // namespace

Result<LoadedModel> load_model(const Common& common, WeightData data) {
  const std::string& model = common.model;
  MemoryCheckpoint memory;
  std::optional<uint64_t> draw_seed;
  if (is_synthetic(model)) {
    const auto wanted = parse_synthetic(model);
    if (!wanted) return wanted.error();
    if (data == WeightData::to_run) {  // before the minutes that it takes
      if (auto whole = check_whole(wanted->config, "--model " + model); !whole) return whole.error();
    }
    const auto on_device = draws_on_device(*wanted, data, common);
    if (!on_device) return on_device.error();
    if (*on_device) draw_seed = wanted->seed;
    auto made = make_in_memory(*wanted, *on_device ? WeightData::declared : data, common);
    if (!made) return made.error();
    memory = std::move(*made);
  }
  auto opened = is_synthetic(model) ? open_model(memory.files(), model)
                : model.empty()     ? open_model(embedded_model())
                                    : open_model(model);
  if (!opened) return as_input_error(opened.error());
  if (data == WeightData::to_run) {
    if (auto whole = check_whole(opened->config, model); !whole) return whole.error();
  }
  LoadedModel loaded{
      std::move(memory), std::move(*opened), {}, {}, draw_seed, model.empty() ? "the embedded miniature" : model};
  const Checkpoint& checkpoint = loaded.opened.checkpoint;
  if (checkpoint.has_file("tokenizer.json")) {
    const auto text = checkpoint.read_text("tokenizer.json");
    if (!text) return text.error();
    auto tokenizer = Tokenizer::parse(*text, checkpoint.path_of("tokenizer.json"));
    if (!tokenizer) return tokenizer.error();
    auto vocabulary = compress_vocabulary(*tokenizer);
    if (!vocabulary) return vocabulary.error();
    loaded.tokenizer = std::move(*tokenizer);
    loaded.token_map = std::move(vocabulary->map);
  } else if (checkpoint.has_file(kMapFile)) {
    auto map = read_token_map(checkpoint);
    if (!map) return map.error();
    loaded.token_map = std::move(*map);
  }
  return loaded;
}

Result<Tokenizer> load_tokenizer(const std::string& path, const Common& common) {
  if (!path.empty()) return Tokenizer::open(path);
  if (is_synthetic(common.model)) {
    auto model = load_model(common, WeightData::declared);
    if (!model) return model.error();
    if (model->tokenizer) return std::move(*model->tokenizer);
    return Error{ErrorCode::not_found, "this preset has no tokenizer", "--model " + common.model,
                 "name a tokenizer.json with --tokenizer FILE"};
  }
  if (!common.model.empty()) return Tokenizer::open(common.model + "/tokenizer.json");
  for (const EmbeddedFile& file : embedded_model()) {
    if (file.name != "tokenizer.json") continue;
    return Tokenizer::parse({reinterpret_cast<const char*>(file.bytes.data()), file.bytes.size()},
                            "embedded tokenizer");
  }
  return Error{ErrorCode::not_found, "this build has no tokenizer inside", "--tokenizer", "name a tokenizer.json"};
}

std::vector<Option> engine_options(EngineSettings& s) {
  const std::string memory = "What it may take", way = "How it runs";
  std::vector<Option> options = {
      {.name = "context",
       .value = "TOKENS",
       .help = "longest prompt and answer together",
       .fallback = "what fits, see fathom plan",
       .group = memory,
       .target = &s.context,
       .least = 1,
       .most = 1e12},
      {.name = "sequences",
       .value = "N",
       .help = "answers that run at the same time",
       .fallback = "256 on cuda, 16 else",
       .group = memory,
       .target = &s.sequences,
       .least = 1,
       .most = 65536},
      {.name = "memory-limit",
       .value = "SIZE",
       .help = "most memory for cache and scratch, e.g. 8GiB",
       .fallback = "none",
       .group = memory,
       .target = &s.memory_limit},
      {.name = "experts",
       .value = "PLACE",
       .help = "where expert weights live: ram = copied to the device as they are "
               "chosen, disk = read from their files (cpu)",
       .fallback = "device",
       .group = memory,
       .target = &s.experts,
       .choices = {"device", "ram", "disk"}},
      {.name = "resident-limit",
       .value = "SIZE",
       .help = "--experts ram, disk: most of the device's memory, or of memory, that they take, e.g. 8GiB",
       .fallback = "half of what is free beside other weights",
       .group = memory,
       .target = &s.resident_limit},
      {.name = "drop-behind",
       .help = "--experts disk: what leaves also leaves the page cache",
       .group = memory,
       .target = &s.drop_behind},
      {.name = "engram",
       .value = "PLACE",
       .help = "where Engram tables live: ram = read over the bus, disk = mapped file",
       .fallback = "disk; device for a model without files",
       .group = memory,
       .target = &s.engram,
       .choices = {"device", "ram", "disk"}},
      {.name = "step-rows",
       .value = "N",
       .help = "prompt rows of a step; longer prompts go in pieces",
       .fallback = "2048",
       .group = way,
       .target = &s.step_rows,
       .least = 1,
       .most = 1 << 20},
      {.name = "step-policy",
       .value = "P",
       .help = "prompt and decode rows share a step (mixed) or take turns (separate)",
       .fallback = "mixed",
       .group = way,
       .target = &s.step_policy,
       .choices = {"mixed", "separate"}},
      {.name = "replay",
       .value = "MODE",
       .help = "decoder rows of a prompt: compact, halo, off (all), mask",
       .fallback = "compact",
       .group = way,
       .target = &s.replay,
       .choices = {"compact", "halo", "off", "mask"}},
      {.name = "numerics",
       .value = "P",
       .help = "where values are rounded: reference, deepinfer",
       .fallback = "deepinfer on cuda, reference else",
       .group = way,
       .target = &s.numerics,
       .choices = {"reference", "deepinfer"}},
      {.name = "sampling",
       .value = "S",
       .help = "how drafts are accepted: rejection, transparent",
       .fallback = "rejection",
       .group = way,
       .target = &s.sampling,
       .choices = {"rejection", "transparent"}},
      {.name = "drafts",
       .value = "N",
       .help = "drafted tokens that a step verifies, 0 to 5 or auto",
       .fallback = "auto",
       .group = way,
       .target = &s.drafts,
       .choices = {"auto", "0", "1", "2", "3", "4", "5"}},
      {.name = "no-prefix-cache",
       .help = "compute every prompt whole, also what an earlier one began with",
       .group = way,
       .target = &s.no_prefix_cache},
      {.name = "batch-invariant",
       .help = "same bits in any batch (always so on cpu, reference, and with --sampling transparent)",
       .group = way,
       .target = &s.batch_invariant},
  };
  for (const char* name : {"kv-ram", "kv-disk", "kv-disk-size", "kv-remote", "ranks", "dp", "cp", "ep", "rendezvous"}) {
    options.push_back({.name = name, .planned = true});
  }
  return options;
}

Result<void> check_stream_options(const EngineSettings& s) {
  if (s.resident_limit && s.experts == "device") {
    return Error{ErrorCode::usage, "only experts that live elsewhere are brought", "--resident-limit",
                 "add --experts ram or --experts disk"};
  }
  if (s.drop_behind && s.experts != "disk") {
    return Error{ErrorCode::usage, "only experts on disk are dropped", "--drop-behind", "add --experts disk"};
  }
  return {};
}

Placement placement_of(const EngineSettings& s, bool in_files) {
  Placement placement;
  placement.experts = place_of(s.experts).value_or(Place::device);
  placement.engram = place_of(s.engram.value_or(in_files ? "disk" : "device")).value_or(Place::disk);
  // 0 stands for a limit that nobody named; one byte is refused as any other that is too small.
  placement.stream = {s.resident_limit ? std::max<int64_t>(s.resident_limit->count, 1) : 0, s.drop_behind};
  return placement;
}

Result<Placement> placement_of(const EngineSettings& s, const LoadedModel& model, const Common& common) {
  if (auto right = check_stream_options(s); !right) return right.error();
  const bool in_files = !common.model.empty() && !is_synthetic(common.model);
  const Placement placement = placement_of(s, in_files);
  const auto backend = open_backend(common.backend);
  if (!backend) return backend.error();
  if (backend->memory.host_visible) {
    const std::string here = "the weights of backend " + backend->name + " lie in memory already";
    if (placement.experts == Place::ram) {
      return Error{ErrorCode::usage, here, "--experts ram",
                   "leave the option out, or use --experts disk where they do not fit"};
    }
    if (s.engram && placement.engram != Place::disk) {
      return Error{ErrorCode::usage, here + " or are mapped", "--engram " + *s.engram, "leave the option out"};
    }
  } else if (placement.experts == Place::disk) {
    return Error{ErrorCode::usage, "backend " + backend->name + " does not read mapped files", "--experts disk",
                 "use --experts ram, which keeps them in host memory, or --backend cpu"};
  } else if (model.draw_seed && placement.engram == Place::disk) {
    return Error{ErrorCode::usage, "drawn weights lie in no file", "--engram disk",
                 "use --engram device or ram, or leave the option out"};
  }
  return placement;
}

EngineOptions to_engine_options(const EngineSettings& s, const Common& common) {
  EngineOptions options;
  options.backend = common.backend;
  options.threads = int(common.threads.value_or(0));
  if (s.numerics) options.numerics = numerics_of(*s.numerics);
  options.context = s.context.value_or(0);
  options.sequences = int(s.sequences.value_or(-1));
  options.step_rows = s.step_rows;
  options.replay = replay_mode_of(s.replay).value_or(ReplayMode::compact);
  options.verification = s.sampling == "transparent" ? Verification::transparent : Verification::rejection;
  options.drafts = s.drafts == "auto" ? -1 : int(parse_integer(s.drafts).value_or(0));
  options.separate_steps = s.step_policy == "separate";
  options.schedule_drafts = s.schedule_drafts;
  if (s.synchronous) options.asynchronous = false;
  options.record = s.record;
  options.step_times = cache_folder("step-times");
  options.memory_limit_bytes = s.memory_limit ? s.memory_limit->count : 0;
  options.batch_invariant = s.batch_invariant;
  options.prefix_cache = !s.no_prefix_cache;
  options.metrics = s.metrics;
  options.log = s.log;
  options.step_log = s.step_log;
  options.replay_sample = s.replay_sample;
  return options;
}

Result<Engine> open_engine(const LoadedModel& model, const EngineSettings& settings, const Common& common) {
  for (const std::string& warning : model.opened.warnings) log(common, LogLevel::warn, warning);
  if (model.token_map.empty() && !model.opened.config.engram_layer_ids.empty()) {
    return Error{ErrorCode::not_found, "no tokenizer.json", model.name,
                 "copy it from the published checkpoint: Engram layers hash by its vocabulary"};
  }
  const auto placement = placement_of(settings, model, common);
  if (!placement) return placement.error();
  EngineOptions options = to_engine_options(settings, common);
  options.placement = *placement;
  const ModelConfig& config = model.opened.config;
  // A synthetic model may have fewer rows than its tokenizer has tokens: it says nothing that a constraint could hold.
  if (model.tokenizer && model.tokenizer->size() <= config.vocab_size) {
    auto vocabulary = grammar::Vocabulary::make(*model.tokenizer, {config.eos_token_id});
    if (!vocabulary) return vocabulary.error();
    options.vocabulary = std::move(*vocabulary);
  }
  options.draw_seed = model.draw_seed;
  auto engine = Engine::open(model.opened.checkpoint, model.token_map, std::move(options));
  if (!engine) {
    Error error = engine.error();
    if (!settings.record.empty() && error.where == settings.record) error.where = "--record " + settings.record;
    return error;
  }
  const EngineOptions& used = engine->options();
  std::string name;
  append_json_string(name, model.name);  // it may have blanks
  log(common, LogLevel::info,
      "model=" + name + " backend=" + engine->backend_name() + " threads=" + std::to_string(used.threads) +
          " numerics=" + used.numerics->name + " context_tokens=" + std::to_string(used.context) +
          " sequences=" + std::to_string(used.sequences) + " drafts=" + std::to_string(used.drafts) +
          " replay=" + name_of(used.replay) + " batch_invariant=" + (used.batch_invariant ? "yes" : "no") +
          " cache_bytes=" + std::to_string(engine->cache_bytes()));
  return engine;
}

}  // namespace fathom::cli
