#include "fathom/cli/synthetic_model.h"

#include <algorithm>
#include <map>
#include <optional>

#include "fathom/base/system_memory.h"
#include "fathom/base/thread_pool.h"
#include "fathom/cli/option_value.h"
#include "fathom/cli/terminal.h"
#include "fathom/model/make_checkpoint.h"
#include "fathom/model/presets.h"

namespace fathom::cli {
namespace {

constexpr std::string_view kPrefix = "synthetic:";

using Words = std::vector<std::string>;

const Words& keys_of(const std::string& preset) {
  static const Words slice = {"layers", "experts", "engram-vocab", "seed"},
                     rank = {"rank", "ep", "engram-vocab", "seed"}, sparse = {}, others = {"seed"};
  if (preset == "flash-slice") return slice;
  if (preset == "flash-rank") return rank;
  return preset == "flash-sparse" ? sparse : others;  // flash-sparse is all zeros
}

Error usage(std::string message, const std::string& model, std::string remedy) {
  return Error{ErrorCode::usage, std::move(message), "--model " + model, std::move(remedy)};
}

std::string with_closest(std::string remedy, const std::string& word, const Words& choices) {
  if (const auto near = closest(word, choices)) remedy += "; did you mean " + *near + "?";
  return remedy;
}

Result<int> small_number(const std::string& text, int least, int most, const std::string& key,
                         const std::string& model) {
  const auto value = parse_integer(text);
  if (!value || *value < least || *value > most) {
    return usage(key + " \"" + text + "\" is no number from " + with_commas(least) + " to " + with_commas(most), model,
                 "write it as in " + key + "=" + std::to_string(least));
  }
  return int(*value);
}

Result<void> set(const std::string& key, const std::string& text, const std::string& model, PresetOptions& options,
                 uint64_t& seed) {
  if (key == "layers") {
    auto parsed = parse_layers(text, options);
    if (!parsed) return usage(parsed.error().message, model, parsed.error().remedy);
    return {};
  }
  if (key == "seed") {
    const auto value = parse_integer(text);
    if (!value || *value < 0) return usage("seed \"" + text + "\" is no whole number", model, "write it as in seed=1");
    seed = uint64_t(*value);
    return {};
  }
  // The limits of make-checkpoint's options.
  const auto value = small_number(text, key == "rank" ? 0 : 1,
                                  key == "engram-vocab" ? 1'000'000'000
                                  : key == "rank"       ? 383
                                                        : 384,
                                  key, model);
  if (!value) return value.error();
  if (key == "experts") options.experts = *value;
  if (key == "engram-vocab") options.engram_vocab = *value;
  if (key == "rank") options.rank = *value;
  if (key == "ep") options.ranks = *value;
  return {};
}

}  // namespace

bool is_synthetic(const std::string& model) { return model.starts_with(kPrefix); }

Result<SyntheticModel> parse_synthetic(const std::string& model) {
  Words words = split(std::string_view(model).substr(kPrefix.size()), ',');
  const std::string preset = words.empty() ? "" : words[0];
  const Words& presets = preset_names();
  if (!std::count(presets.begin(), presets.end(), preset)) {
    return usage(preset.empty() ? "no preset named" : "no preset \"" + preset + "\"", model,
                 with_closest("use synthetic: with " + joined(presets), preset, presets));
  }
  const Words& keys = keys_of(preset);
  PresetOptions options;
  uint64_t seed = 0;
  Words given;
  for (size_t i = 1; i < words.size(); ++i) {
    const size_t equals = words[i].find('=');
    const std::string key = words[i].substr(0, equals);
    if (!std::count(keys.begin(), keys.end(), key)) {
      return usage("preset " + preset + " has no key \"" + key + "\"", model,
                   keys.empty() ? "it takes none" : with_closest("use " + joined(keys), key, keys));
    }
    if (equals == std::string::npos) return usage("no value after " + key, model, "write it as in " + key + "=1");
    if (std::count(given.begin(), given.end(), key)) return usage(key + " is given twice", model, "give it once");
    given.push_back(key);
    if (auto read = set(key, words[i].substr(equals + 1), model, options, seed); !read) return read.error();
  }
  auto config = preset_config(preset, options);
  if (!config) return usage(config.error().message, model, config.error().remedy);
  return SyntheticModel{model, preset, std::move(*config), seed};
}

Result<void> check_whole(const ModelConfig& config, const std::string& name) {
  const auto& share = config.expert_share;
  if (share.ranks <= 1) return {};
  return Error{ErrorCode::bad_input,
               "the model has only the experts of rank " + std::to_string(share.rank) + " of " +
                   std::to_string(share.ranks) + ", and this build runs whole models",
               name,
               "use flash-slice, which is whole; fathom bench prefill and decode, inspect, plan and doctor take this "
               "one too"};
}

Result<MemoryCheckpoint> make_in_memory(const SyntheticModel& model, WeightData data, const Common& common) {
  const bool declared = data == WeightData::declared;
  const int64_t free = available_memory_bytes();
  const int64_t most = free / 16 * 15;  // the rest is for cache and scratch
  if (const int64_t bytes = weight_bytes(model.config); !declared && bytes > most) {
    return Error{ErrorCode::out_of_memory,
                 "the weights take " + with_commas(bytes) + " bytes, " + with_commas(free) +
                     " bytes of memory are available and 15/16 of them may hold weights",
                 "--model " + model.name,
                 "use a smaller synthetic:flash-slice,layers=E+D,experts=N, write a folder with fathom make-checkpoint "
                 "and pass that (it is mapped), or ask fathom plan --model " +
                     model.name + " what it needs"};
  }
  // A filled flash-sparse is what its folder reads as: zeros.
  const MakeOptions options{model.seed, declared || model.preset == "flash-sparse"};
  ThreadPool pool(int(common.threads.value_or(usable_cpus())));
  std::optional<Progress> progress;
  return make_checkpoint_in_memory(model.config, options, most, pool, [&](int64_t done, int64_t all) {
    if (!progress) progress.emplace("making weights", "bytes", all);
    progress->update(done);
    return true;
  });
}

}  // namespace fathom::cli
