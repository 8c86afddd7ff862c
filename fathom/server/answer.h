// fathom/server/answer.h
// One answer on its way from the engine to a client: joins the events of a ticket to the codec's reader, and its parts
// to a writer of one API, as one JSON body or as server-sent events.
//
//   - A stream's header goes out with the first token, or half a second after the request: until then a failure is
//   still an
//     HTTP error, and no client waits a second for a sign (case http-04).
//   - After 10 s without an event the stream gives the sign of life that clients of its API count (codec-policy.md 5).
//     A complete answer sends its header and then blanks, which JSON allows before a value; if it fails after that, the
//     connection is cut, because its status can no longer be changed.
//   - A stop text ends the answer here; the engine is told, and its last event, a step later, brings the true counts.
//   - A client that is gone or reads too slowly costs at most the step that is running.
//
// An Answer lives on the thread of the answers (engine_service.h); it is made elsewhere and then handed over.
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "fathom/engine/request.h"
#include "fathom/net/http_server.h"
#include "fathom/recipe/answer_reader.h"
#include "fathom/recipe/answer_writer.h"
#include "fathom/server/engine_service.h"
#include "fathom/server/http_error.h"
#include "fathom/server/text_completion.h"

namespace fathom {

using StreamWriter =
    std::variant<recipe::ChatCompletionsWriter, recipe::ResponsesWriter, recipe::MessagesWriter, TextCompletionWriter>;
using BodyWriter =
    std::variant<recipe::ChatCompletionsBody, recipe::ResponsesBody, recipe::MessagesBody, TextCompletionBody>;

/// How the answer ended: for the log, the metrics and the limits of the key.
struct AnswerOutcome {
  int status = 200;           // 499: the client went away before the end
  std::string finish_reason;  // stop, length, tool_calls, cancelled, rejected, failed
  std::optional<Error> error;
  Usage usage;         // of the engine
  recipe::Usage told;  // as the client was told
  int calls_dropped = 0;
  int64_t arguments_repaired = 0;
  std::string body;  // complete, when it was collected
};

struct AnswerPlan {
  std::optional<StreamWriter> writer;  // of a streamed answer
  std::optional<BodyWriter> body;      // of a complete one, or of one that shall be kept
  recipe::Parsing parsing;
  std::vector<int32_t> end_ids;  // tokens that end the answer and are no text
  int64_t prompt_tokens = 0;
  bool starts_early = false;  // the opening events come with the header (Responses, Messages), not with the first token
  bool done_frame = false;    // the stream ends with [DONE]
  bool receipt = false;
  std::string fingerprint;
  Dialect dialect = Dialect::openai;
  recipe::Policy policy = recipe::Policy::lenient;
  std::string request_id;
  net::HttpFields fields;  // of every answer to this request
  std::chrono::steady_clock::time_point begun;
  std::function<int()> retry_after_seconds;
  std::function<void(const std::string& body)> keep;  // gets the complete body before the client does; may be empty
  std::function<void(int64_t completion_tokens)> on_complete;  // once, before the client sees the end; may be empty
  std::function<void(AnswerOutcome)> on_end;                   // once, as the last thing

  std::chrono::milliseconds header_delay{500};
  std::chrono::milliseconds silence{10'000};  // then a sign of life
};

class Answer {
 public:
  /// `seed` makes ids of calls. Both pointers must outlive it.
  Answer(AnswerPlan plan, std::shared_ptr<net::HttpResponder> responder, EngineService& engine,
         const Tokenizer* tokenizer, uint64_t seed);

  void on_event(const Event& event);
  void on_tick(Ticket ticket);

 private:
  using Clock = std::chrono::steady_clock;
  void feed(const Event& event);
  void deliver();
  void start();
  void begin_stream();
  void flush();
  void give_up(Ticket ticket);
  void end(const Finish& finish);
  void end_well(const Finish& finish);
  void end_badly(const Error& error);
  void give_life();

  AnswerPlan plan_;
  std::shared_ptr<net::HttpResponder> responder_;
  EngineService& engine_;
  recipe::AnswerReader reader_;
  recipe::WireEvents wire_;
  std::string frames_;
  std::vector<recipe::TokenLogprob> logprobs_;
  Clock::time_point last_write_;
  int64_t cached_tokens_ = 0;  // of the prompt; known with the first token
  bool header_sent_ = false;   // begin_stream was called
  bool started_ = false;       // the opening events are out
  bool stopped_ = false;       // a stop text was found
  bool given_up_ = false;      // nobody reads any more
  AnswerOutcome outcome_;
};

/// The sink that hands a request's events to its answer.
RequestSink sink_of(std::shared_ptr<Answer> answer);

}  // namespace fathom
