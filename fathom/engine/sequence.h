// fathom/engine/sequence.h
// One running or waiting sequence: its tokens, how far they have been computed, what it holds of the cache, and how its
// next token is chosen. A value; the scheduler owns it.
#pragma once
#include <cstdint>
#include <vector>

#include "fathom/cache/replay.h"
#include "fathom/cache/sequence_cache.h"
#include "fathom/engine/sampler.h"
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
  Replay replay;
  SamplerState sampler;  // not read by the scheduler

  int64_t cached = 0;             // positions [0, cached) have been run; between decode steps all but the newest token
  std::vector<int32_t> proposed;  // drafts for the positions behind `ids`, to be verified in the next step
  SequenceCache cache;

  int64_t generated() const { return int64_t(ids.size()) - prompt_tokens; }
  int64_t remaining() const { return max_tokens - generated(); }
  bool in_prompt() const { return cached < prompt_tokens; }
  /// Positions that it may ever take; the newest token is never run when it is the last one.
  int64_t most_tokens() const { return prompt_tokens + max_tokens; }
};

/// Drafts that are worth proposing for the next round: a round brings one token more than it accepts drafts, so with n
/// tokens left only n - 1 can count. This also keeps verified rows inside the context.
inline int drafts_for(const Sequence& sequence) {
  const int64_t most = sequence.remaining() - 1;
  return most < sequence.drafts ? int(most < 0 ? 0 : most) : sequence.drafts;
}

}  // namespace fathom
