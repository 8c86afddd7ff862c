// fathom/cli/answering.h
// Questions to texts: submits requests to an engine, turns its events into pieces of text as they come, finds stop
// texts, and gives each finished answer as one value. `generate`, its batch mode and `chat` share it.
#pragma once
#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "fathom/base/json.h"
#include "fathom/cli/plain_prompt.h"
#include "fathom/engine/engine.h"
#include "fathom/tokenizer/tokenizer.h"
#include "fathom/tokenizer/utf8_stream.h"

namespace fathom::cli {

struct Question {
  Request request;
  std::vector<std::string> stops;  // texts; the answer ends before the first that appears in it
  AnswerSplitter::Start start = AnswerSplitter::Start::plain;
  bool tools = false;  // the answer may hold a block of tool calls
};

struct Answer {
  std::string text, reasoning;
  std::vector<ToolCall> calls;
  std::vector<int32_t> ids;  // all that was generated, the end token included; cut at a stop text
  std::vector<TokenLogprob> logprobs, prompt_logprobs;
  std::string finish_reason;  // stop, length, tool_calls, cancelled, failed
  std::optional<Error> error;
  Usage usage;
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
  Answering(Engine& engine, const Tokenizer* tokenizer) : engine_(engine), tokenizer_(tokenizer) {}

  using OnPiece = std::function<void(int64_t key, const AnswerPiece& piece)>;
  using OnAnswer = std::function<void(int64_t key, Answer answer)>;

  /// Queues a question under the caller's key. Errors: those of Engine::submit; then nothing is queued.
  Result<void> ask(int64_t key, Question question);
  /// One step of the engine. Pieces of an answer come before the answer itself.
  void step(const OnPiece& on_piece, const OnAnswer& on_answer);
  void cancel(int64_t key);
  int64_t running() const { return int64_t(open_.size()); }

 private:
  struct Open {
    int64_t key = 0;
    Question question;
    AnswerSplitter splitter{AnswerSplitter::Start::plain, false};
    Utf8Stream utf8;
    Answer answer;
    std::string held, calls;  // text that may begin a stop text; markup of tool calls
    bool stopped = false;     // a stop text was found; what else comes is dropped
  };
  void take(Open& open, const Event& event, const OnPiece& on_piece);
  void show(Open& open, const AnswerPiece& piece, const OnPiece& on_piece);
  void finish(Open& open, const Finish& end, const OnPiece& on_piece, const OnAnswer& on_answer);

  Engine& engine_;
  const Tokenizer* tokenizer_;
  std::map<RequestId, Open> open_;
};

/// `--stats`: prompt tokens (cached, replayed, new), time to first token, tokens/s, drafts offered and accepted by
/// position, peak memory of the process. Several lines. Of several answers (`answers` > 1) the times are the worst, and
/// rates are left out: they ran side by side.
std::string stats_text(const Usage& usage, int64_t answers = 1);
/// Adds up what several answers cost; the times are the longest.
void add(Usage& total, const Usage& one);
/// Most resident memory of this process so far.
int64_t peak_memory_bytes();

}  // namespace fathom::cli
