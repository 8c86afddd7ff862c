// fathom/model/presets.h
// Configurations by name: what `make-checkpoint --preset` and `--model synthetic:PRESET` offer. Source: design/cli.md
// 6, spec/checkpoint.md 6.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fathom/base/result.h"
#include "fathom/model/config.h"

namespace fathom {

/// What the presets can be asked for; each names the presets it belongs to.
struct PresetOptions {
  int encoder_layers = 4;        // flash-slice: layers before the first of ratio 1, at least 2
  int decoder_layers = 4;        // flash-slice: at least 1
  int experts = 16;              // flash-slice: routed experts of a backbone layer; draft stages at most 128
  int64_t engram_vocab = 16000;  // flash-slice, flash-rank: where the search for table sizes starts
  int rank = 0;                  // flash-rank: whose experts
  int ranks = 64;                // flash-rank: of how many
};

/// "tiny", "mini-random", "flash-slice", "flash-sparse", "flash-rank".
const std::vector<std::string>& preset_names();

/// tiny          the configuration of the golden vectors: every layer kind, small numbers everywhere
/// mini-random   the shape of the trained miniature
/// flash-slice   the widths of Flash with fewer layers, experts and Engram rows
/// flash-sparse  Flash itself
/// flash-rank    Flash with the experts of one rank and a small Engram table
/// Errors: usage for an unknown name or an option that makes no valid configuration.
Result<ModelConfig> preset_config(std::string_view preset, const PresetOptions& options = {});

/// "4+8" -> encoder_layers 4, decoder_layers 8. Errors: usage.
Result<void> parse_layers(std::string_view text, PresetOptions& options);

/// The loader's test configuration whose counts spec/checkpoint.md 6 works out by hand ("mini-8"); has a vision
/// encoder.
ModelConfig mini8_config();

}  // namespace fathom
