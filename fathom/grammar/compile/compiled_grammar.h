// fathom/grammar/compile/compiled_grammar.h
// A constraint made ready for one vocabulary. Source: spec/engine.md 10, R-38; docs/decisions/0010.
#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "fathom/base/result.h"
#include "fathom/grammar/compile/vocabulary.h"
#include "fathom/grammar/constraint.h"
#include "fathom/grammar/limits.h"

namespace fathom::grammar {

/// A handle of shared, immutable parts: any number of matchers, in any threads, may use one.
class CompiledGrammar {
 public:
  int64_t bytes() const;
  /// Whether another handle or matcher uses it at this moment.
  bool shared() const { return parts_.use_count() > 1; }

  struct Parts;  // vocabulary_parts.h: only for this folder
  const Parts& parts() const { return *parts_; }
  explicit CompiledGrammar(std::shared_ptr<const Parts> parts) : parts_(std::move(parts)) {}

 private:
  std::shared_ptr<const Parts> parts_;
};

struct CompileLimits {
  GrammarLimits grammar;
  int64_t bytes = int64_t(256) << 20;          // of a compiled grammar
  std::chrono::milliseconds first_masks{250};  // of 72 tokens of random answers, in time of the processor
};

/// Refuses what grammar_of refuses, then compiles; blocks for 1 ms to a few seconds and cannot be interrupted. Any
/// number of threads may call it at once. Calls (tool_call, tool_call_required) ignore `starts_after`: a block may come
/// out of the reasoning too, and ends it (spec/recipe.md 8.1).
/// Errors: those of grammar_of; out_of_memory beyond the limit; out_of_range when its masks take too long; bad_input
/// for a user's grammar that is none.
Result<CompiledGrammar> compile(const Constraint& constraint, const Vocabulary& vocabulary,
                                const CompileLimits& limits = {});

}  // namespace fathom::grammar
