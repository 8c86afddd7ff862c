// fathom/grammar/compile/matcher.h
// One answer on its way through a grammar: which tokens may come next, and back again when drafts were refused.
// Source: spec/engine.md 10, R-38.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "fathom/base/result.h"
#include "fathom/grammar/compile/compiled_grammar.h"

namespace fathom::grammar {

/// One for each sequence; one thread at a time. After preemption: a new one that accepts the same ids again.
///
///   verify drafts:  for each row k: mask(row k); accept(draft k) or stop;   then rollback(accepted), accept what was
///   sampled. Every token can be taken back; memory grows by some bytes a token and by what the grammar is within.
class Matcher {
 public:
  explicit Matcher(const CompiledGrammar& grammar);
  Matcher(Matcher&&) noexcept;
  Matcher& operator=(Matcher&&) noexcept;
  ~Matcher();
  /// A copy with its own future (n > 1).
  Matcher fork() const;

  /// Writes Vocabulary::mask_words() words: a set bit may come next. Bits beyond the vocabulary are clear. Returns
  /// whether the mask binds: false when every token may come. After the end every token may.
  /// Errors: failed, also when the answer's masks and tokens have taken too much time (time_budget.h); then the request
  /// is to end, and only it.
  Result<bool> mask(std::span<uint32_t> words);

  /// Takes one token. False, and nothing changes, when the mask does not have it.
  bool accept(int32_t id);

  /// Takes back the last `tokens` accepted ones, at most all.
  void rollback(int tokens);

  /// Before the text after which the constraint starts: everything may come.
  bool waiting() const;
  /// A stop token was accepted.
  bool finished() const;
  /// The text so far is a whole one: a stop token may come.
  bool complete() const;

  /// Tokens that must come next, the longest of each place (jump-forward); often none. Changes nothing: the caller
  /// accepts them. Stop tokens are not among them.
  std::vector<int32_t> forced() const;

 private:
  struct State;
  explicit Matcher(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace fathom::grammar
