#include "fathom/engine/simulated_machine.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "fathom/model/memory_plan.h"
#include "fathom/model/tensor_list.h"

namespace fathom {
namespace {

// Linear between the curve's points; before the first its value; beyond the last by the slope of the last two.
double at(const CostCurve& curve, double x) {
  if (curve.empty()) return 0;
  if (x <= curve.front().rows || curve.size() == 1) return curve.front().milliseconds;
  size_t above = 1;
  if (x >= curve.back().rows) {
    above = curve.size() - 1;
  } else {
    above = size_t(std::upper_bound(curve.begin(), curve.end(), x,
                                    [](double rows, const CostPoint& point) { return rows < double(point.rows); }) -
                   curve.begin());
  }
  const CostPoint &a = curve[above - 1], &b = curve[above];
  return a.milliseconds + (b.milliseconds - a.milliseconds) * (x - a.rows) / double(b.rows - a.rows);
}

ContextCost at(const std::vector<ContextCost>& contexts, int64_t tokens) {
  if (contexts.empty()) return {};
  const auto above = std::upper_bound(contexts.begin(), contexts.end(), tokens,
                                      [](int64_t wanted, const ContextCost& one) { return wanted < one.tokens; });
  if (above == contexts.begin()) return contexts.front();
  if (above == contexts.end()) return contexts.back();
  const ContextCost &a = *(above - 1), &b = *above;
  const double part = double(tokens - a.tokens) / double(b.tokens - a.tokens);
  const auto between = [&](double from, double to) { return from + part * (to - from); };
  return {tokens, between(a.read_ms, b.read_ms), between(a.row_ms, b.row_ms),
          between(a.prompt_row_ms, b.prompt_row_ms)};
}

/// What one round of drafts reads and computes, of all stages.
struct DraftSize {
  double shared_bytes = 0, expert_bytes = 0;  // expert_bytes: of one expert of one stage
  double row_flops = 0, round_flops = 0;      // of each draft, and of the round
};

DraftSize draft_size(const ModelConfig& config) {
  DraftSize size;
  double expert_parameters = 0;
  int64_t experts = 0;
  for (const TensorSpec& tensor : tensor_list(config)) {
    const WeightGroup group = group_of(tensor.name);
    if (group != WeightGroup::dspark && group != WeightGroup::head) continue;
    if (tensor.name.find("markov_head.embed") != std::string::npos) continue;  // a few rows of it
    const bool scales = tensor.dtype == DType::f8_e8m0 || tensor.shape.rank() < 2;
    const double parameters = scales ? 0 : double(tensor.shape.elements()) * (tensor.dtype == DType::i8 ? 2 : 1);
    if (tensor.name.find(".ffn.experts.") != std::string::npos) {
      size.expert_bytes += double(tensor.bytes());
      expert_parameters += parameters;
      ++experts;
      continue;
    }
    size.shared_bytes += double(tensor.bytes());
    (tensor.name.find("main_proj") != std::string::npos ? size.round_flops : size.row_flops) += 2 * parameters;
  }
  if (experts == 0) return size;
  const double stored = double(config.num_nextn_predict_layers) * config.dspark_n_routed_experts;
  size.expert_bytes /= stored;
  size.row_flops += 2 * expert_parameters * config.dspark_num_experts_per_tok / config.dspark_n_routed_experts;
  return size;
}

double draft_experts(const ModelConfig& config, double rows) {
  const double share = double(config.dspark_num_experts_per_tok) / config.dspark_n_routed_experts;
  return config.dspark_n_routed_experts * (1 - std::pow(1 - share, rows));
}

/// Reads one value of a machine file; the first thing that is wrong is kept.
class FieldReader {
 public:
  FieldReader(const Json& json, const std::string& where) : json_(json), where_(where) {}

  void number(const char* key, double& out) {
    const Json* value = take(key);
    if (value == nullptr) return;
    const auto number = value->as_double();
    if (!number || !std::isfinite(*number) || *number < 0) return fail(key, "is no number of at least 0");
    out = *number;
  }
  template <class Integer>
  void integer(const char* key, int64_t most, Integer& out) {
    const Json* value = take(key);
    if (value == nullptr) return;
    const auto number = value->as_int64();
    if (!number || *number < 0 || *number > most) {
      return fail(key, "is no integer from 0 to " + std::to_string(most));
    }
    out = Integer(*number);
  }
  void text(const char* key, std::string& out) {
    const Json* value = take(key);
    if (value == nullptr) return;
    if (!value->is_string()) return fail(key, "is no text");
    out = value->text;
  }
  void truth(const char* key, bool& out) {
    const Json* value = take(key);
    if (value == nullptr) return;
    const auto truth = value->as_bool();
    if (!truth) return fail(key, "is neither true nor false");
    out = *truth;
  }
  /// A list of lists of `columns` numbers of at least 0 whose first ones are integers and rise.
  std::vector<std::vector<double>> table(const char* key, size_t columns) {
    const Json* value = take(key);
    std::vector<std::vector<double>> out;
    if (value == nullptr) return out;
    const auto bad = [&] {
      fail(key, "is no list of lists of " + std::to_string(columns) + " numbers whose first ones rise");
      return std::vector<std::vector<double>>{};
    };
    if (!value->is_array() || value->items.empty()) return bad();
    for (const Json& row : value->items) {
      if (row.items.size() != columns) return bad();
      std::vector<double> numbers;
      for (const Json& item : row.items) {
        const auto number = item.as_double();
        if (!number || !(*number >= 0 && *number <= 1e9)) return bad();
        numbers.push_back(*number);
      }
      if (numbers[0] != std::floor(numbers[0]) || (!out.empty() && numbers[0] <= out.back()[0])) return bad();
      out.push_back(std::move(numbers));
    }
    return out;
  }
  std::optional<Error> finish() {
    for (const auto& [key, value] : json_.fields) {
      if (std::find(taken_.begin(), taken_.end(), key) == taken_.end()) fail(key, "is unknown");
    }
    return error_;
  }
  void fail(const std::string& key, const std::string& what) {
    if (!error_) {
      error_ = Error{ErrorCode::bad_input, to_string(Json::of(key)) + " " + what, where_,
                     "see docs/formats/machine-cost.md"};
    }
  }

 private:
  const Json* take(const char* key) {
    taken_.push_back(key);
    return json_.find(key);
  }
  const Json& json_;
  std::string where_;
  std::vector<std::string> taken_;
  std::optional<Error> error_;
};

CostCurve curve_of(const std::vector<std::vector<double>>& table) {
  CostCurve out;
  for (const auto& row : table) out.push_back({int(row[0]), row[1]});
  return out;
}

Json table_of(const CostCurve& curve) {
  Json out = Json::array();
  for (const CostPoint& point : curve) {
    out.push(Json::array().push(Json::of(point.rows)).push(Json::of(point.milliseconds)));
  }
  return out;
}

}  // namespace

void add_decode(SimulatedStep& work, const MachineCost& machine, int64_t context, int rows) {
  const ContextCost cost = at(machine.contexts, context);
  work.decode_rows += rows;
  work.read_ms += cost.read_ms;  // the rows of one sequence share the scan
  work.row_ms += rows * cost.row_ms;
  ++work.sequences;
}

void add_prompt(SimulatedStep& work, const MachineCost& machine, int64_t first, int rows, int decoder_rows) {
  const ContextCost cost = at(machine.contexts, first + rows / 2);
  work.prompt_rows += rows;
  work.decoder_prompt_rows += decoder_rows;
  work.row_ms += rows * cost.prompt_row_ms + decoder_rows * std::max(0.0, cost.row_ms - cost.prompt_row_ms);
}

int padded_rows(const MachineCost& machine, int rows) {
  const int step = machine.padded_to;
  if (step <= 0 || rows <= 0) return rows;
  if (rows < step) return std::min(int(std::bit_ceil(unsigned(rows))), step);
  return (rows + step - 1) / step * step;
}

double forward_ms(const MachineCost& machine, const SimulatedStep& work) {
  int64_t rows = machine.overlaps ? work.rows() : work.decode_rows;
  double arithmetic = work.row_ms;
  if (work.prompt_rows == 0) {
    const int padded = padded_rows(machine, int(rows));
    arithmetic += double(padded - rows) * at(machine.contexts, 0).row_ms;
    rows = padded;
  }
  const double reading = (rows > 0 ? at(machine.weights, double(rows)) : 0) + work.read_ms;
  return machine.overlaps ? std::max(reading, arithmetic) : reading + arithmetic;
}

double draft_ms(const MachineCost& machine, int sequences) { return sequences > 0 ? at(machine.draft, sequences) : 0; }

double host_ms(const MachineCost& machine, int sequences) {
  return machine.host_ms + machine.host_sequence_ms * sequences;
}

CostCurve start_curve(const MachineCost& machine, int most_rows) {
  std::vector<int> sizes;
  const int step = machine.padded_to;
  for (int rows = 1; rows < most_rows;) {
    sizes.push_back(rows);
    rows = step <= 0 ? rows + std::max(1, rows / 8) : padded_rows(machine, rows + 1);
  }
  sizes.push_back(padded_rows(machine, std::max(most_rows, 1)));
  const auto curve = measure_cost_curve(sizes, [&](int rows) -> Result<double> {
    SimulatedStep work;
    add_decode(work, machine, 0, rows);
    return forward_ms(machine, work);
  });
  check(curve.ok(), "a simulated machine has positive times");
  return *curve;
}

Result<MachineCost> machine_cost(const ModelConfig& config, const Hardware& hardware) {
  const double devices = hardware.devices;
  const auto read_ms = [&](double everywhere, double spread) {
    return 1000 * (everywhere + spread / devices) / hardware.bytes_per_second;
  };
  const auto compute_ms = [&](double low_precision, double bf16) {
    return 1000 * (low_precision / hardware.flops_fp8 + bf16 / hardware.flops_bf16) / devices;
  };
  MachineCost machine;
  machine.name = (hardware.devices > 1 ? std::to_string(hardware.devices) + "x" : "") + hardware.name;
  machine.from = hardware.bandwidth_from;
  machine.step_ms = 0.1;  // the gap that R-12 allows
  const StepBytes one = decode_bytes(config, 1, 0, 1);
  const double expert_bytes = one.experts / distinct_experts(config, 1);
  for (int rows = 1; rows <= 16'384; rows += std::max(1, rows / 4)) {
    machine.weights.push_back({rows, read_ms(one.shared, expert_bytes * distinct_experts(config, rows))});
  }
  // Between these every formula of memory.md 5 and 6 is linear in the context of a layer of ratio 1 or 2.
  for (const int64_t tokens :
       {int64_t(1), config.sliding_window, config.index_topk, 2 * config.index_topk,
        config.candidate_topk_blocks * config.candidate_block_size, int64_t(config.max_position_embeddings)}) {
    if (!machine.contexts.empty() && tokens <= machine.contexts.back().tokens) continue;
    const TokenFlops row = decode_flops(config, tokens);
    // prefill_flops is the average over a prompt: its middle is this position.
    const TokenFlops prompt = prefill_flops(config, 2 * tokens);
    const double cache = decode_bytes(config, 1, 1, tokens).cache;
    machine.contexts.push_back({tokens, read_ms(0, cache), compute_ms(row.linear, row.attention + row.index),
                                compute_ms(prompt.linear, prompt.attention + prompt.index)});
  }
  const int block = config.num_nextn_predict_layers > 0 ? config.dspark_block_size : 0;
  if (block > 0) {
    const DraftSize draft = draft_size(config);
    for (int sequences = 1; sequences <= 16'384; sequences += std::max(1, sequences / 4)) {
      const double experts = config.num_nextn_predict_layers * draft_experts(config, double(block) * sequences);
      const double reading = read_ms(draft.shared_bytes, draft.expert_bytes * experts);
      const double flops = sequences * (block * draft.row_flops + draft.round_flops);
      machine.draft.push_back({sequences, std::max(reading, compute_ms(flops, 0))});
    }
  }
  WeightPlacement placement;
  placement.vision_on_device = false;
  placement.expert_ranks = hardware.devices;
  const int64_t weights = device_weight_bytes(config, placement);
  constexpr int kSequences = 256;
  constexpr int64_t kStepRows = 2048, kContext = 131'072;
  const int64_t scratch = activation_bytes(config, kStepRows + int64_t(kSequences) * (block + 1),
                                           std::min<int64_t>(kContext, config.max_position_embeddings));
  const CacheLayout layout = cache_sizes(config).layout;
  const int64_t usable = hardware.memory_bytes - hardware.memory_bytes / 50 - weights - scratch;
  const int64_t blocks = (usable - kSequences * layout.slot_bytes) / layout.block_bytes * hardware.devices;
  if (usable <= 0 || blocks <= 0) {
    return Error{ErrorCode::out_of_memory,
                 "weights of " + std::to_string(weights) + " bytes a device leave no room for caches", machine.name,
                 "name more devices, such as 8xH200; fathom plan shows what fits"};
  }
  machine.blocks = int32_t(std::min<int64_t>(blocks, 1 << 30));
  machine.sequences = kSequences * hardware.devices;
  machine.devices = hardware.devices;
  return machine;
}

Result<MachineCost> parse_machine_cost(std::string_view json, const std::string& where) {
  const auto tree = parse_json(json, where, {.bytes = int64_t(64) << 20, .depth = 8});
  if (!tree) return tree.error();
  if (!tree->is_object()) {
    return Error{ErrorCode::bad_input, "the file is no object", where, "see docs/formats/machine-cost.md"};
  }
  FieldReader read(*tree, where);
  MachineCost machine;
  machine.from = "measured";
  read.text("name", machine.name);
  read.text("from", machine.from);
  machine.weights = curve_of(read.table("weights", 2));
  for (const auto& row : read.table("contexts", 4)) {
    machine.contexts.push_back({int64_t(row[0]), row[1], row[2], row[3]});
  }
  machine.draft = curve_of(read.table("draft", 2));
  read.number("step_ms", machine.step_ms);
  read.number("host_ms", machine.host_ms);
  read.number("host_sequence_ms", machine.host_sequence_ms);
  read.truth("overlaps", machine.overlaps);
  read.integer("padded_to", 1024, machine.padded_to);
  read.integer("blocks", 1 << 30, machine.blocks);
  read.integer("sequences", 65'536, machine.sequences);
  read.integer("devices", 4096, machine.devices);
  if (machine.name.empty()) machine.name = where;
  if (machine.weights.empty()) read.fail("weights", "is missing");
  if (!machine.weights.empty() && (machine.weights[0].rows < 1 || machine.weights[0].milliseconds <= 0)) {
    read.fail("weights", "begins with no positive rows and time");
  }
  for (size_t i = 1; i < machine.weights.size(); ++i) {
    if (machine.weights[i].milliseconds < machine.weights[i - 1].milliseconds) {
      read.fail("weights", "has a time that falls with more rows");
    }
  }
  if (machine.sequences < 1) read.fail("sequences", "is 0");
  if (machine.devices < 1) read.fail("devices", "is 0");
  if (auto error = read.finish()) return *error;
  return machine;
}

Json to_json(const MachineCost& machine) {
  Json out = Json::object();
  out.set("name", Json::of(machine.name));
  out.set("from", Json::of(machine.from));
  out.set("weights", table_of(machine.weights));
  if (!machine.contexts.empty()) {
    Json contexts = Json::array();
    for (const ContextCost& cost : machine.contexts) {
      Json row = Json::array();
      row.push(Json::of(cost.tokens));
      for (const double value : {cost.read_ms, cost.row_ms, cost.prompt_row_ms}) row.push(Json::of(value));
      contexts.push(std::move(row));
    }
    out.set("contexts", std::move(contexts));
  }
  if (!machine.draft.empty()) out.set("draft", table_of(machine.draft));
  out.set("step_ms", Json::of(machine.step_ms));
  out.set("host_ms", Json::of(machine.host_ms));
  out.set("host_sequence_ms", Json::of(machine.host_sequence_ms));
  out.set("overlaps", Json::of(machine.overlaps));
  out.set("padded_to", Json::of(machine.padded_to));
  out.set("blocks", Json::of(int64_t(machine.blocks)));
  out.set("sequences", Json::of(machine.sequences));
  out.set("devices", Json::of(machine.devices));
  return out;
}

}  // namespace fathom
