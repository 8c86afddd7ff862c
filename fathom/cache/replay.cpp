#include "fathom/cache/replay.h"

#include <algorithm>

#include "fathom/base/check.h"
#include "fathom/cache/page_spec.h"

namespace fathom {

std::optional<ReplayMode> replay_mode_of(std::string_view name) {
  for (const auto mode : {ReplayMode::off, ReplayMode::mask, ReplayMode::compact, ReplayMode::halo}) {
    if (name == name_of(mode)) return mode;
  }
  return {};
}

const char* name_of(ReplayMode mode) {
  switch (mode) {
    case ReplayMode::off: return "off";
    case ReplayMode::mask: return "mask";
    case ReplayMode::compact: return "compact";
    case ReplayMode::halo: return "halo";
  }
  return "off";
}

int ring_capacity(const ReplayShape& shape) { return shape.window + shape.backtrack; }

int64_t compact_rows(const ReplayShape& shape) { return shape.window + 2 * shape.backtrack; }

int64_t halo_rows(const ReplayShape& shape) {
  return shape.window + int64_t(std::max(shape.decoder_layers - 2, 0)) * (shape.window - 1) + shape.backtrack;
}

namespace {

struct Start {
  int64_t bounded = 0;              // without a snapshot
  int64_t lowest = 0, highest = 0;  // that a snapshot may be used at; lowest is a multiple of 128
};

int64_t kept_rows(const ReplayShape& shape, ReplayMode mode, std::optional<int64_t> rows) {
  return mode == ReplayMode::halo ? halo_rows(shape) : rows.value_or(compact_rows(shape));
}

bool worth_using(const ReplayShape& shape, ReplayMode mode, int64_t length, int64_t hit) {
  check(hit >= 0 && hit % kBlockTokens == 0 && (hit == 0 || hit < length),
        "a hit is of full blocks, not the whole prompt");
  return hit > kBlockTokens && mode != ReplayMode::off && shape.decoder_layers > 0;
}

Start start_of(const ReplayShape& shape, ReplayMode mode, int64_t length, int64_t hit, std::optional<int64_t> rows) {
  const int64_t cut = std::max<int64_t>(0, length - kept_rows(shape, mode, rows));
  int64_t highest = std::min(hit, cut), bounded = std::min(hit - shape.window, cut);
  if (mode == ReplayMode::halo) {
    highest = std::min(hit, std::max<int64_t>(0, cut - (shape.window - 1)));
    bounded = highest - int64_t(shape.encoder_layers) * (shape.window - 1);
  }
  bounded = std::max<int64_t>(0, bounded);
  // Snapshots lie at multiples of 128 only; less than a block of rows more is what exactness may cost.
  return {bounded, std::max<int64_t>(kBlockTokens, bounded / kBlockTokens * kBlockTokens), highest};
}

void set_decoder(const ReplayShape& shape, ReplayMode mode, int64_t cut, Replay& out) {
  switch (mode) {
    case ReplayMode::off: break;
    case ReplayMode::mask: out.decoder_cut = out.first_decoder_cut = cut; break;
    case ReplayMode::compact:
      out.decoder_from = out.decoder_window_from = out.decoder_cut = out.first_decoder_cut = cut;
      break;
    case ReplayMode::halo:
      out.decoder_from = out.decoder_cut = cut;
      out.decoder_window_from = out.first_decoder_cut = std::max<int64_t>(0, cut - (shape.window - 1));
      break;
  }
}

}  // namespace

PrefillPlan plan_prefill(const ReplayShape& shape, ReplayMode mode, int64_t length, int64_t hit,
                         std::optional<int64_t> snapshot_at, std::optional<int64_t> rows) {
  PrefillPlan out;
  Replay& replay = out.replay;
  if (worth_using(shape, mode, length, hit)) {
    const Start start = start_of(shape, mode, length, hit, rows);
    out.hit = replay.store_from = hit;
    replay.start = replay.encoder_cut = start.bounded;
    if (snapshot_at && *snapshot_at >= start.lowest && *snapshot_at <= start.highest) {
      out.restore_at = replay.start = *snapshot_at;
      replay.encoder_cut = 0;
    } else if (snapshot_at && *snapshot_at == 0 && start.bounded < kBlockTokens) {
      replay.start = replay.encoder_cut = 0;
    }
    out.seam = mode != ReplayMode::halo && replay.encoder_cut > 0;
  }
  if (shape.decoder_layers == 0) mode = ReplayMode::off;
  set_decoder(shape, mode, std::max<int64_t>(0, length - kept_rows(shape, mode, rows)), replay);
  out.encoder_rows = length - replay.start;
  out.replay_rows = replay.store_from - replay.start;
  out.decoder_rows = length - std::max(replay.start, replay.decoder_from);
  return out;
}

Replay plan_replay(const ReplayShape& shape, ReplayMode mode, int64_t length, int64_t hit, bool snapshot,
                   std::optional<int64_t> rows) {
  const auto snapshot_at = snapshot ? std::optional(hit) : std::nullopt;
  return plan_prefill(shape, mode, length, hit, snapshot_at, rows).replay;
}

bool windows_complete(const ReplayShape& shape, ReplayMode mode, const Replay& replay, int64_t position) {
  // halo warms up below the rows that it needs; only behind the warm-up is the ring of every layer exact.
  const int64_t warm_up = mode == ReplayMode::halo ? int64_t(shape.encoder_layers) * (shape.window - 1) : 0;
  const int64_t whole_from = replay.encoder_cut == 0 ? 0 : replay.encoder_cut + warm_up;
  return position > replay.start && position - shape.window >= whole_from;
}

SnapshotRange useful_snapshots(const ReplayShape& shape, ReplayMode mode, int64_t length, int64_t hit,
                               std::optional<int64_t> rows) {
  if (!worth_using(shape, mode, length, hit)) return {};
  const Start start = start_of(shape, mode, length, hit, rows);
  return {start.lowest, start.highest / kBlockTokens * kBlockTokens, start.bounded < kBlockTokens};
}

}  // namespace fathom
