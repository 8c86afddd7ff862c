// fathom/recipe/answer.h
// The parts of an answer as they come out of the parser and go into a writer, and the text that a writer makes of them.
// Source: spec/recipe.md 8.2 to 8.5, 9.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fathom/base/result.h"
#include "fathom/recipe/policy.h"

namespace fathom::recipe {

/// One generated token with its log-probability (natural) and the likeliest alternatives, as the engine gives them.
struct TokenLogprob {
  int32_t id = 0;
  float logprob = 0;
  std::vector<std::pair<int32_t, float>> top;
};

/// A piece of an answer. Views live until the next call of whoever gave it out.
struct Delta {
  enum class Kind {
    reasoning,    // text
    content,      // text
    call,         // a call is announced: text = name of the function, id = call id
    arguments,    // text = more of the call's arguments (JSON text)
    call_end,     // the call's closing tag was seen, or it was completed at the end (D-12)
    call_dropped  // lenient only: the output ended inside the call; nobody may run it (D-12)
  };
  Kind kind = Kind::content;
  int call = 0;  // number of the call, from 0; calls only
  std::string_view text;
  std::string_view id;                     // Kind::call only
  std::span<const TokenLogprob> logprobs;  // reasoning and content, when the engine gave any
};

enum class FinishReason { stop, length, content_filter, tool_calls };

struct PromptUsage {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
};

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t reasoning_tokens = 0;  // known when `count_reasoning`
  bool count_reasoning = false;  // Chat shows completion_tokens_details only then
};

struct AnswerStart {
  PromptUsage prompt;
  std::string_view system_fingerprint;  // may be empty: null
  bool has_fingerprint = false;
};

struct AnswerEnd {
  FinishReason reason = FinishReason::stop;
  std::optional<std::string_view> stop_sequence;  // the stop sequence that ended it
  Usage usage;
};

/// Who answers whom: what every chunk repeats.
struct AnswerIdentity {
  std::string id;       // response id
  std::string model;    // as the request spelt it
  int64_t created = 0;  // Unix seconds
};

/// Events on their way out: JSON texts one behind the other in one buffer, so that a steady stream allocates nothing.
/// The owner clears it when they are sent.
struct WireEvents {
  struct Event {
    std::string_view name;  // SSE event name, a literal; empty: none (Chat)
    size_t begin, end;      // the JSON in `text`
    bool comment = false;   // no event but a sign of life: an SSE comment without JSON
  };
  std::string text;
  std::vector<Event> events;

  void clear() { text.clear(), events.clear(); }
  std::string_view json(const Event& event) const {
    return std::string_view(text).substr(event.begin, event.end - event.begin);
  }
  /// What was appended to `text` since `begin` is an event.
  void add(std::string_view name, size_t begin) { events.push_back({name, begin, text.size()}); }
  void add_comment() { events.push_back({"", text.size(), text.size(), true}); }
};

/// Appends the events as SSE frames (`event: NAME\ndata: JSON\n\n`; a comment is `: keep-alive\n\n`).
void append_sse(std::string& out, const WireEvents& events);

/// The word for a failure in an error body or event: "invalid_request_error" for what the request caused (usage,
/// bad_input, out_of_range), else "server_error"; in Messages "overloaded_error" when the service has no room
/// (out_of_memory, interrupted), else "api_error". Source: spec/codec-policy.md 5.
std::string_view failure_type(ErrorCode code, Api api);

}  // namespace fathom::recipe
