// fathom/recipe/answer_reader.h
// From what an engine produces to the parts of an answer, without JSON: decodes tokens, parses, names calls, counts,
// says which log-probabilities belong to which part. AnswerStream writes events from it; `fathom chat` reads it as it
// is.
//
//   AnswerReader reader(request.parsing, &tokenizer, seed);
//   reader.tokens(ids, {});               // again and again
//   for (const Delta& delta : reader.deltas()) print(delta.text);
//   reader.finish(BackendFinish::stop);   // deltas() once more, then end()
//
// Source: spec/recipe.md 8.3 to 8.5; spec/codec-policy.md D-12 to D-14; docs/recipe-findings.md (answers, tokens).
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "fathom/base/result.h"
#include "fathom/recipe/answer.h"
#include "fathom/recipe/settings.h"
#include "fathom/tokenizer/tokenizer.h"

namespace fathom::recipe {

enum class BackendFinish { stop, length, content_filter };

/// One for each answer; not shared by threads. Steady state allocates nothing (strict: but for the reasoning, which is
/// kept to be counted). Errors (code failed) close the reader: a token chunk without a tokenizer, log-probabilities
/// that do not match, a call after close ("stream processor is closed") or after completion ("stream processor has
/// finished"). After an error deltas() is empty.
class AnswerReader {
 public:
  /// `tokenizer` may be null when only text comes; it must outlive the reader. `seed` makes the call ids: two answers
  /// of one process must not share it.
  AnswerReader(Parsing parsing, const Tokenizer* tokenizer, uint64_t seed);
  AnswerReader(AnswerReader&&) noexcept;
  ~AnswerReader();

  /// What the engine says of the prompt; may come again.
  Result<void> ready(const PromptUsage& prompt);
  /// A character that the end of `content` cuts waits for its rest.
  Result<void> text(std::string_view content, int64_t token_count);
  /// `logprobs`: empty, or one for each id.
  Result<void> tokens(std::span<const int32_t> ids, std::span<const TokenLogprob> logprobs);
  Result<void> finish(BackendFinish reason);
  /// The input ended and nobody said why: as `stop`, but under strict the reason is `stop` even with calls.
  Result<void> finish();
  /// Gives up: every later call is an error.
  void close();

  /// What the last call completed; valid until the next.
  std::span<const Delta> deltas() const;
  /// Something has come that did not have to wait for its rest.
  bool fed() const;
  /// By finish or by a stop sequence: then the caller stops generating.
  bool finished() const;
  bool closed() const;
  /// Only when finished. Its stop sequence lives as long as the reader.
  AnswerEnd end() const;
  /// Tokens so far; final once finished.
  Usage usage() const;

  /// D-12: calls that the end of the output cut off.
  int calls_dropped() const;
  /// D-10: raw values that were no JSON and became strings.
  int64_t arguments_repaired() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fathom::recipe
