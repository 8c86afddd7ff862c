// fathom/cli/answering.h
// Questions to answers: submits requests to an engine, reads its tokens through the codec into reasoning, text and
// calls as they come, and gives each finished answer as one value. `generate`, its batch mode and `chat` share it.
#pragma once
#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "fathom/base/json.h"
#include "fathom/engine/engine.h"
#include "fathom/recipe/codec.h"
#include "fathom/tokenizer/tokenizer.h"

namespace fathom::cli {

/// How a plain continuation is read: all of it is text, up to the first of the stop texts.
recipe::Parsing plain_parsing(std::vector<std::string> stops = {});

struct Question {
  Request request;
  recipe::Parsing parsing = plain_parsing();
  std::optional<recipe::AnswerBody> body;  // when there is one, the answer also comes as its JSON
};

struct Answer {
  std::string text, reasoning;
  std::vector<recipe::ToolCall> calls;  // whole ones; a call that the end cut off is not among them
  std::vector<int32_t> ids;             // all that was generated, the end token included; cut at a stop text
  std::vector<TokenLogprob> logprobs, prompt_logprobs;
  std::string finish_reason;  // stop, length, tool_calls, cancelled, failed
  std::optional<Error> error;
  std::string body;  // JSON in the form of the question's API, when asked for
  Usage usage;
  int64_t reasoning_tokens = 0;
};

/// {"index","text","reasoning","tool_calls","token_ids","finish_reason","usage","timing"} and, when asked for,
/// "logprobs" and "prompt_logprobs". Keys are stable.
Json to_json(const Answer& answer, int64_t index, const Tokenizer* tokenizer);

/// An error of Engine::submit in the words of the command line: the engine speaks of its own fields.
Error for_people(Error error);

/// The thread of the engine.
class Answering {
 public:
  /// Both must outlive it. Without a tokenizer answers have ids but no text.
  Answering(Engine& engine, const Tokenizer* tokenizer);

  /// The delta's views live during the call only.
  using OnDelta = std::function<void(int64_t key, const recipe::Delta& delta)>;
  using OnAnswer = std::function<void(int64_t key, Answer answer)>;

  /// Queues a question under the caller's key; several answers (Request::answers) have the keys that follow. Errors:
  /// those of Engine::submit; then nothing is queued.
  Result<void> ask(int64_t key, Question question);
  /// One step of the engine. Deltas of an answer come before the answer itself. Allocates nothing a token, but for the
  /// answer that grows.
  void step(const OnDelta& on_delta, const OnAnswer& on_answer);
  void cancel(int64_t key);
  int64_t running() const { return int64_t(open_.size()); }

 private:
  struct Open {
    int64_t key = 0;
    std::vector<int32_t> end_ids;                // tokens that end the answer and are no text
    std::optional<recipe::AnswerReader> reader;  // none without a tokenizer
    std::optional<recipe::AnswerBody> body;
    Answer answer;
    std::vector<char> whole;                     // which calls are complete
    std::vector<recipe::TokenLogprob> logprobs;  // of one event, for the body
    bool stopped = false;                        // a stop text was found; what else comes is dropped
  };
  void take(Open& open, const Event& event, const OnDelta& on_delta);
  void deliver(Open& open, const OnDelta& on_delta);
  void finish(Open& open, const Finish& end, const OnDelta& on_delta, const OnAnswer& on_answer);

  Engine& engine_;
  const Tokenizer* tokenizer_;
  uint64_t seed_;  // of call ids
  std::map<RequestId, Open> open_;
};

/// `--stats`: prompt tokens (cached, replayed, new), time to first token, tokens/s, drafts offered and accepted by
/// position, peak memory of the process. Several lines. Of several answers (`answers` > 1) the times are the worst, and
/// rates are left out: they ran side by side.
std::string stats_text(const Usage& usage, int64_t answers = 1);
/// The line of it for experts that are streamed.
std::string stats_text(const StreamStatistics& stream);
/// Adds up what several answers cost; the times are the longest.
void add(Usage& total, const Usage& one);
/// Most resident memory of this process so far.
int64_t peak_memory_bytes();

}  // namespace fathom::cli
