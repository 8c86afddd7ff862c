// fathom/cli/plan.cpp
// `fathom plan`: what a configuration takes and how fast it can be, before anything is loaded (design/cli.md 5). Memory
// is fathom/model/memory_plan.h, speed fathom/model/speed_plan.h.
#include <algorithm>
#include <array>
#include <memory>
#include <optional>

#include "fathom/base/json.h"
#include "fathom/base/mapped_file.h"
#include "fathom/cli/hardware.h"
#include "fathom/cli/loaded_model.h"
#include "fathom/cli/model_config.h"
#include "fathom/cli/option_value.h"
#include "fathom/cli/plan_room.h"
#include "fathom/cli/program.h"
#include "fathom/cli/stream_speed.h"
#include "fathom/cli/terminal.h"
#include "fathom/engine/step_memory.h"
#include "fathom/model/memory_plan.h"
#include "fathom/model/moe/expert_stream.h"
#include "fathom/model/stream_plan.h"
#include "fathom/model/tensor_list.h"

namespace fathom::cli {
namespace {

struct Settings {
  std::string gpus, hardware;
  bool list = false;
  EngineSettings engine;
};

/// One line of the memory table; everything is of one rank.
struct Part {
  std::string name;
  int64_t bytes = 0;
  std::string where;
};

/// What is predicted instead of bounds when experts are streamed.
struct StreamPlan {
  StreamHardware hardware;
  std::string from;       // "measured", "bound"
  bool over_bus = false;  // from host memory to a device, not from disk
  StreamPrediction prompt, one, all;
};

struct Plan {
  std::string model;
  Hardware hardware;
  std::vector<Part> parts;
  Placement placement;
  int64_t device_bytes = 0;  // weights, what steps compute in, and reserve: all but the cache
  int64_t host_bytes = 0;    // weights in host memory
  int64_t limit_bytes = 0;   // of a device
  CacheDemand demand;        // of a rank
  CacheFit fit;
  int64_t context_of_one = 0;  // largest with one sequence; only where nothing is left for as many as asked for
  int64_t sequences = 0;       // of all ranks
  Prediction first_token, step;
  std::optional<StreamPlan> stream;  // experts are brought from disk or host memory as they are chosen
  int64_t prompt = 0;
  /// Of all ranks, which share the host. A sixteenth of it is not for weights.
  bool host_fits() const {
    const int64_t host = hardware.host_memory_bytes;
    return host <= 0 || host_bytes * hardware.devices <= host / 16 * 15;
  }
  bool weights_mapped = false;  // on a CPU weights may stay on disk and be read as needed
  bool predictable = true;      // expert weights lie in device memory, or behind a disk or bus whose speed is known
  int64_t model_context = 0;
  int64_t resident_bytes = 0;  // of routed experts elsewhere, what stays where operations run
};

/// Weights of one rank by group: routed experts are split, the rest is on every rank. Experts of draft stages lie with
/// the others where those are not on the device.
void add_weights(Plan& plan, const ModelConfig& config) {
  const int ranks = plan.hardware.devices;
  const Placement& placement = plan.placement;
  std::array<int64_t, kWeightGroups> bytes{};
  int64_t draft_experts = 0;
  for (const TensorSpec& tensor : tensor_list(config)) {
    const WeightGroup group = group_of(tensor.name);
    if (group == WeightGroup::dspark && tensor.name.find(".ffn.experts.") != std::string::npos) {
      draft_experts += tensor.bytes();
    } else {
      bytes[size_t(group)] += tensor.bytes();
    }
  }
  const auto share = [&](int64_t whole) { return (whole + ranks - 1) / ranks; };
  const auto home = placement.experts == Place::device ? WeightGroup::dspark : WeightGroup::routed_experts;
  for (int g = 0; g < kWeightGroups; ++g) {
    const auto group = WeightGroup(g);
    int64_t size = bytes[size_t(g)];
    if (group == WeightGroup::routed_experts) size = share(size);
    if (group == home) size += share(draft_experts);
    if (size == 0) continue;
    Place place = Place::device;
    if (group == WeightGroup::routed_experts) place = placement.experts;
    if (group == WeightGroup::engram_tables) place = placement.engram;
    const bool split = ranks > 1 && group == WeightGroup::routed_experts;
    plan.parts.push_back({name_of(group), size,
                          std::string(name_of(place)) + (split ? ", 1 of " + std::to_string(ranks) + " parts" : "")});
    if (place == Place::device) plan.device_bytes += size;
    if (place == Place::ram) plan.host_bytes += size;
  }
}

int64_t all_expert_bytes(const ModelConfig& config) {
  return config.num_hidden_layers * int64_t(config.n_routed_experts) * expert_page_bytes(config);
}

/// What of experts in RAM or on disk stays where operations run: the given limit, or what a run would take.
Result<void> add_resident_experts(Plan& plan, const ModelConfig& config, const Settings& s) {
  if (plan.placement.experts == Place::ram) {
    const auto slots = expert_slots(config, plan.placement, plan.limit_bytes);
    if (!slots) return slots.error();
    const int64_t own = (expert_count(config) + plan.hardware.devices - 1) / plan.hardware.devices;
    plan.resident_bytes = std::min(*slots, own) * expert_slot_bytes(config);
    plan.parts.push_back({"slots for routed experts", plan.resident_bytes, "device"});
    plan.device_bytes += plan.resident_bytes;
    return {};
  }
  const int64_t piece = expert_page_bytes(config), experts = all_expert_bytes(config);
  plan.resident_bytes =
      s.engine.resident_limit ? s.engine.resident_limit->count : plan.limit_bytes / 2 - always_read_bytes(config);
  if (plan.resident_bytes < 2 * piece) {
    return Error{ErrorCode::out_of_memory,
                 with_commas(std::max<int64_t>(plan.resident_bytes, 0)) +
                     " bytes for routed experts, of which one takes " + with_commas(piece),
                 "--resident-limit", "give at least two of them, " + with_commas(2 * piece) + " bytes"};
  }
  plan.parts.push_back({"routed experts in memory", std::min(plan.resident_bytes, experts), "device"});
  plan.device_bytes += std::min(plan.resident_bytes, experts);
  return {};
}

/// Experts of a checkpoint folder, for a look at the disk; none for a model without files.
Result<double> measured_disk(const std::string& model, const ModelConfig& config) {
  if (model.empty() || is_synthetic(model)) return 0;
  const auto checkpoint = Checkpoint::open(model);
  if (!checkpoint) return checkpoint.error();
  auto weights = bind_weights(*checkpoint, config, reference_backend().memory);
  if (!weights) return weights.error();
  return measure_piece_reads(expert_pieces(*checkpoint, *weights));
}

/// The machine's disk or bus, and products: measured on this one, bounds from a file. Nothing when neither is known.
Result<std::optional<StreamPlan>> stream_plan(const Plan& plan, const ModelConfig& config, const Common& common) {
  StreamPlan out;
  out.hardware = stream_hardware(plan.hardware);
  out.hardware.disk_bytes_per_second = plan.hardware.disk_bytes_per_second;
  out.from = plan.hardware.bandwidth_from;
  out.over_bus = plan.placement.experts == Place::ram;
  if (out.over_bus) {
    out.hardware.disk_bytes_per_second = plan.hardware.host_link_bytes_per_second;
    out.hardware.piece_bytes = expert_slot_bytes(config);
  } else if (plan.weights_mapped) {
    const auto disk = measured_disk(common.model, config);
    if (!disk) return disk.error();
    out.hardware.disk_bytes_per_second = *disk;
    const int threads = int(common.threads.value_or(usable_cpus()));
    if (auto measured = measure_products(common.backend, threads, out.hardware); !measured) return measured.error();
    out.from = "measured";
  }
  if (out.hardware.disk_bytes_per_second <= 0) return std::optional<StreamPlan>();
  return std::optional<StreamPlan>(std::move(out));
}

/// With experts elsewhere time is simulated instead of bounded.
Result<void> plan_streaming(Plan& plan, const ModelConfig& config, const Settings& s, const Common& common,
                            int64_t kept) {
  if (plan.placement.experts == Place::device) return {};
  auto stream = stream_plan(plan, config, common);
  if (!stream) return stream.error();
  if (!*stream || plan.hardware.devices > 1) return {};
  StreamHardware& h = (*stream)->hardware;
  h.limit_bytes = plan.resident_bytes;
  const int64_t cache = plan.fit.needed_bytes;
  if (!s.engine.drop_behind && !(*stream)->over_bus)
    h.page_cache_bytes = std::max<int64_t>(0, plan.limit_bytes - plan.device_bytes - cache);
  (*stream)->prompt = predict_streamed_prefill(config, h, plan.prompt, kept, s.engine.step_rows);
  (*stream)->one = predict_streamed_decode(config, h, 1, plan.demand.context);
  (*stream)->all = predict_streamed_decode(config, h, plan.sequences, plan.demand.context);
  plan.stream = std::move(**stream);
  plan.predictable = true;
  return {};
}

Result<Plan> make_plan(const Settings& s, const Common& common) {
  auto config = config_of(common.model);
  if (!config) return config.error();
  Plan plan;
  plan.model = common.model.empty() ? "the embedded miniature" : common.model;
  if (!s.gpus.empty()) {
    auto named = named_hardware(s.gpus);
    if (!named) return named.error();
    plan.hardware = std::move(*named);
  } else if (!s.hardware.empty()) {
    const auto text = read_file(s.hardware, int64_t(1) << 20);
    if (!text) return text.error();
    auto read = parse_hardware(*text, s.hardware);
    if (!read) return read.error();
    plan.hardware = std::move(*read);
  } else {
    const auto backend = open_backend(common.backend);
    if (!backend) return backend.error();
    plan.weights_mapped = backend->memory.host_visible;
    if (plan.weights_mapped) {
      plan.hardware = this_machine(int(common.threads.value_or(usable_cpus())));
    } else {
      auto device = this_device(*backend);
      if (!device) return device.error();
      plan.hardware = std::move(*device);
    }
  }
  // A model that a device draws lies in no file; flash-sparse stands for the checkpoint that does.
  const bool drawn = is_synthetic(common.model) && !common.model.starts_with("synthetic:flash-sparse");
  plan.placement = placement_of(s.engine, plan.weights_mapped || !(common.model.empty() || drawn));
  if (plan.weights_mapped && plan.placement.experts == Place::ram) {
    return Error{ErrorCode::usage, "on this machine's processor weights lie in memory already", "--experts ram",
                 "leave the option out, or name a device: --gpus 1xH200"};
  }
  const int64_t context = s.engine.context.value_or(config->max_position_embeddings);
  if (context > config->max_position_embeddings) {
    return Error{ErrorCode::usage,
                 "context of " + with_commas(context) + " tokens exceeds the model's " +
                     with_commas(config->max_position_embeddings),
                 "--context", "pass a smaller value or leave the option out"};
  }
  plan.predictable = s.engine.experts == "device";
  plan.model_context = config->max_position_embeddings;
  const int ranks = plan.hardware.devices;
  plan.sequences = s.engine.sequences.value_or(plan.weights_mapped ? 16 : 64);
  add_weights(plan, *config);
  const int64_t mine = (plan.sequences + ranks - 1) / ranks;
  const int block = config->num_nextn_predict_layers > 0 ? config->dspark_block_size : 0;
  const int64_t drafts = parse_integer(s.engine.drafts).value_or(block);
  const LargestStep step{.prompt_rows = s.engine.step_rows,
                         .sequences = mine,
                         .drafts = drafts,
                         .context = context,
                         .batch_invariant = s.engine.batch_invariant || s.engine.sampling == "transparent",
                         .on_device = plan.hardware.kind != "cpu"};
  const StepMemory computing = step_memory(*config, step);
  plan.parts.push_back({"activations of a step", computing.activations, "device"});
  if (step.on_device) plan.parts.push_back({"workspace of its operations", computing.workspace, "device"});
  plan.parts.push_back({"logits and sampling", computing.choosing, "device"});
  plan.limit_bytes = plan.hardware.memory_bytes;
  if (s.engine.memory_limit) plan.limit_bytes = std::min(plan.limit_bytes, s.engine.memory_limit->count);
  if (plan.placement.experts != Place::device) {
    if (auto added = add_resident_experts(plan, *config, s); !added) return added.error();
  }
  // What drivers, libraries and fragmentation take, and what must stay free.
  const int64_t reserve = plan.limit_bytes / 50;
  plan.parts.push_back({"reserve, 2 %", reserve, "device"});
  plan.device_bytes += computing.all() + reserve;

  const CacheSizes sizes = cache_sizes(*config);
  PlanRoom room{.free_bytes = plan.limit_bytes - plan.device_bytes + computing.all(),
                .block_bytes = sizes.layout.block_bytes,
                .slot_bytes = sizes.layout.slot_bytes,
                .step = step};
  plan.demand = room.demand(*config, step);
  plan.fit = fit_cache(plan.demand);
  plan.fit.largest_context = largest_context(*config, room);
  plan.fit.largest_sequences = largest_sequences(*config, room);
  if (plan.demand.free_bytes < 0) {
    room.step.sequences = 1;
    plan.context_of_one = largest_context(*config, room);
  }
  const int64_t slots = mine * sizes.layout.slot_bytes;
  const std::string each = with_commas(mine) + (mine == 1 ? " sequence" : " sequences");
  plan.parts.push_back(
      {"cache blocks", plan.fit.needed_bytes - slots, each + " of " + with_commas(context) + " tokens"});
  plan.parts.push_back({"state slots", slots, each});

  const ReplayShape shape{int(config->sliding_window), longest_backtrack(*config), encoder_layers(*config),
                          decoder_layers(*config)};
  plan.prompt = context;
  int64_t kept = context;
  if (s.engine.replay == "compact") kept = std::min(compact_rows(shape), context);
  if (s.engine.replay == "halo") kept = std::min(halo_rows(shape), context);
  plan.first_token = predict_prefill(*config, plan.hardware, context, kept);
  plan.step = predict_decode(*config, plan.hardware, plan.sequences, context);
  if (auto planned = plan_streaming(plan, *config, s, common, kept); !planned) return planned.error();
  return plan;
}

std::string prediction_note(const Prediction& p) { return "limited by " + p.limit + ", " + p.from; }

std::string stream_text(const Plan& plan) {
  using Side = Table::Side;
  const StreamPlan& s = *plan.stream;
  const auto why = [&](const StreamPrediction& p) {
    return fixed(100 * p.hit_ratio, 0) + " % of experts " + (s.over_bus ? "on the device, " : "in memory, ") +
           size_text(int64_t(p.disk_bytes)) + (s.over_bus ? " over the bus, waits " : " from disk, waits ") +
           fixed(100 * p.wait_seconds / p.seconds, 0) + " %, " + s.from;
  };
  Table speed({{"speed"}, {"", Side::right}, {"why"}});
  speed.add({"first token of a prompt of " + with_commas(plan.prompt), duration_text(s.prompt.seconds), why(s.prompt)});
  speed.add({"tokens/s for one user", brief(1 / s.one.seconds), why(s.one)});
  speed.add(
      {"tokens/s of all " + with_commas(plan.sequences), brief(double(plan.sequences) / s.all.seconds), why(s.all)});
  if (s.over_bus) {
    return speed.text() + "Without drafts; gates choose uniformly. The bus from host memory brings " +
           size_text(int64_t(s.hardware.disk_bytes_per_second)) + "/s.\n";
  }
  return speed.text() + "Without drafts; gates choose uniformly. The disk reads " +
         size_text(int64_t(s.hardware.disk_bytes_per_second)) + "/s, " +
         (s.hardware.page_cache_bytes > 0
              ? "the page cache may keep " + size_text(s.hardware.page_cache_bytes) + " more.\n"
              : "the page cache keeps nothing.\n");
}

std::string text_of(const Plan& plan) {
  using Side = Table::Side;
  const CacheFit& fit = plan.fit;
  const int ranks = plan.hardware.devices;
  std::string out =
      plan.model + " on " + (ranks > 1 ? std::to_string(ranks) + " x " : "") + plan.hardware.name + "\n\n";
  Table memory({{ranks > 1 ? "memory of one rank" : "memory"}, {"bytes", Side::right}, {"", Side::right}, {"where"}});
  for (const Part& part : plan.parts) {
    memory.add({part.name, with_commas(part.bytes), size_text(part.bytes), part.where});
  }
  const int64_t total = plan.device_bytes + fit.needed_bytes;
  memory.add({"needed on the device", with_commas(total), size_text(total), ""});
  memory.add(
      {"there is", with_commas(plan.limit_bytes), size_text(plan.limit_bytes), fit.fits ? "fits" : "does not fit"});
  if (plan.host_bytes > 0) {
    memory.add({"needed in host memory", with_commas(plan.host_bytes), size_text(plan.host_bytes), ""});
    if (const int64_t host = plan.hardware.host_memory_bytes; host > 0) {
      memory.add({"there is", with_commas(host), size_text(host), plan.host_fits() ? "fits" : "does not fit"});
    }
  }
  out += memory.text();
  out += "\nWith these weights: up to " + with_commas(fit.largest_context) + " tokens for each of " +
         with_commas(plan.demand.sequences) + (plan.demand.sequences == 1 ? " sequence" : " sequences") +
         ", or up to " + with_commas(fit.largest_sequences) + " sequences of " + with_commas(plan.demand.context) +
         " tokens" + (ranks > 1 ? " a rank" : "") + "\n\n";
  if (!plan.predictable) {
    return out + "Speed is not predicted: expert weights do not lie in the device's memory, and " +
           (plan.hardware.devices > 1              ? "several devices share a disk or a host.\n"
            : plan.placement.experts == Place::ram ? "how fast host memory is read is not known (host_link).\n"
                                                   : "how fast its disk reads is not known.\n");
  }
  if (plan.stream) return out + stream_text(plan);
  Table speed({{"speed at best"}, {"", Side::right}, {"why"}});
  speed.add({"first token of a prompt of " + with_commas(plan.prompt), duration_text(plan.first_token.seconds),
             prediction_note(plan.first_token)});
  speed.add({"tokens/s for one user", brief(1 / plan.step.seconds), prediction_note(plan.step)});
  speed.add({"tokens/s of all " + with_commas(plan.sequences), brief(double(plan.sequences) / plan.step.seconds),
             prediction_note(plan.step)});
  out += speed.text();
  out += "Without drafts; a round with drafts brings 1 token and those that are accepted.\n";
  return out;
}

Json json_of(const Plan& plan) {
  const CacheFit& fit = plan.fit;
  Json tree = Json::object();
  tree.set("model", Json::of(plan.model));
  tree.set("hardware", Json::of(plan.hardware.name));
  tree.set("devices", Json::of(plan.hardware.devices));
  Json parts = Json::array();
  for (const Part& part : plan.parts) {
    Json entry = Json::object();
    entry.set("name", Json::of(part.name));
    entry.set("bytes", Json::of(part.bytes));
    entry.set("where", Json::of(part.where));
    parts.push(std::move(entry));
  }
  tree.set("memory", std::move(parts));
  tree.set("needed_bytes", Json::of(plan.device_bytes + fit.needed_bytes));
  tree.set("available_bytes", Json::of(plan.limit_bytes));
  tree.set("host_bytes", Json::of(plan.host_bytes));
  tree.set("fits", Json::of(fit.fits));
  tree.set("largest_context", Json::of(fit.largest_context));
  tree.set("largest_sequences", Json::of(fit.largest_sequences));
  const auto prediction = [](const Prediction& p, double value, const char* name) {
    Json entry = Json::object();
    entry.set(name, Json::of(value));
    entry.set("limit", Json::of(p.limit));
    entry.set("from", Json::of(p.from));
    return entry;
  };
  if (!plan.predictable) return tree;
  if (plan.stream) {
    const auto streamed = [&](const StreamPrediction& p, double value, const char* name) {
      Json entry = Json::object();
      entry.set(name, Json::of(value));
      entry.set("hit_ratio", Json::of(p.hit_ratio));
      entry.set(plan.stream->over_bus ? "bus_bytes" : "disk_bytes", Json::of(p.disk_bytes));
      entry.set("wait_seconds", Json::of(p.wait_seconds));
      entry.set("from", Json::of(plan.stream->from));
      return entry;
    };
    const StreamPlan& s = *plan.stream;
    tree.set(s.over_bus ? "host_link_bytes_per_s" : "disk_bytes_per_s", Json::of(s.hardware.disk_bytes_per_second));
    tree.set("resident_limit_bytes", Json::of(s.hardware.limit_bytes));
    tree.set("page_cache_bytes", Json::of(s.hardware.page_cache_bytes));
    tree.set("first_token", streamed(s.prompt, s.prompt.seconds, "seconds"));
    tree.set("one_user", streamed(s.one, 1 / s.one.seconds, "tokens_per_s"));
    tree.set("all_users", streamed(s.all, double(plan.sequences) / s.all.seconds, "tokens_per_s"));
    return tree;
  }
  tree.set("first_token", prediction(plan.first_token, plan.first_token.seconds, "seconds"));
  tree.set("one_user", prediction(plan.step, 1 / plan.step.seconds, "tokens_per_s"));
  tree.set("all_users", prediction(plan.step, double(plan.sequences) / plan.step.seconds, "tokens_per_s"));
  return tree;
}

Result<int> list_hardware(bool json) {
  Table table({{"name"},
               {"memory", Table::Side::right},
               {"bandwidth", Table::Side::right},
               {"FP8", Table::Side::right},
               {"BF16", Table::Side::right},
               {"link", Table::Side::right}});
  std::string lines;
  for (const MachineFile& file : machine_files()) {
    const auto h = parse_hardware(file.text, std::string(file.name));
    if (!h) return h.error();
    const auto rate = [](double value) { return size_text(int64_t(value)) + "/s"; };
    table.add({h->name, size_text(h->memory_bytes), rate(h->bytes_per_second), brief(h->flops_fp8 / 1e12) + " TFLOP/s",
               brief(h->flops_bf16 / 1e12) + " TFLOP/s",
               h->link_bytes_per_second > 0 ? rate(h->link_bytes_per_second) : "-"});
    Json tree = Json::object();
    tree.set("name", Json::of(h->name));
    tree.set("memory_bytes", Json::of(h->memory_bytes));
    tree.set("bytes_per_second", Json::of(h->bytes_per_second));
    tree.set("flops_fp8", Json::of(h->flops_fp8));
    tree.set("flops_bf16", Json::of(h->flops_bf16));
    tree.set("link_bytes_per_second", Json::of(h->link_bytes_per_second));
    lines += to_string(tree) + "\n";
  }
  if (auto printed = print(json ? lines : table.text()); !printed) return printed.error();
  return kDone;
}

Result<int> run_plan(const Settings& s, const Common& common) {
  if (!s.gpus.empty() && !s.hardware.empty()) {
    return Error{ErrorCode::usage, "--gpus and --hardware exclude each other", "--gpus", "pass one of them"};
  }
  if (s.list) return list_hardware(common.json);
  if (auto right = check_stream_options(s.engine); !right) return right.error();
  const auto plan = make_plan(s, common);
  if (!plan) return plan.error();
  if (auto printed = print(common.json ? to_string(json_of(*plan)) + "\n" : text_of(*plan)); !printed) {
    return printed.error();
  }
  if (!plan->host_fits()) {
    return Error{ErrorCode::out_of_memory,
                 "weights in host memory take " + with_commas(plan->host_bytes * plan->hardware.devices) +
                     " bytes of " + with_commas(plan->hardware.host_memory_bytes) + ", of which 15/16 may hold weights",
                 plan->hardware.name, "use a machine with more memory, or leave Engram tables on disk (--engram disk)"};
  }
  if (plan->demand.free_bytes < 0) {
    std::string remedy =
        "no context fits; use more devices, lower --step-rows, or put experts elsewhere (--experts ram)";
    if (plan->context_of_one > 0) {
      remedy = "fewer sequences fit: one with a context of up to " + with_commas(plan->context_of_one) + " tokens";
    } else if (plan->weights_mapped) {
      remedy =
          "no context fits; weights are mapped, so the model runs, but reads them from disk for every token (--experts "
          "disk plans for that)";
    }
    return Error{ErrorCode::out_of_memory,
                 "weights, what steps compute in, and reserve take " + with_commas(plan->device_bytes) + " bytes of " +
                     with_commas(plan->limit_bytes),
                 plan->hardware.name, remedy};
  }
  if (auto fits = check_fit(plan->demand, plan->fit); !fits) return fits.error();
  return kDone;
}

}  // namespace

Command plan_command() {
  const auto s = std::make_shared<Settings>();
  const std::string on = "On what";
  std::vector<Option> options = {
      {.name = "gpus",
       .value = "NxNAME",
       .help = "so many devices of a known kind, such as 4xH200",
       .fallback = "this machine",
       .group = on,
       .target = &s->gpus},
      {.name = "hardware",
       .value = "FILE.toml",
       .help = "a machine of your own; bench/machines has examples",
       .group = on,
       .target = &s->hardware},
      {.name = "list", .help = "the known kinds", .group = on, .target = &s->list},
  };
  for (Option& option : engine_options(s->engine)) {
    if (option.name == "context") option.fallback = "the model's";
    if (option.name == "sequences") {
      option.help = "answers at the same time, of all devices";
      option.fallback = "64; this machine: 16";
      option.most = 1e7;
    }
    if (option.name == "memory-limit") {
      option.help = "most that a device may give, e.g. 80GiB";
      option.fallback = "all it has";
    }
    options.push_back(std::move(option));
  }
  return {.name = "plan",
          .summary = "memory and speed on given hardware, before loading",
          .example = "fathom plan --model DIR --gpus 4xH200 --context 131072",
          .note = "exit 4: does not fit",
          .options = std::move(options),
          .run = [s](const Common& common) { return run_plan(*s, common); }};
}

}  // namespace fathom::cli
