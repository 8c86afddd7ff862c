// fathom/engine/answer_guide.h
// One constrained answer in the step loop: where it stands in its grammar, and the masks of the rows that the next step
// decides. Source: spec/engine.md 10, R-38.
//
// Drafts are proposed under the masks of the drafts before them, so that the masks of a round are ready when its drafts
// are: verifying them fills nothing again. The matcher stays where the drafts have led it until the round is committed;
// then it goes back to the last accepted one and on to what the target chose. After a preemption what was
// generated stays accepted; tokens of a step that was in flight are taken back.
//
// End tokens may come where the text is a whole one and nowhere else, stop tokens of the request among them; so the
// reasoning before a constraint that starts after it cannot end the answer. Where nothing else is left they may come
// whatever min_tokens says.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "fathom/base/result.h"
#include "fathom/engine/sampler.h"
#include "fathom/engine/token_masks.h"
#include "fathom/grammar/compile/matcher.h"

namespace fathom {

/// One thread at a time. Stays where it is: sampler states point at its masks. Allocates its masks once, for `drafts` +
/// 1 rows.
class AnswerGuide {
 public:
  /// `vocabulary` is that of the grammar; `state` says which tokens never come (blacklist, a bias of -infinity);
  /// `stop_ids` end the answer, besides those of the vocabulary.
  AnswerGuide(const grammar::CompiledGrammar& grammar, const grammar::Vocabulary& vocabulary, const SamplerState& state,
              std::span<const int32_t> stop_ids, int drafts);
  AnswerGuide(const AnswerGuide&) = delete;
  AnswerGuide& operator=(const AnswerGuide&) = delete;

  /// Fills the rows 0 to drafts.size() that are not filled yet. Returns how many of them, from row 0 on, leave a token:
  /// drafts.size() + 1 when all do. A draft that the grammar refuses ends them.
  int fill(std::span<const int32_t> drafts);

  /// The answer has grown by these tokens, none of which ended it; then row 0 is filled. Errors: failed, when a token
  /// is outside of the grammar (teacher forcing) or nothing may come next.
  Result<void> commit(std::span<const int32_t> tokens);
  /// Fills row 0. Errors: failed, when nothing may come.
  Result<void> begin();
  /// The last `tokens` committed ones never came. Errors: those of begin().
  Result<void> take_back(int tokens);

  /// Tokens that must come next, after a commit and before fill(); often none. Changes nothing.
  std::vector<int32_t> forced() const { return matcher_.forced(); }

  const TokenMasks& masks() const { return masks_; }

 private:
  bool fill_row(size_t k);
  void go_back(size_t assumed);

  grammar::Matcher matcher_;
  TokenMasks masks_;
  std::vector<int32_t> ends_, forbidden_;
  std::vector<int32_t> assumed_;  // drafts that the matcher has taken
  size_t filled_ = 0;             // rows
  Error error_;                   // of the row behind them
};

}  // namespace fathom
