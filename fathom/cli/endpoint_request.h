// fathom/cli/endpoint_request.h
// What `fathom bench serve` says to an OpenAI-compatible endpoint and how it reads the answer. Pure.
//
// Lengths of a trace are tokens, an endpoint takes text: a stream of the trace becomes common short words, so that two
// prompts that share parts share text. How many tokens of the endpoint a word is, is asked before (endpoint_load.h);
// how many it really were, the endpoint's own usage tells.
#pragma once
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fathom/base/json.h"
#include "fathom/base/result.h"
#include "fathom/engine/trace.h"

namespace fathom::cli {

/// Words [0, words) of the stream `seed`, a blank before each.
void append_words(uint64_t seed, int64_t words, std::string& out);

/// One message of a prompt.
struct PromptPart {
  bool answer = false;  // said by the model before, else by the user
  std::string text;
};
/// The prompt of a trace's request. `answers`: texts that were really answered, by output_seed; a part that repeats one
/// is that text, whole. Neighbours of the same kind are joined; there is at least one part and the last is the user's.
/// `tokens_per_word`: of the endpoint.
std::vector<PromptPart> prompt_of(const TraceRequest& request, const std::map<uint64_t, std::string>& answers,
                                  double tokens_per_word = 1);

/// A prompt of a file: what is set of a request's body ("messages" or "prompt", perhaps "max_tokens").
/// A name that ends with .jsonl: one object a line; any other: each line that is not blank is a user message.
/// Errors: bad_input with the line.
Result<std::vector<Json>> read_prompts(std::string_view text, const std::string& where);

enum class EndpointApi { chat, completions };

/// The body of a streamed request that asks for usage at its end. `own` (of a prompt file) and then `more` (--body)
/// replace fields. A "prompt" on Chat Completions becomes a message; "messages" on completions is left as it is.
std::string body_of(EndpointApi api, const std::string& model, const std::vector<PromptPart>& prompt,
                    int64_t max_tokens, const Json* own, const Json& more);

/// One event of a streamed answer.
struct EndpointEvent {
  bool brings_text = false;  // text, reasoning or a piece of a tool call
  std::string text;          // of the answer, without reasoning
  std::string finish;        // finish_reason
  std::string error;         // its message, of an error in the stream
  std::string error_type;
  int64_t prompt_tokens = -1, cached_tokens = -1, output_tokens = -1;  // of usage; -1: not told
  bool done = false;                                                   // [DONE]
};
/// Errors: bad_input when it is no JSON object.
Result<EndpointEvent> read_event(std::string_view data);

/// The message of an error body, or the beginning of the body; one line.
std::string error_message_of(std::string_view body);

}  // namespace fathom::cli
