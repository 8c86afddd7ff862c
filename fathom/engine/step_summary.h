// fathom/engine/step_summary.h
// What one step was, in numbers: what it ran, what it brought, what it took. The loop fills one a step, as a value that
// travels with the step; statistics count it and the step log keeps it. Fixed size, no pointers.
// Source: spec/engine.md 14, 7.6, R-40.
#pragma once
#include <array>
#include <cstdint>
#include <string>

#include "fathom/base/json.h"
#include "fathom/engine/draft_guard.h"
#include "fathom/engine/scheduler.h"

namespace fathom {

struct StepSummary {
  uint64_t step = 0;  // from 1
  double ended = 0;   // seconds of the clock that plan() is told

  // Seconds. `step_seconds`: from the end of the step before, or from its own begin where nothing ran before it. The
  // parts need not add up to it: planning runs while another step computes.
  float step_seconds = 0;
  float plan_seconds = 0;     // plan, pack, commit: the host's part
  float forward_seconds = 0;  // the network
  float sample_seconds = 0;   // choosing tokens and proposing drafts
  float other_seconds = 0;    // the rest of the device's part

  // What ran.
  int32_t prompt_pieces = 0, prompt_rows = 0;
  int32_t decoder_rows = 0;   // of the prompt rows, through the decoder half
  int32_t replayed_rows = 0;  // of the prompt rows, below a hit
  int32_t decode_sequences = 0, decode_rows = 0;
  int32_t restores = 0, copies = 0, preempted = 0;
  DraftPolicy policy = DraftPolicy::fixed;                // of its decode rows
  std::array<int32_t, kMaxDrafts> offered{}, accepted{};  // drafts verified and accepted, by position in their round
  float confidence_error = 0;  // sum over verified drafts of |1 - residual mass - confidence| (7.6)
  int32_t confidences = 0;     // drafts in that sum

  // What it brought.
  int32_t tokens = 0, finished = 0;

  // How things stood after its commit.
  int32_t running = 0, waiting = 0;                           // waiting: and loading
  int32_t used_blocks = 0, idle_blocks = 0, free_blocks = 0;  // idle: findable, in nobody's use
  int32_t used_slots = 0, free_slots = 0;
  int64_t hit_tokens = 0, passed_over = 0;  // since the start (SchedulerCounts)

  friend bool operator==(const StepSummary&, const StepSummary&) = default;
};

/// One entry of the plan that was a piece of a prompt, and ran `rows` rows, the last `decoder_rows` of them through the
/// decoder half.
void add_prompt_piece(StepSummary& summary, int rows, int decoder_rows, int replayed_rows);
/// One entry that decoded: `rows` rows, `drafts` of them verified, `accepted` of those taken.
void add_round(StepSummary& summary, int rows, int drafts, int accepted);
/// Copies, restores and preemptions of the plan.
void add_plan(StepSummary& summary, const StepPlan& plan);
/// How things stand now. Constant time.
void add_standing(StepSummary& summary, const Scheduler& scheduler);
/// Rows of a prompt piece that are computed a second time, below its hit.
int replayed_rows(const Replay& replay, int64_t first, int rows);

/// decode, prompt or mixed; idle when nothing ran.
const char* kind_of(const StepSummary& summary);
Json json_of(const StepSummary& summary);
/// `step=100 kind=mixed prompt_pieces=2 prompt_rows=2048 …`: number and shape, for errors that happen in a step (case
/// obs-03).
std::string shape_of(const StepSummary& summary);

}  // namespace fathom
