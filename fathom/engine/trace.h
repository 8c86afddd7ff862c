// fathom/engine/trace.h
// A request trace: when which request comes, how long it is, what it shares with others. It names no token: texts are
// streams of random ids by seed, so that a trace of a million requests is small, holds nobody's words, and gives the
// prefix cache exactly the hits that the recorded requests gave it. One JSON object a line:
// docs/formats/request-trace.md. Runs on the simulator (simulator.h) and on the real engine (`fathom bench engine`).
// Source: issue 5 item 8; spec/engine.md 18.1.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fathom/base/result.h"

namespace fathom {

/// Tokens [0, tokens) of the stream `seed`.
struct TextPart {
  uint64_t seed = 0;  // below 2^63
  int64_t tokens = 0;
  friend bool operator==(const TextPart&, const TextPart&) = default;
};

struct TraceRequest {
  double arrival = 0;  // seconds since the start of the trace
  int64_t prompt_tokens = 1;
  int64_t output_tokens = 1;     // after so many the model ends its answer
  int64_t max_tokens = 0;        // that the request allows; 0: output_tokens
  int answers = 1;               // of the same prompt: branches
  std::vector<TextPart> prefix;  // how the prompt begins; it goes on with the stream `seed`
  uint64_t seed = 0, output_seed = 0;

  std::string tenant;
  int priority = 0;
  std::optional<double> first_token_seconds, between_tokens_seconds;  // targets
  std::string session;                                                // requests of one session follow each other
  std::optional<double> pause_seconds;   // it comes so long after the session's request before has ended
  std::optional<double> cancel_seconds;  // after its arrival
  std::vector<double> acceptance;        // of draft 1, 2, ... if those before it were accepted; empty: the simulator's
  friend bool operator==(const TraceRequest&, const TraceRequest&) = default;
};

inline constexpr int64_t kMostTraceTokens = 10'000'000;  // of a prompt or an answer
inline constexpr int kMostTraceAnswers = 64;

struct TraceFile {
  std::vector<TraceRequest> requests;  // in the order of the file
  std::vector<Error> errors;           // one for each bad line: line number, key, remedy
};

/// Reads all lines; blank ones are skipped. `where` names the source. A request that gives no seed gets one of its
/// own, by its line. Never fails as a whole: bad lines are in `errors` and nowhere else.
TraceFile parse_trace(std::string_view text, const std::string& where);
/// The requests, or the first error with the number of further bad lines; bad_input also for a trace without requests.
Result<std::vector<TraceRequest>> read_trace(std::string_view text, const std::string& where);

/// One line for each request; what is at its default is left out, seeds never are. Reads back as the same value.
std::string write_trace(const std::vector<TraceRequest>& requests);

/// Token `index` of the stream `seed`, in [2, vocabulary): 0 and 1 are left to special tokens. Pure.
int32_t stream_token(uint64_t seed, int64_t index, int32_t vocabulary);
/// Appends tokens [0, count) of a stream.
void append_stream(uint64_t seed, int64_t count, int32_t vocabulary, std::vector<int32_t>& out);
/// The prompt as ids.
std::vector<int32_t> trace_prompt(const TraceRequest& request, int32_t vocabulary);
/// Seed of answer `answer` of the request: output_seed itself for the first.
uint64_t output_seed_of(const TraceRequest& request, int answer);

}  // namespace fathom
