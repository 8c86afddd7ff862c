// fathom/recipe/answer_stages.h
// The states of the answer parser and what each looks for: the table of spec/recipe.md 8.1, and its lenient form
// (spec/codec-policy.md D-11).
#pragma once
#include <array>
#include <cstdint>

#include "fathom/recipe/answer_patterns.h"
#include "fathom/recipe/settings.h"

namespace fathom::recipe {

enum class Stage : uint8_t {
  text,
  json,
  json_done,
  reason,
  calls,
  name,  // strict: tags of calls are three fixed texts
  args,
  key,
  type,
  string_value,
  raw_value,
  tag,  // lenient: tags of calls have attributes (D-11)
  skipped_value,
  skipped_call,
  end,
};
inline constexpr size_t kStages = size_t(Stage::end) + 1;

/// By stage; empty where nothing is looked for.
using StagePatterns = std::array<PatternSet, kStages>;
StagePatterns patterns_of(const Parsing& parsing);

}  // namespace fathom::recipe
