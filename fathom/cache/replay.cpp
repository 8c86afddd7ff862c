#include "fathom/cache/replay.h"

#include <algorithm>

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

Replay plan_replay(const ReplayShape& shape, ReplayMode mode, int64_t length, int64_t hit, bool snapshot,
                   std::optional<int64_t> rows) {
  if (shape.decoder_layers == 0) mode = ReplayMode::off;
  if (hit <= kBlockTokens || mode == ReplayMode::off) hit = 0;
  Replay out;
  out.store_from = hit;
  const int64_t kept = mode == ReplayMode::halo ? halo_rows(shape) : rows.value_or(compact_rows(shape));
  const int64_t cut = mode == ReplayMode::off ? 0 : std::max<int64_t>(0, length - kept);
  if (hit > 0) {
    if (mode == ReplayMode::halo) {
      // Exact from min(hit, cut) on: every encoder layer needs W - 1 rows more on its left.
      out.start = std::max<int64_t>(0, std::min(hit, cut) - int64_t(shape.encoder_layers) * (shape.window - 1));
    } else if (snapshot && hit <= cut) {
      out.start = hit;
    } else {
      out.start = std::max<int64_t>(0, std::min(hit - shape.window, length - kept));
    }
    out.encoder_cut = out.start == hit ? 0 : out.start;
  }
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
  return out;
}

}  // namespace fathom
