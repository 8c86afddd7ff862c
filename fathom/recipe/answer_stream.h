// fathom/recipe/answer_stream.h
// From what an engine produces to what a client receives: an AnswerReader and the writer of one API.
//
//   AnswerStream stream(ChatCompletionsWriter(form), request.parsing, &tokenizer, seed);
//   WireEvents out;
//   stream.ready({.prompt_tokens = 12}, "", out);
//   stream.tokens(ids, {}, out);   // again and again
//   stream.finish(BackendFinish::stop, out);
//   append_sse(sent, out);         // after any of these: what is to be sent; then out.clear()
//
// Source: spec/recipe.md 8.3 to 8.5.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "fathom/base/result.h"
#include "fathom/recipe/answer_reader.h"
#include "fathom/recipe/answer_writer.h"

namespace fathom::recipe {

/// One for each answer; not shared by threads. Every call appends to `out`, which the caller clears when it is sent.
/// Errors: those of AnswerReader; nothing is appended then, but for the opening events.
class AnswerStream {
 public:
  /// As AnswerReader's. Under strict a tokenizer also makes reasoning tokens known for text chunks, as in the wheel:
  /// give none when only text comes.
  AnswerStream(AnswerWriter writer, Parsing parsing, const Tokenizer* tokenizer, uint64_t seed);
  AnswerStream(AnswerStream&&) noexcept;
  ~AnswerStream();

  /// What the complete body of the same answer would be is collected beside the events. Before the first call.
  void collect_into(AnswerBody* body);

  /// The opening events; without it they come with the first other call, and the prompt counts as 0. A later call only
  /// changes the counts of the prompt.
  Result<void> ready(const PromptUsage& prompt, std::optional<std::string_view> system_fingerprint, WireEvents& out);
  Result<void> text(std::string_view content, int64_t token_count, WireEvents& out);
  /// `logprobs`: empty, or one for each id. A stream begins with the first whole character of its tokens.
  Result<void> tokens(std::span<const int32_t> ids, std::span<const TokenLogprob> logprobs, WireEvents& out);
  Result<void> finish(BackendFinish reason, WireEvents& out);
  /// The end of the input: finishes as `stop` if nothing did before; nothing when it has finished already.
  Result<void> end(WireEvents& out);
  /// Instead of finish, when generation failed: the event of the API, no normal end. Nothing when the terminal events
  /// are out. Every later call is an error.
  void fail(const Error& error, WireEvents& out);
  /// A sign of life, after ten seconds without an event. Nothing when the terminal events are out.
  void keep_alive(WireEvents& out);
  /// Gives up: no further events, every later call is an error.
  void close();

  /// All terminal events are out (by finish, end, or a stop sequence: then the caller stops generating).
  bool finished() const;
  /// Tokens so far; final once finished.
  Usage usage() const;
  const AnswerReader& reader() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fathom::recipe
