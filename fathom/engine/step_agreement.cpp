#include "fathom/engine/step_agreement.h"

#include <algorithm>

namespace fathom {

const char* name_of(StepKind kind) {
  switch (kind) {
    case StepKind::idle: return "idle";
    case StepKind::decode: return "decode";
    case StepKind::mixed: return "mixed";
  }
  return "idle";
}

StepDescriptor agree(std::span<const StepDescriptor> ranks) {
  StepDescriptor out;
  for (const StepDescriptor& rank : ranks) {
    out.kind = std::max(out.kind, rank.kind);
    out.rows = std::max(out.rows, rank.rows);
    out.prompt_work |= rank.prompt_work;
    out.overdue |= rank.overdue;
    out.cache_usage = std::max(out.cache_usage, rank.cache_usage);
    out.decode_steps = std::max(out.decode_steps, rank.decode_steps);
  }
  return out;
}

bool runs_prompts(std::span<const StepDescriptor> ranks) {
  const StepDescriptor all = agree(ranks);
  if (!all.prompt_work) return false;
  const bool decoding = std::any_of(ranks.begin(), ranks.end(), [](const auto& r) { return r.kind != StepKind::idle; });
  if (!decoding) return true;  // nobody loses anything
  if (all.cache_usage > kMostUsage) return false;
  if (all.overdue) return true;
  if (all.decode_steps % kTryAny == 0) return true;
  const bool every = std::all_of(ranks.begin(), ranks.end(), [](const auto& r) { return r.prompt_work; });
  return every && all.decode_steps % kTry == 0;
}

}  // namespace fathom
