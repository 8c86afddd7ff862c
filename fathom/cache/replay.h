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

/// A prompt with a prefix in the cache: which rows run, and what the caller must restore before they do.
struct PrefillPlan {
  Replay replay;
  int64_t hit = 0;                    // tokens of the prefix that are used; 0 when the hit is worth nothing
  std::optional<int64_t> restore_at;  // the encoder windows of the snapshot there go into the rings first
  bool seam = false;         // the encoder replays with a cut window: what is stored from `hit` on is approximate
  int64_t encoder_rows = 0;  // computed
  int64_t replay_rows = 0;   // of them below `hit`: no prompt work, not billed
  int64_t decoder_rows = 0;  // computed, in a run of the whole prompt

  int64_t valid_start() const { return replay.encoder_cut; }
};

/// The plan for a prompt of `length` tokens of which the first `hit` (a multiple of 128, below length) have their
/// global entries in the cache. `snapshot_at`: there is a snapshot of the encoder windows at this position. `rows`
/// overrides K (compact and mask). Hits of 128 tokens or less, and any hit in mode off, are not used.
///
/// Where the prefill starts:
/// - compact, mask: min(hit - W, length - K), and nothing below is visible: a seam.
/// - halo: min(hit, d) - E (W - 1), d the first row with a decoder window key: rows from min(hit, d) on are exact.
/// - With a snapshot: at its position, exactly, if that is at most min(hit, length - K) (halo: min(hit, d)) and less
///   than 128 rows below the start above; the last snapshot position that is low enough always is. Before position 0
///   there is nothing to restore: snapshot_at = 0 asks for the same exactness where the start is below 128.
///
/// The specification has d = length - 2,420 for halo. Layer 20 also projects the window keys of the 127 rows before the
/// kept ones, from the encoder's output (engine.md 6.1), so those must be exact too and d is 127 lower
/// (docs/decisions/0009). Source: engine.md R-23, R-23a.
PrefillPlan plan_prefill(const ReplayShape& shape, ReplayMode mode, int64_t length, int64_t hit = 0,
                         std::optional<int64_t> snapshot_at = {}, std::optional<int64_t> rows = {});

/// plan_prefill's rows alone; `snapshot`: there is one at `hit`.
Replay plan_replay(const ReplayShape& shape, ReplayMode mode, int64_t length, int64_t hit = 0, bool snapshot = false,
                   std::optional<int64_t> rows = {});

/// Positions (multiples of 128, lowest to highest) at which plan_prefill would use a snapshot; none: lowest > highest.
struct SnapshotRange {
  int64_t lowest = 1, highest = 0;
  bool zero = false;  // so would position 0, where every window is empty
};
SnapshotRange useful_snapshots(const ReplayShape& shape, ReplayMode mode, int64_t length, int64_t hit,
                               std::optional<int64_t> rows = {});

/// Whether the rings of a sequence hold the whole window before `position` when rows up to `written` have been stored
/// since, accepted or not: a snapshot can be taken as long as no row at position + B or above was.
inline bool ring_holds(const ReplayShape& shape, int64_t position, int64_t written) {
  return written <= position + shape.backtrack;
}
/// Whether a prefill by this plan leaves whole windows before `position` (a multiple of 128): not where a window
/// reaches below a cut, or into the warm-up of halo.
bool windows_complete(const ReplayShape& shape, ReplayMode mode, const Replay& replay, int64_t position);

}  // namespace fathom
