// fathom/engine/step_work.h
// One step on its way to the device and back: the plan with what the device needs to run it, and what came of it. The
// loop owns a few of them and uses them again, so that nothing is allocated once the largest step has been seen.
// Source: spec/engine.md 2.2, 4, R-6.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "fathom/base/result.h"
#include "fathom/engine/draft_guard.h"
#include "fathom/engine/live_sequence.h"
#include "fathom/engine/request.h"
#include "fathom/engine/step_plan.h"

namespace fathom {

/// An admission: where a sequence begins, before its first rows run.
struct Begin {
  size_t entry = 0;    // of the plan
  int64_t length = 0;  // tokens that it has, all of which run as a prompt; what the device knew beyond was dropped
  int64_t cached = 0;
  Replay replay;
  int32_t slot = 0;
};

/// Blocks [first, first + count) of an entry's sequence are new or others than before; behind them there are none.
struct NewBlocks {
  size_t entry = 0;
  size_t first = 0, count = 0;
};

/// What one entry of the plan came to, besides its tokens.
struct EntryReport {
  int rows = 0;                                       // that ran: fewer than planned where the plan was a bound
  int replayed_rows = 0;                              // of them below a hit
  int drafts = 0;                                     // of them verified
  std::array<float, kMaxDrafts> verified_confidence;  // of those drafts; NaN: not known
  std::array<float, kMaxDrafts> acceptance;           // of those drafts, as the laws have it (Choice::acceptance)
  std::array<float, kMaxDrafts> confidence;           // of the drafts that were proposed for its next round
  std::vector<TokenLogprob> logprobs, prompt_logprobs;
  std::optional<Error> error;  // it cannot go on behind its tokens
};

/// Encoder windows before `position`, copied right after the step.
struct Snapshot {
  size_t entry = 0;
  int64_t position = 0;
  std::vector<uint8_t> bytes;
};

struct StepWork {
  // There.
  StepPlan plan;
  std::vector<LiveSequence*> live;  // [plan rows]
  std::vector<uint8_t> in_prompt;   // [plan rows] 1: a prompt piece
  std::vector<Begin> begins;
  std::vector<NewBlocks> new_blocks;
  std::vector<int32_t> block_ids;  // of all new_blocks, one after the other
  /// How drafts are verified (spec 7.2 to 7.4): none (and none are proposed), fixed: all of them, scheduled: so many
  /// that entries which decode have `verify_rows` rows together. Sequences with verify_all are not asked.
  DraftPolicy policy = DraftPolicy::fixed;
  int verify_rows = 0;

  // And back.
  StepResult result;
  std::vector<EntryReport> reports;  // [plan rows]
  std::vector<Snapshot> snapshots;
  int decode_rows = 0, decode_sequences = 0;  // that ran, prompt pieces not counted
  double forward_seconds = 0, sample_seconds = 0, total_seconds = 0;

  /// Empty again; what the last step allocated stays.
  void clear() {
    plan.clear();
    live.clear();
    in_prompt.clear();
    begins.clear();
    new_blocks.clear();
    block_ids.clear();
    policy = DraftPolicy::fixed;
    verify_rows = 0;
    snapshots.clear();
  }
};

}  // namespace fathom
