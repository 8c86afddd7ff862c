// fathom/cli/make_checkpoint.cpp
// `fathom make-checkpoint`: a synthetic checkpoint folder from a preset or a configuration (design/cli.md 6).
#include <memory>
#include <optional>

#include "fathom/base/mapped_file.h"
#include "fathom/cli/interrupt.h"
#include "fathom/cli/program.h"
#include "fathom/cli/terminal.h"
#include "fathom/model/make_checkpoint.h"
#include "fathom/model/presets.h"
#include "fathom/model/tensor_list.h"

namespace fathom::cli {
namespace {

struct Settings {
  std::string preset, out, model_config;
  std::optional<std::string> layers;
  std::optional<int64_t> experts, engram_vocab, rank, ranks;
  int64_t seed = 0;
};

Error needs_preset(const char* option, const char* preset) {
  return Error{ErrorCode::usage, std::string(option) + " belongs to --preset " + preset, option,
               "leave it out, or choose that preset"};
}

/// The configuration that was asked for, from --preset or --model-config.
Result<ModelConfig> wanted_config(const Settings& s) {
  if (s.preset.empty() == s.model_config.empty()) {
    return Error{ErrorCode::usage,
                 s.preset.empty() ? "neither --preset nor --model-config" : "both --preset and --model-config",
                 "fathom make-checkpoint", "pass one of them"};
  }
  const bool slice = s.preset == "flash-slice", rank = s.preset == "flash-rank";
  if (s.layers && !slice) return needs_preset("--layers", "flash-slice");
  if (s.experts && !slice) return needs_preset("--experts", "flash-slice");
  if (s.engram_vocab && !slice && !rank) return needs_preset("--engram-vocab", "flash-slice or flash-rank");
  if (s.rank && !rank) return needs_preset("--rank", "flash-rank");
  if (s.ranks && !rank) return needs_preset("--ep", "flash-rank");
  if (!s.model_config.empty()) {
    const auto text = read_file(s.model_config, int64_t(16) << 20);
    if (!text) return text.error();
    const auto tree = parse_json(*text, s.model_config);
    if (!tree) return tree.error();
    auto config = parse_model_config(*tree, s.model_config);
    if (config || config.error().code != ErrorCode::unsupported) return config;
    Error error = config.error();
    error.code = ErrorCode::bad_input;
    return error;
  }
  PresetOptions options;
  if (s.layers) {
    if (auto parsed = parse_layers(*s.layers, options); !parsed) return parsed.error();
  }
  options.experts = int(s.experts.value_or(options.experts));
  options.engram_vocab = s.engram_vocab.value_or(options.engram_vocab);
  options.rank = int(s.rank.value_or(options.rank));
  options.ranks = int(s.ranks.value_or(options.ranks));
  return preset_config(s.preset, options);
}

Result<int> run_make_checkpoint(const Settings& s, const Common& common) {
  if (s.out.empty()) {
    return Error{ErrorCode::usage, "no folder to write to", "fathom make-checkpoint", "pass --out DIR"};
  }
  const auto config = wanted_config(s);
  if (!config) return config.error();
  const bool holes = s.preset == "flash-sparse";
  const InterruptScope scope;
  ThreadPool pool(int(common.threads.value_or(usable_cpus())));
  {
    std::optional<Progress> progress;  // it learns the total when the first bytes are written
    const auto written =
        make_checkpoint(s.out, *config, {uint64_t(s.seed), holes}, pool, [&](int64_t done, int64_t all) {
          if (!progress) progress.emplace("writing", "bytes", all);
          progress->update(done);
          return !interrupted();
        });
    progress.reset();
    if (!written) {
      Error error = written.error();
      if (error.code == ErrorCode::interrupted) error.remedy = "remove the folder and start again";
      return error;
    }
  }
  const auto tensors = tensor_list(*config);
  int64_t bytes = 0;
  for (const TensorSpec& tensor : tensors) bytes += tensor.bytes();
  std::string out;
  if (common.json) {
    Json tree = Json::object();
    tree.set("folder", Json::of(s.out));
    tree.set("tensors", Json::of(int64_t(tensors.size())));
    tree.set("bytes", Json::of(bytes));
    tree.set("files", Json::of(int64_t(shard_plan(*config).size())));
    tree.set("holes", Json::of(holes));
    out = to_string(tree) + "\n";
  } else {
    out = s.out + ": " + with_commas(int64_t(tensors.size())) + " tensors, " + with_commas(bytes) +
          " bytes of weights" + (holes ? " as holes that read as zero" : "") +
          "; look at it with fathom inspect --model " + s.out + "\n";
  }
  if (auto printed = print(out); !printed) return printed.error();
  return kDone;
}

}  // namespace

Command make_checkpoint_command() {
  const auto s = std::make_shared<Settings>();
  const std::string what = "What to make", slice = "Parts of Flash", where = "Where";
  return {.name = "make-checkpoint",
          .summary = "write a checkpoint folder with random weights",
          .example = "fathom make-checkpoint --preset tiny --out ./tiny",
          .note = "then: --model ./tiny",
          .options = {{.name = "preset",
                       .value = "NAME",
                       .help = "tiny (golden configuration), mini-random (shape of the miniature), flash-slice (real "
                               "widths, fewer layers), flash-sparse (all of Flash, as holes), flash-rank (one rank's "
                               "experts)",
                       .group = what,
                       .target = &s->preset,
                       .choices = preset_names()},
                      {.name = "model-config",
                       .value = "FILE",
                       .help = "a config.json instead of a preset",
                       .group = what,
                       .target = &s->model_config},
                      {.name = "seed",
                       .value = "N",
                       .help = "same seed, same bytes, on every machine",
                       .fallback = "0",
                       .group = what,
                       .target = &s->seed,
                       .least = 0},
                      {.name = "layers",
                       .value = "E+D",
                       .help = "flash-slice: encoder and decoder layers",
                       .fallback = "4+4",
                       .group = slice,
                       .target = &s->layers},
                      {.name = "experts",
                       .value = "N",
                       .help = "flash-slice: routed experts of a layer",
                       .fallback = "16",
                       .group = slice,
                       .target = &s->experts,
                       .least = 1,
                       .most = 384},
                      {.name = "engram-vocab",
                       .value = "N",
                       .help = "flash-slice, flash-rank: size of an n-gram table's head",
                       .fallback = "16000",
                       .group = slice,
                       .target = &s->engram_vocab,
                       .least = 1,
                       .most = 1e9},
                      {.name = "rank",
                       .value = "R",
                       .help = "flash-rank: whose experts",
                       .fallback = "0",
                       .group = slice,
                       .target = &s->rank,
                       .least = 0,
                       .most = 383},
                      {.name = "ep",
                       .value = "N",
                       .help = "flash-rank: of how many ranks",
                       .fallback = "64",
                       .group = slice,
                       .target = &s->ranks,
                       .least = 1,
                       .most = 384},
                      {.name = "out",
                       .value = "DIR",
                       .help = "a folder that is empty or does not exist yet",
                       .group = where,
                       .target = &s->out}},
          .run = [s](const Common& common) { return run_make_checkpoint(*s, common); }};
}

}  // namespace fathom::cli
