// fathom/cache/replay.h
// Which rows of a prompt run where. Two independent savings, both approximations that the model was trained to
// tolerate: the decoder half runs on the last rows of a prompt only, and after a prefix hit without windows a few
// cached rows run again through the encoder to refill them. Pure functions. Source: spec/engine.md 6, spec/model.md 13.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

namespace fathom {

enum class ReplayMode {
  off,      // every row runs the decoder: exact
  mask,     // every row runs it, but the last K rows see no decoder window key before them: the oracle of compact
  compact,  // only the last K rows run it
  halo,     // only the rows that the last row depends on run it: exact dependencies
};

std::optional<ReplayMode> replay_mode_of(std::string_view name);
const char* name_of(ReplayMode mode);

/// The sizes that the rules need. For V4.1 Flash: 128, 6, 20, 20.
struct ReplayShape {
  int window = 0;          // W
  int backtrack = 0;       // B: drafts + 1, the most rows that a round can take back
  int encoder_layers = 0;  // E
  int decoder_layers = 0;  // D; 0: no decoder half, every mode is `off`
};

/// Ring entries of a window: W + B, so that the last W stay valid after B rows are taken back.
int ring_capacity(const ReplayShape& shape);
/// K of compact when nothing else is said: W + 2 B (140 for V4.1 Flash; at least W + B with drafts).
int64_t compact_rows(const ReplayShape& shape);
/// K of halo: W + (D - 2)(W - 1) + B (2,420 for V4.1 Flash).
int64_t halo_rows(const ReplayShape& shape);

/// Visibility of one sequence, fixed when its prompt is known and kept for its life. Everything is a position.
struct Replay {
  int64_t start = 0;                // first row that is computed
  int64_t encoder_cut = 0;          // no encoder window key below it is visible; start, or 0 when windows were restored
  int64_t store_from = 0;           // rows below are replay rows: they store no global entries
  int64_t decoder_from = 0;         // rows from here run the decoder half
  int64_t decoder_window_from = 0;  // rows from here have a window key at the first decoder layer
  int64_t decoder_cut = 0;          // rows from here see no decoder window key below it
  int64_t first_decoder_cut = 0;    // the same at the first decoder layer, whose window keys may reach lower
  friend bool operator==(const Replay&, const Replay&) = default;
};

/// The plan for a prompt of `length` tokens of which the first `hit` (a multiple of 128, below length) have their
/// global entries in the cache. `snapshot`: the encoder windows at `hit` are there too. `rows` overrides K (compact and
/// mask). Hits of 128 tokens or less, and any hit in mode off, are not used: then start is 0.      engine.md R-23,
/// R-23a
Replay plan_replay(const ReplayShape& shape, ReplayMode mode, int64_t length, int64_t hit = 0, bool snapshot = false,
                   std::optional<int64_t> rows = {});

}  // namespace fathom
