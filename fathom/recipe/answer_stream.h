// fathom/recipe/answer_stream.h
// From what an engine produces to what a client receives: decodes tokens, parses, counts, writes events.
//
//   AnswerStream stream(ChatCompletionsWriter(form), request.parsing, &tokenizer);
//   WireEvents out;
//   stream.ready({.prompt_tokens = 12}, "", out);
//   stream.tokens(ids, {}, out);   // again and again
//   stream.finish(BackendFinish::stop, out);
//
// Source: spec/recipe.md 8.3 to 8.5.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "fathom/base/result.h"
#include "fathom/recipe/answer_writer.h"
#include "fathom/recipe/settings.h"
#include "fathom/tokenizer/tokenizer.h"

namespace fathom::recipe {

enum class BackendFinish { stop, length, content_filter };

/// One for each answer; not shared by threads. Every call appends to `out`, which the caller clears when it is sent.
/// Errors (code failed) close the stream: a token chunk without a tokenizer, log-probabilities that do not match, a
/// call after close ("stream processor is closed") or after completion ("stream processor has finished").
class AnswerStream {
 public:
  /// `tokenizer` may be null when only text comes; it must outlive the stream. `seed` makes the call ids: two answers
  /// of one process must not share it.
  AnswerStream(AnswerWriter writer, Parsing parsing, const Tokenizer* tokenizer, uint64_t seed);
  AnswerStream(AnswerStream&&) noexcept;
  ~AnswerStream();

  /// What the complete body of the same answer would be is collected beside the events.
  void collect_into(AnswerBody* body);

  Result<void> ready(const PromptUsage& prompt, std::optional<std::string_view> system_fingerprint, WireEvents& out);
  Result<void> text(std::string_view content, int64_t token_count, WireEvents& out);
  /// `logprobs`: empty, or one for each id.
  Result<void> tokens(std::span<const int32_t> ids, std::span<const TokenLogprob> logprobs, WireEvents& out);
  Result<void> finish(BackendFinish reason, WireEvents& out);
  /// The end of the input: finishes as `stop` if nothing did before; nothing when it has finished already.
  Result<void> end(WireEvents& out);
  /// Gives up: no further events, every later call is an error.
  void close();

  /// All terminal events are out (by finish, end, or a stop sequence: then the caller stops generating).
  bool finished() const;
  /// Tokens and bytes so far; final once finished.
  Usage usage() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fathom::recipe
