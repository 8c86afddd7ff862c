// fathom/cli/loaded_model.h
// What --model names, opened: checkpoint, tokenizer, and the map of ids that Engram hashes; then an engine over it.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fathom/cli/option.h"
#include "fathom/cli/synthetic_model.h"
#include "fathom/engine/engine.h"
#include "fathom/model/open_model.h"
#include "fathom/tokenizer/tokenizer.h"

namespace fathom::cli {

/// Moves; the checkpoint inside must outlive every engine that reads it.
struct LoadedModel {
  MemoryCheckpoint memory;  // of synthetic:PRESET, which `opened` reads; declared first, so it dies last
  OpenedModel opened;
  std::optional<Tokenizer> tokenizer;  // none: the folder has no tokenizer.json
  std::vector<int32_t> token_map;      // empty: no tokenizer and no engram_token_map.json
  // Set: the weights of `opened` are declared only; a device draws them (ModelOptions::draw_seed).
  std::optional<uint64_t> draw_seed;
  std::string name;  // for people: the folder, synthetic:..., or "the embedded miniature"
};

/// What --model names. Of a folder it reads headers, not weights; a synthetic model is made, with its weights when
/// `data` says so, and no device draws them itself. Errors: bad_input, corrupt, not_found; usage and out_of_memory for
/// a synthetic one. A checkpoint that this program does not support is bad_input here: it is the file that does not
/// fit, not the hardware.
Result<LoadedModel> load_model(const Common& common, WeightData data = WeightData::to_run);

/// The tokenizer of `path`, or of the model when it is empty.
Result<Tokenizer> load_tokenizer(const std::string& path, const Common& common);

/// The engine options of design/cli.md 1.
struct EngineSettings {
  std::optional<int64_t> context;
  std::optional<int64_t> sequences;
  int64_t step_rows = 2048;
  std::string step_policy = "mixed";
  std::string replay = "compact";
  std::optional<std::string> numerics;
  std::string sampling = "rejection";
  std::string drafts = "auto";
  bool batch_invariant = false;
  bool no_prefix_cache = false;
  std::string experts = "device";
  std::optional<std::string> engram;
  std::optional<Bytes> memory_limit, resident_limit;
  bool drop_behind = false;
  // Set by a server: what the engine tells of itself, besides events.
  Metrics* metrics = nullptr;
  Log* log = nullptr;
  bool step_log = false;
  double replay_sample = 0;
  std::string record;            // set by bench engine: a file of the scheduler's decisions
  bool synchronous = false;      // steps are planned one after the other on a device too
  bool schedule_drafts = false;  // set by commands that answer many at once: then `drafts` auto measures steps first
};
/// Bound to `settings`; with those that later issues bring, marked planned.
std::vector<Option> engine_options(EngineSettings& settings);
/// Errors: usage for an option of streaming without it.
Result<void> check_stream_options(const EngineSettings& settings);
/// Where the weights shall live; --engram left out: on the device where there is no file, else in the files.
Placement placement_of(const EngineSettings& settings, bool in_files);
/// The same of a model, for the backend that will run it. Errors: usage for what check_stream_options() refuses and for
/// a place that this backend does not have; those of open_backend.
Result<Placement> placement_of(const EngineSettings& settings, const LoadedModel& model, const Common& common);
EngineOptions to_engine_options(const EngineSettings& settings, const Common& common);

/// Opens the engine and, at --log-level info, says what was opened. Errors: those of Engine::open.
Result<Engine> open_engine(const LoadedModel& model, const EngineSettings& settings, const Common& common);

}  // namespace fathom::cli
