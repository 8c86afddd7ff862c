// fathom/engine/step_agreement.h
// What kind of step the ranks of a data-parallel group run together. All of them enter the same collectives, so all
// must do the same: they exchange one small value each before a step, and each computes the answer from all of them.
// Pure; the exchange is the communicator's. Source: spec/engine.md 3.3, R-8.
#pragma once
#include <cstdint>
#include <span>

namespace fathom {

enum class StepKind : uint8_t { idle, decode, mixed };
const char* name_of(StepKind kind);

/// What one rank is about to do, or would like to do.
struct StepDescriptor {
  StepKind kind = StepKind::idle;
  int32_t rows = 0;          // that it runs
  bool prompt_work = false;  // somebody waits or is within a prompt, and could be given rows
  bool overdue = false;      // somebody has waited too long for a first token
  double cache_usage = 0;    // [0, 1] of its blocks
  int64_t decode_steps = 0;  // since the last prompt step; the same on all ranks
};

/// Steps that share prompt and decode rows: mixed if any rank runs prompt rows, else decode if any decodes. `rows` is
/// the largest of any rank; a rank with less pads where it must. A captured graph may run only where the answer is
/// decode.
StepDescriptor agree(std::span<const StepDescriptor> ranks);

/// Separate steps (`--step-policy separate`): whether the group runs prompts now. Every kTry decode steps, and right
/// behind a prompt step, it does when all ranks have prompt work and none has more than 90 % of its cache in use; every
/// kTryAny steps when any has. A rank whose queue is overdue need not wait for its turn: then any is enough. A rank
/// without work runs a placeholder. Second vote: when no rank could plan a row of it, the group decodes, else it would
/// ask again for ever.
inline constexpr int64_t kTry = 70, kTryAny = 100;
inline constexpr double kMostUsage = 0.9;
bool runs_prompts(std::span<const StepDescriptor> ranks);

}  // namespace fathom
