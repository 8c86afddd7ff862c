// fathom/model/batch.h
// What one step computes, as flat arrays: prompt pieces, decode rows and rows of drafts to verify, all alike. A batch
// is made by the engine and read by the model; it owns nothing.
#pragma once
#include <cmath>
#include <cstdint>
#include <span>

#include "fathom/backend/ops.h"
#include "fathom/cache/replay.h"

namespace fathom {

/// A copy of the encoder windows before a position inside a piece, taken while the piece runs: afterwards later rows
/// have their places in the rings.
struct WindowCapture {
  int32_t sequence = 0;    // of the batch
  int64_t position = 0;    // the piece has rows on both sides, or ends there
  std::span<uint8_t> out;  // CacheMemory::window_bytes of the encoder's rings
};

struct Batch {
  RowSet rows;                     // positions, owners, ranges
  View<const int32_t, 1> ids;      // [rows] token ids
  View<const uint8_t, 1> image;    // [rows] 1 inside an image span; empty: no images
  View<const int32_t, 2> history;  // [sequences, max n-gram - 1] tokens before each sequence's first row, newest first;
                                   // -1 before the start and on image positions
  View<const int32_t, 2> blocks;   // [sequences, most blocks] block tables
  View<const int32_t, 1> slots;    // [sequences] state slots
  std::span<const Replay> replay;  // [sequences] visibility
  View<const int32_t, 1>
      logit_rows;  // rows whose logits are wanted, rising; each runs the decoder (position >= decoder_from)
  std::span<const WindowCapture> captures = {};
};

/// One draft block a sequence. Source: spec/model.md 11.2.
struct DraftBatch {
  View<const int32_t, 1> tokens;   // [sequences] newest sampled token, not yet run through the backbone
  View<const int64_t, 1> last;     // [sequences] P: last position that has been; the token sits at P + 1
  View<const int32_t, 1> slots;    // [sequences]
  std::span<const Replay> replay;  // [sequences]
};

/// How the tokens of drafts are drawn: as Sample draws them.
struct DraftDraws {
  int positions = 0;                  // of the block that are wanted, from its first
  std::span<const RowSampling> rows;  // [positions * sequences], position after position
  int64_t law_tokens = 0;             // room for tokens of each law; 0: laws are not wanted
};

/// Drafts as they were drawn. The processor may read them when the queue is done.
struct DrawnDrafts {
  View<const int32_t, 2> ids;       // [positions, sequences]
  View<const float, 2> scores;      // [positions, sequences] see confidence_of()
  View<const TokenWeight, 2> laws;  // [positions * sequences, law_tokens] by rising id
  View<const int32_t, 1> counts;    // [positions * sequences] tokens of each law, of which the first are there
};

/// The probability that a draft is accepted if all before it are, from the confidence head's score.
inline float confidence_of(float score) { return 1 / (1 + std::exp(-score)); }

}  // namespace fathom
