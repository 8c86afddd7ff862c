// fathom/engine/sequence.h
// One waiting or running sequence as the host sees it: its tokens, how far they have been computed and planned, what it
// holds of the cache, and whom it belongs to. A value; the scheduler owns it. What the device sees of the same
// sequence, one step ahead, is a LiveSequence.
#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "fathom/cache/prefix_sharing.h"
#include "fathom/cache/replay.h"
#include "fathom/cache/sequence_cache.h"
#include "fathom/engine/request.h"
#include "fathom/engine/step_plan.h"

namespace fathom {

struct Sequence {
  SequenceId id = 0;
  std::vector<int32_t> ids;  // the prompt, then what was generated
  int64_t prompt_tokens = 0;
  int64_t max_tokens = 1;         // at least 1; prompt + max_tokens lie within the context
  std::vector<int32_t> stop_ids;  // rising; the end-of-text token is among them unless it is ignored
  int drafts = 0;                 // most drafts a round
  bool prompt_logits = false;     // logits of every prompt row are wanted

  // Whose it is and how urgent. Times are seconds of the clock that plan() is told.
  int priority = 0;
  uint32_t tenant = 0;  // account of the prefix cache, lane of the waiting queue
  double arrived = 0;
  std::optional<double> first_token_by;  // a target, not a limit
  std::optional<double> between_tokens;  // seconds: a target for the gap between two steps that bring tokens
  SequenceId parent = 0;                 // it branches off this sequence behind the prompt; 0: it stands alone
  bool ready = true;                     // false: something is still being fetched or compiled for it

  ReplayMode mode = ReplayMode::compact;
  Replay first_replay;      // of its first admission
  bool first_seam = false;  // whose encoder began with a cut window (PrefillPlan::seam)
  Replay replay;            // of its last one; what the rows that count can see is the same
  PrefixChain chain;        // root 0: its prefix is not cached

  int64_t prefill_tokens = 0;  // ids that run as a prompt: all there were when it was admitted
  int64_t cached = 0;          // positions [0, cached) have been run and kept; between decode steps all but the newest
  int64_t in_flight_rows = 0;  // rows of steps that are planned and not committed, at most
  int in_flight_steps = 0;
  uint64_t planned_step = 0;  // number of the last step that it is in
  int in_flight_tokens = 0;   // tokens that steps in flight bring at least
  int proposed = 0;           // drafts for the positions behind `ids` that the next step can verify
  SequenceCache cache;
  size_t known_blocks = 0;  // the first ones of cache.blocks, which the device has been told

  int64_t admission = 0;  // its place in the order of admissions, from 1
  int preemptions = 0;
  int64_t hit_tokens = 0, replayed_tokens = 0;  // of all its admissions

  int64_t generated() const { return int64_t(ids.size()) - prompt_tokens; }
  int64_t remaining() const { return max_tokens - generated(); }
  bool in_prompt() const { return cached < prefill_tokens; }
  /// Position of its next row if all rows in flight are kept.
  int64_t planned() const { return cached + in_flight_rows; }
  /// Positions that it may ever take; the newest token is never run when it is the last one.
  int64_t most_tokens() const { return prompt_tokens + max_tokens; }
};

/// What an answer takes of the tokens that a step brings: all up to a stop token or the limit.
struct Taken {
  int count = 0;
  std::optional<FinishReason> finish;
};
/// `stop_ids` rise; `remaining` tokens may still come, at least 1.
inline Taken take(std::span<const int32_t> tokens, std::span<const int32_t> stop_ids, int64_t remaining) {
  Taken out;
  for (const int32_t token : tokens) {
    ++out.count;
    if (std::binary_search(stop_ids.begin(), stop_ids.end(), token)) {
      out.finish = FinishReason::stop;
    } else if (out.count == remaining) {
      out.finish = FinishReason::length;
    }
    if (out.finish) break;
  }
  return out;
}

/// Drafts that are worth proposing for the next round: a round brings one token more than it accepts drafts, so with n
/// tokens left only n - 1 can count. This also keeps verified rows inside the context.
inline int drafts_for(int64_t remaining, int drafts) { return int(std::clamp<int64_t>(remaining - 1, 0, drafts)); }

}  // namespace fathom
