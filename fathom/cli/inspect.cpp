// fathom/cli/inspect.cpp
// `fathom inspect`: what a checkpoint is, from its headers (design/cli.md 5). What is known is fathom/model/inspect.h;
// this file prints it.
#include <algorithm>
#include <atomic>
#include <memory>

#include "fathom/base/json.h"
#include "fathom/base/sha256.h"
#include "fathom/checkpoint/embedded_model.h"
#include "fathom/cli/interrupt.h"
#include "fathom/cli/loaded_model.h"
#include "fathom/cli/option_value.h"
#include "fathom/cli/program.h"
#include "fathom/cli/terminal.h"
#include "fathom/model/inspect.h"

namespace fathom::cli {
namespace {

struct Settings {
  std::vector<std::string> words;  // of --tensors: GLOB
  bool config = false, plan = false, tensors = false, problems = false, checksum = false;
};

/// All that one run looks at.
struct Subject {
  MemoryCheckpoint memory;  // of synthetic:PRESET, which `checkpoint` reads; declared first, so it dies last
  std::string name;
  Checkpoint checkpoint;
  ModelConfig config;
  std::vector<std::string> warnings;
  std::vector<Error> problems;
};

/// `data`: whether somebody will read the weights of a synthetic model.
Result<Subject> open_subject(const Common& common, WeightData data) {
  if (is_synthetic(common.model)) {
    auto model = load_model(common, data);
    if (!model) return model.error();
    OpenedModel& opened = model->opened;
    return Subject{std::move(model->memory), std::move(model->name),     std::move(opened.checkpoint),
                   std::move(opened.config), std::move(opened.warnings), {}};
  }
  std::vector<Error> file_problems;
  const bool embedded = common.model.empty();
  if (!embedded) {  // no folder, or a checkpoint of another model: nothing else can be said of it
    if (const auto json = Checkpoint::read_config(common.model); !json) return json.error();
  }
  Checkpoint checkpoint = embedded ? Checkpoint::open_partly(embedded_model(), file_problems)
                                   : Checkpoint::open_partly(common.model, file_problems);
  ConfigReading reading = read_model_config(checkpoint.config(), checkpoint.path_of("config.json"));
  if (!reading.problems.empty()) {
    Error error = reading.problems.front();
    if (error.code == ErrorCode::unsupported) error.code = ErrorCode::bad_input;
    if (reading.problems.size() > 1) {
      error.remedy += " (and " + std::to_string(reading.problems.size() - 1) + " more in this file)";
    }
    return error;
  }
  std::vector<std::string> warnings = std::move(reading.warnings);
  warnings.insert(warnings.end(), checkpoint.warnings().begin(), checkpoint.warnings().end());
  std::vector<Error> problems = std::move(file_problems);
  for (Error& error : compare(checkpoint, tensor_list(reading.config))) problems.push_back(std::move(error));
  return Subject{{},
                 embedded ? "the embedded miniature" : common.model,
                 std::move(checkpoint),
                 std::move(reading.config),
                 std::move(warnings),
                 std::move(problems)};
}

/// One line of a JSON tree: "rope_scaling.factor  16".
void flatten(const Json& value, const std::string& name, std::vector<std::pair<std::string, std::string>>& out) {
  if (value.is_object()) {
    for (const auto& [key, inner] : value.fields) flatten(inner, name.empty() ? key : name + "." + key, out);
    return;
  }
  if (!value.is_array()) {
    out.emplace_back(name, value.is_string() ? value.text : to_string(value));
    return;
  }
  // Runs of equal numbers are shorter and easier to check: "0 x 2, 2 x 18, 1 x 20".
  std::string text;
  for (size_t i = 0; i < value.items.size();) {
    size_t end = i;
    while (end < value.items.size() && value.items[end] == value.items[i]) ++end;
    text += (text.empty() ? "" : ", ") + to_string(value.items[i]);
    if (end - i > 1) text += " x " + std::to_string(end - i);
    i = end;
  }
  out.emplace_back(name, text.empty() ? "none" : text);
}

std::string config_section(const ModelConfig& config) {
  Table values({{"config.json"}, {"value"}});
  std::vector<std::pair<std::string, std::string>> lines;
  flatten(to_json(config), "", lines);
  for (auto& [name, value] : lines) values.add({name, value});
  const Derived d = derived_values(config);
  Table derived({{"derived"}, {"value"}});
  derived.add({"encoder, decoder, draft layers", std::to_string(d.encoder_layers) + ", " +
                                                     std::to_string(d.decoder_layers) + ", " +
                                                     std::to_string(d.draft_stages)});
  derived.add({"Engram rows a token and layer", std::to_string(d.engram_lookups)});
  derived.add({"cache bytes a token", brief(d.cache_bytes_per_token)});
  derived.add({"cache block of 128 tokens", with_commas(d.block_bytes) + " bytes"});
  derived.add({"state slot of a sequence", with_commas(d.slot_bytes) + " bytes"});
  return values.text() + "\n" + derived.text();
}

std::string source_text(int source, int layer) {
  if (source < 0) return "-";
  return source == layer ? "own" : std::to_string(source);
}

/// The one list of what a row of the plan says beside its numbers.
std::string notes_of(const LayerPlan& row) {
  std::vector<std::string> notes;
  if (row.engram) notes.emplace_back("Engram");
  if (row.candidate_source) notes.emplace_back("keeps candidates");
  if (row.in_candidates) notes.emplace_back("scores candidates");
  if (row.draft_input) notes.emplace_back("feeds drafts");
  return notes.empty() ? "" : joined(notes, "and");
}

std::string plan_section(const ModelConfig& config) {
  using Side = Table::Side;
  Table table({{"layer", Side::right},
               {"half"},
               {"attention"},
               {"ratio", Side::right},
               {"cache of", Side::right},
               {"selection of", Side::right},
               {"experts", Side::right},
               {"notes"}});
  const auto plan = plan_layers(config);
  for (size_t i = 0; i < plan.size(); ++i) {
    const LayerPlan& row = plan[i];
    const int layer = int(i);
    table.add({std::to_string(layer),
               row.draft     ? "draft"
               : row.decoder ? "decoder"
                             : "encoder",
               name_of(row.mode), row.ratio == 0 ? "-" : std::to_string(row.ratio), source_text(row.kv_source, layer),
               source_text(row.index_source, layer),
               std::to_string(experts_per_token_of(config, layer)) + " of " + std::to_string(experts_of(config, layer)),
               notes_of(row)});
  }
  return table.text();
}

std::string totals_section(const Subject& subject) {
  using Side = Table::Side;
  const WeightTotals totals = weight_totals(subject.checkpoint);
  Table groups({{"weights"}, {"tensors", Side::right}, {"bytes", Side::right}, {"parameters", Side::right}});
  for (int g = 0; g < kWeightGroups; ++g) {
    const Totals& t = totals.of(WeightGroup(g));
    if (t.tensors == 0) continue;
    groups.add({name_of(WeightGroup(g)), with_commas(t.tensors), with_commas(t.bytes), with_commas(t.parameters)});
  }
  groups.add(
      {"total", with_commas(totals.all.tensors), with_commas(totals.all.bytes), with_commas(totals.all.parameters)});
  Table dtypes({{"dtype"}, {"tensors", Side::right}, {"bytes", Side::right}});
  for (const auto& [dtype, t] : totals.dtypes) {
    dtypes.add({name_of(dtype), with_commas(t.tensors), with_commas(t.bytes)});
  }
  std::string out = groups.text() + "\n" + dtypes.text();
  if (const int64_t odd = unaligned_tensors(subject.checkpoint); odd > 0) {
    out += "\n" + with_commas(odd) + " tensors are not aligned to their element; they are copied when bound\n";
  }
  return out;
}

std::string tensors_section(const Subject& subject, const std::string& glob) {
  using Side = Table::Side;
  Table table({{"tensor"}, {"dtype"}, {"shape"}, {"file"}, {"offset", Side::right}, {"bytes", Side::right}});
  const auto found = find_tensors(subject.checkpoint, glob);
  for (const TensorInfo* tensor : found) {
    table.add({tensor->spec.name, name_of(tensor->spec.dtype), to_string(tensor->spec.shape),
               subject.checkpoint.shards()[size_t(tensor->shard)].file, with_commas(tensor->offset),
               with_commas(tensor->spec.bytes())});
  }
  if (found.empty()) return "no tensor matches " + glob + "\n";
  return table.text() + with_commas(int64_t(found.size())) + " tensors\n";
}

std::string problems_section(const Subject& subject) {
  std::string out;
  for (const std::string& warning : subject.warnings) out += "warning: " + warning + "\n";
  for (const Error& problem : subject.problems) out += "problem: " + to_string(problem) + "\n";
  if (subject.problems.empty()) return out + "no problems found\n";
  return out + with_commas(int64_t(subject.problems.size())) + " problems\n";
}

Json totals_json(const Totals& t) {
  Json tree = Json::object();
  tree.set("tensors", Json::of(t.tensors));
  tree.set("bytes", Json::of(t.bytes));
  tree.set("parameters", Json::of(t.parameters));
  return tree;
}

Json plan_json(const ModelConfig& config) {
  Json list = Json::array();
  const auto plan = plan_layers(config);
  for (size_t i = 0; i < plan.size(); ++i) {
    const LayerPlan& row = plan[i];
    Json entry = Json::object();
    entry.set("layer", Json::of(int64_t(i)));
    entry.set("half", Json::of(row.draft ? "draft" : row.decoder ? "decoder" : "encoder"));
    entry.set("mode", Json::of(name_of(row.mode)));
    entry.set("ratio", Json::of(row.ratio));
    entry.set("kv_source", row.kv_source < 0 ? Json{} : Json::of(row.kv_source));
    entry.set("index_source", row.index_source < 0 ? Json{} : Json::of(row.index_source));
    entry.set("engram", Json::of(row.engram));
    entry.set("candidate_source", Json::of(row.candidate_source));
    entry.set("in_candidates", Json::of(row.in_candidates));
    entry.set("draft_input", Json::of(row.draft_input));
    entry.set("experts", Json::of(experts_of(config, int(i))));
    entry.set("experts_per_token", Json::of(experts_per_token_of(config, int(i))));
    list.push(std::move(entry));
  }
  return list;
}

Json json_of(const Subject& subject, const Settings& s, bool all) {
  Json tree = Json::object();
  tree.set("model", Json::of(subject.name));
  if (all || s.config) {
    tree.set("config", to_json(subject.config));
    const Derived d = derived_values(subject.config);
    Json derived = Json::object();
    derived.set("encoder_layers", Json::of(d.encoder_layers));
    derived.set("decoder_layers", Json::of(d.decoder_layers));
    derived.set("draft_stages", Json::of(d.draft_stages));
    derived.set("engram_lookups", Json::of(d.engram_lookups));
    derived.set("cache_bytes_per_token", Json::of(d.cache_bytes_per_token));
    derived.set("block_bytes", Json::of(d.block_bytes));
    derived.set("slot_bytes", Json::of(d.slot_bytes));
    tree.set("derived", std::move(derived));
  }
  if (all || s.plan) tree.set("plan", plan_json(subject.config));
  if (all) {
    const WeightTotals totals = weight_totals(subject.checkpoint);
    Json sum = totals_json(totals.all);
    Json groups = Json::object();
    for (int g = 0; g < kWeightGroups; ++g) {
      if (totals.of(WeightGroup(g)).tensors > 0)
        groups.set(name_of(WeightGroup(g)), totals_json(totals.of(WeightGroup(g))));
    }
    Json dtypes = Json::object();
    for (const auto& [dtype, t] : totals.dtypes) dtypes.set(name_of(dtype), totals_json(t));
    sum.set("groups", std::move(groups));
    sum.set("dtypes", std::move(dtypes));
    tree.set("totals", std::move(sum));
  }
  if (s.tensors) {
    Json list = Json::array();
    for (const TensorInfo* tensor : find_tensors(subject.checkpoint, s.words.empty() ? "*" : s.words[0])) {
      Json entry = Json::object();
      entry.set("name", Json::of(tensor->spec.name));
      entry.set("dtype", Json::of(name_of(tensor->spec.dtype)));
      Json shape = Json::array();
      for (int64_t dim : tensor->spec.shape.dims()) shape.push(Json::of(dim));
      entry.set("shape", std::move(shape));
      entry.set("file", Json::of(subject.checkpoint.shards()[size_t(tensor->shard)].file));
      entry.set("offset", Json::of(tensor->offset));
      entry.set("bytes", Json::of(tensor->spec.bytes()));
      list.push(std::move(entry));
    }
    tree.set("tensors", std::move(list));
  }
  if (all || s.problems) {
    Json list = Json::array();
    for (const Error& problem : subject.problems) list.push(Json::of(to_string(problem)));
    tree.set("problems", std::move(list));
    Json warnings = Json::array();
    for (const std::string& warning : subject.warnings) warnings.push(Json::of(warning));
    tree.set("warnings", std::move(warnings));
  }
  return tree;
}

/// SHA-256 of every shard, the files spread over threads. Reads every byte.
Result<std::vector<std::string>> checksums(const Checkpoint& checkpoint, int threads) {
  const auto shards = checkpoint.shards();
  int64_t total = 0;
  for (const ShardInfo& shard : shards) total += int64_t(shard.bytes.size());
  const InterruptScope scope;
  Progress progress("reading", "bytes", total);
  ThreadPool pool(std::max(1, std::min(threads, int(shards.size()))));
  std::vector<std::string> sums(shards.size());
  std::atomic<int64_t> done{0};
  pool.run(int64_t(shards.size()), 1, [&](int64_t begin, int64_t end, int thread) {
    constexpr size_t kPiece = size_t(8) << 20;
    for (int64_t i = begin; i < end; ++i) {
      Sha256 hash;
      std::span<const uint8_t> bytes = shards[size_t(i)].bytes;
      while (!bytes.empty() && !interrupted()) {
        const size_t count = std::min(kPiece, bytes.size());
        hash.add(bytes.first(count));
        bytes = bytes.subspan(count);
        const int64_t so_far = done.fetch_add(int64_t(count)) + int64_t(count);
        if (thread == 0) progress.update(so_far);
      }
      sums[size_t(i)] = hex_text(hash.digest());
    }
  });
  progress.finish();
  if (interrupted()) return interrupted_error("--checksum", "run it again; nothing was written");
  return sums;
}

Result<int> run_inspect(const Settings& s, const Common& common) {
  if (!s.words.empty() && !s.tensors) {
    return Error{ErrorCode::usage, "unexpected argument \"" + s.words[0] + "\"", "fathom inspect",
                 "a pattern belongs to --tensors; the folder is named with --model DIR"};
  }
  if (s.words.size() > 1) {
    return Error{ErrorCode::usage, "more than one pattern", "--tensors", "pass one, in quotes, such as 'layers.2.*'"};
  }
  const auto subject = open_subject(common, s.checksum ? WeightData::filled : WeightData::declared);
  if (!subject) return subject.error();
  const bool all = !s.config && !s.plan && !s.tensors && !s.problems && !s.checksum;
  std::vector<std::string> sums;
  if (s.checksum) {
    auto read = checksums(subject->checkpoint, int(common.threads.value_or(usable_cpus())));
    if (!read) return read.error();
    sums = std::move(*read);
  }
  const auto shards = subject->checkpoint.shards();
  std::string out;
  if (common.json) {
    Json tree = json_of(*subject, s, all);
    if (s.checksum) {
      Json list = Json::array();
      for (size_t i = 0; i < shards.size(); ++i) {
        Json entry = Json::object();
        entry.set("file", Json::of(shards[i].file));
        entry.set("bytes", Json::of(int64_t(shards[i].bytes.size())));
        entry.set("sha256", Json::of(sums[i]));
        list.push(std::move(entry));
      }
      tree.set("checksums", std::move(list));
    }
    out = to_string(tree) + "\n";
  } else {
    std::vector<std::string> sections;
    if (all || s.config) sections.push_back(config_section(subject->config));
    if (all || s.plan) sections.push_back(plan_section(subject->config));
    if (all) sections.push_back(totals_section(*subject));
    if (s.tensors) sections.push_back(tensors_section(*subject, s.words.empty() ? "*" : s.words[0]));
    if (s.checksum) {
      std::string lines;  // the format of sha256sum, so that `sha256sum -c` reads it
      for (size_t i = 0; i < shards.size(); ++i) lines += sums[i] + "  " + shards[i].file + "\n";
      sections.push_back(lines);
    }
    if (all || s.problems || !subject->problems.empty()) sections.push_back(problems_section(*subject));
    if (all) out = subject->name + "\n\n";
    for (size_t i = 0; i < sections.size(); ++i) out += (i > 0 ? "\n" : "") + sections[i];
  }
  if (auto printed = print(out); !printed) return printed.error();
  return subject->problems.empty() ? kDone : kFailed;
}

}  // namespace

Command inspect_command() {
  const auto s = std::make_shared<Settings>();
  const std::string show = "What to show", read = "How much to read";
  return {.name = "inspect",
          .summary = "what a checkpoint is, from its headers alone",
          .example = "fathom inspect --model ./DeepSeek-V4.1-Flash --plan",
          .note = "under 1 s for 510 GB",
          .arguments = "[GLOB]",
          .options = {{.name = "config",
                       .help = "the configuration, and what follows from it",
                       .fallback = "all but tensors",
                       .group = show,
                       .target = &s->config},
                      {.name = "plan",
                       .help = "one row a layer: attention, ratio, sources, Engram, half",
                       .group = show,
                       .target = &s->plan},
                      {.name = "tensors",
                       .help = "name, dtype, shape, file, offset of those that match GLOB",
                       .fallback = "*",
                       .group = show,
                       .target = &s->tensors},
                      {.name = "problems",
                       .help = "everything that is wrong; exit 1 when something is",
                       .group = show,
                       .target = &s->problems},
                      {.name = "checksum",
                       .help = "SHA-256 of every weight file: reads all bytes",
                       .group = read,
                       .target = &s->checksum}},
          .positional = &s->words,
          .run = [s](const Common& common) { return run_inspect(*s, common); }};
}

}  // namespace fathom::cli
