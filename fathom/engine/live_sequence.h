// fathom/engine/live_sequence.h
// One running sequence as the device sees it: its text up to the newest token, the drafts behind it, where its rows
// lie. The host (Sequence) knows the same a step later; it plans with bounds, and what is here turns them into the
// truth (spec/engine.md 4.1). Owned by the step loop, changed by the executor alone while a step with it is in flight.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "fathom/cache/replay.h"
#include "fathom/engine/answer_guide.h"
#include "fathom/engine/sampler.h"

namespace fathom {

struct LiveSequence {
  std::vector<int32_t> ids;  // prompt and answer
  int64_t prompt_tokens = 0;
  int64_t max_tokens = 1;
  std::vector<int32_t> stop_ids;  // rising
  int drafts = 0;                 // most a round
  bool verify_all = false;        // its text depends on how many drafts are verified, and was promised to repeat itself
  int top_logprobs = -1;          // of the answer; -1: not wanted
  bool prompt_logprobs = false;
  SamplerState sampler;
  std::unique_ptr<AnswerGuide> guide;  // of a constrained answer

  // Of its last admission.
  int64_t prefill_tokens = 0;  // ids that run as a prompt
  Replay replay;
  ReplayMode mode = ReplayMode::compact;
  bool snapshots = false;  // its windows are worth keeping
  int32_t slot = 0;
  std::vector<int32_t> blocks;

  int64_t cached = 0;                             // positions [0, cached) have been run and kept
  std::vector<int32_t> proposed;                  // drafts for the positions behind `ids`
  std::array<float, kMaxDrafts> confidence{};     // of each
  std::array<float, kMaxDrafts> draft_logprob{};  // of each by its own law; only when log-probabilities are wanted
  bool ended = false;                             // nothing of it runs any more

  int64_t generated() const { return int64_t(ids.size()) - prompt_tokens; }
  int64_t remaining() const { return max_tokens - generated(); }
};

}  // namespace fathom
