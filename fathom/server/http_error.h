// fathom/server/http_error.h
// A request that is not served, as its client sees it: status, body in the form of its API, Retry-After.
// Source: spec/codec-policy.md D-9 and 5.
#pragma once
#include <string>
#include <string_view>

#include "fathom/base/result.h"
#include "fathom/net/http_message.h"
#include "fathom/recipe/policy.h"

namespace fathom {

/// Which family of clients reads an error: {"error":{…}} or {"type":"error","error":{…},"request_id":…}.
enum class Dialect { openai, messages };

/// By path, and for paths that both families ask (/v1/models) by the header that only Anthropic's clients send.
Dialect dialect_of(const net::HttpRequest& request);

inline constexpr int kClientGone = 499;  // as nginx logs it; never sent

struct Refusal {
  int status = 400;
  Error error;                  // `message` is the whole text for the client, `where` its path in the body
  int retry_after_seconds = 0;  // 0: no such field
};

/// Of a failure before anything was generated. usage, bad_input, out_of_range: 400; out_of_memory: 429; interrupted,
/// failed and unsupported: 503. `retry_after_seconds` is taken for 429 and 503.
Refusal refusal_of(Error error, int retry_after_seconds);

/// The error's parts in one text for somebody who sees nothing else: "what: remedy".
Error told_to_client(Error error);

/// The whole answer, with Content-Type, Retry-After and WWW-Authenticate where they belong.
net::HttpAnswer error_answer(const Refusal& refusal, Dialect dialect, recipe::Policy policy,
                             std::string_view request_id);

/// The word of a status in the body: "rate_limit_error".
std::string_view error_type(int status, Dialect dialect);

}  // namespace fathom
