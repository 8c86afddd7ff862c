// fathom/recipe/codec.h
// The front door: a request body of any of the three APIs to prompt tokens and settings, and the writer for its answer.
//
//   ConversionOptions options;
//   Result<CodecRequest> request = read_request(Api::chat_completions, body, options);
//   if (!request) return send(status_of(request.error()), error_body(request.error(), api, options.policy));
//   Prompt prompt = render(request->converted, options);
//   Result<std::vector<int32_t>> ids = encode(prompt, tokenizer);
//   … generate with request->converted.inference …
//   AnswerStream stream(make_writer(*request, {"chatcmpl-1", request->model, now}, &tokenizer),
//                       request->converted.parsing, &tokenizer, seed);
//
// Everything behind it can be used alone. No I/O, no state, thread-safe. Source: spec/recipe.md; docs/guides/codec.md.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "fathom/base/json.h"
#include "fathom/base/result.h"
#include "fathom/recipe/answer_stream.h"
#include "fathom/recipe/answer_writer.h"
#include "fathom/recipe/prompt.h"
#include "fathom/recipe/request_error.h"
#include "fathom/recipe/settings.h"

namespace fathom::recipe {

/// "chat", "responses", "messages": names in options and vectors. Nothing: no such API.
std::optional<Api> api_of(std::string_view name);
const char* name_of(Api api);
/// "default", "strict".
std::optional<Policy> policy_of(std::string_view name);
const char* name_of(Policy policy);

/// A request in every form that answering it needs.
struct CodecRequest {
  Api api = Api::chat_completions;
  std::string model;  // as the request spelt it; answers repeat it
  ConvertedRequest converted;
  bool include_usage = false;  // Chat: stream_options.include_usage
  ResponsesEcho echo;          // Responses
  NamespaceMap namespaces;     // Responses
};

/// Parses and converts. Errors: as request_error.h says; error_body makes the client's answer of them.
Result<CodecRequest> read_request(Api api, std::string_view body, const ConversionOptions& options);
/// The same from a tree, which it consumes.
Result<CodecRequest> read_request(Api api, Json body, const ConversionOptions& options);

/// The prompt of a converted request.
Prompt render(const ConvertedRequest& request, const ConversionOptions& options);

/// `tokenizer` names tokens in log-probabilities; it may be null when there are none, else it must outlive the result.
AnswerWriter make_writer(const CodecRequest& request, AnswerIdentity identity, const Tokenizer* tokenizer);
AnswerBody make_body(const CodecRequest& request, AnswerIdentity identity, const Tokenizer* tokenizer);
/// Appends the JSON of all that the body has got.
void append_body(std::string& out, const AnswerBody& body);

}  // namespace fathom::recipe
