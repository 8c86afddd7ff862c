// fathom/cli/endpoint_load.h
// A load of requests on an OpenAI-compatible endpoint over HTTP, by the wall clock: what `fathom bench serve` measures.
//
// A request is due at its time. Each stream has a thread of its own (the HTTP client blocks), at most kMostStreams; a
// request that is due while all are taken waits, and its times count from when it was due, not from when it was sent:
// a slow endpoint must not make its own load lighter.
#pragma once
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "fathom/base/json.h"
#include "fathom/base/result.h"
#include "fathom/cli/endpoint_request.h"
#include "fathom/engine/load_report.h"
#include "fathom/engine/trace.h"

namespace fathom::cli {

inline constexpr int64_t kMostStreams = 1024;

struct EndpointLoadOptions {
  std::string url;      // "http://127.0.0.1:8000": /v1/… is appended unless it ends with /v1
  std::string api_key;  // sent as a bearer token; empty: none
  EndpointApi api = EndpointApi::chat;
  std::string model;
  Json body = Json::object();          // more fields of every request
  std::span<const Json> prompts = {};  // of a file: request i takes prompt i mod n; empty: those of the trace
  int64_t streams = kMostStreams;      // at most so many at once
  double tokens_per_word = 1;          // of made-up prompts
  bool back_to_back = false;           // closed loop: a request is due as soon as a stream is free
  double seconds = 0;                  // after so many no further request is sent; 0: all are
};

/// Failures of one kind.
struct EndpointFailures {
  int64_t count = 0;
  std::string first;  // message of the first
};

struct EndpointLoad {
  LoadReport load;  // `rejected`: answered 429 or 503; `queue`: waited for a free stream; `gap`: between two events
  std::map<std::string, EndpointFailures> failures;  // "HTTP 429", "no answer", "broken answer", "error in the
                                                     // stream: TYPE", "no end of the stream", "unreadable event"
  int64_t most_running = 0;
  bool interrupted = false;  // by `tick`; what ran was cut and counts as cancelled
};

/// Where a load stands; of the last second: rates; of the last 1,000 or so: percentiles.
struct EndpointProgress {
  double seconds = 0;
  int64_t sent = 0, running = 0, ended = 0, failed = 0, total = 0;
  double requests_per_s = 0, events_per_s = 0;  // an event brings one token or, with drafts, several
  Quantiles first_token, gap, total_time;
};

/// Sends everything and waits for the ends. `tick` is called by the calling thread several times a second; false: cut
/// what runs and end. Errors: none of its own; what goes wrong with a request is counted.
EndpointLoad run_endpoint_load(std::span<const TraceRequest> trace, const EndpointLoadOptions& options,
                               const std::function<bool(const EndpointProgress&)>& tick);

/// Asks for two answers of one token, to see that requests of this form are answered and how many tokens a word of a
/// made-up prompt is; 1 when the endpoint tells no usage. Errors: bad_input with what the endpoint says.
Result<double> first_requests(const EndpointLoadOptions& options);

struct EndpointModel {
  std::string name;
  int64_t context = 0;  // longest prompt and answer together in tokens; 0: not told
};
/// Asks for the endpoint's models: is somebody there, is the key right? The model of this name, or the first one.
/// Errors: bad_input when it cannot be reached, refuses the key, or does not answer as an OpenAI-compatible one. A
/// name that is not listed, or no list at all, is no error when a name is given.
Result<EndpointModel> find_model(const std::string& url, const std::string& api_key, const std::string& name);

}  // namespace fathom::cli
