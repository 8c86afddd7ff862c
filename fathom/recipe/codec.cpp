#include "fathom/recipe/codec.h"

#include "fathom/recipe/api/chat_completions/request.h"
#include "fathom/recipe/api/field.h"
#include "fathom/recipe/api/messages/request.h"
#include "fathom/recipe/api/responses/request.h"

namespace fathom::recipe {
namespace {

/// What all three have in common once they are parsed.
template <class Request>
Result<CodecRequest> converted(Result<Request> parsed, const ConversionOptions& options, CodecRequest out) {
  if (!parsed) return parsed.error();
  out.model = parsed->model();
  auto converted = std::move(*parsed).convert(options);
  if (!converted) return converted.error();
  out.converted = std::move(*converted);
  return out;
}

ChatCompletionsForm chat_form(const CodecRequest& request, AnswerIdentity identity, const Tokenizer* tokenizer) {
  ChatCompletionsForm form;
  form.identity = std::move(identity);
  form.thinking = request.converted.conversation.thinking;
  form.starts_in_content = request.converted.parsing.stage == ThinkingStage::content_continuation;
  form.stream = request.converted.stream;
  form.include_usage = request.include_usage;
  form.tokenizer = tokenizer;
  return form;
}

ResponsesForm responses_form(const CodecRequest& request, AnswerIdentity identity, const Tokenizer* tokenizer) {
  ResponsesForm form;
  form.identity = std::move(identity);
  form.echo = request.echo;
  form.namespaces = request.namespaces;
  form.found_patch = request.converted.found_patch;
  form.tokenizer = tokenizer;
  form.policy = request.converted.parsing.policy;
  return form;
}

MessagesForm messages_form(const CodecRequest& request, AnswerIdentity identity) {
  MessagesForm form;
  form.identity = std::move(identity);
  form.thinking = request.converted.conversation.thinking;
  form.policy = request.converted.parsing.policy;
  return form;
}

}  // namespace

std::optional<Api> api_of(std::string_view name) {
  for (Api api : {Api::chat_completions, Api::responses, Api::messages}) {
    if (name == name_of(api)) return api;
  }
  return {};
}

const char* name_of(Api api) {
  switch (api) {
    case Api::chat_completions: return "chat";
    case Api::responses: return "responses";
    case Api::messages: return "messages";
  }
  return "?";
}

std::optional<Policy> policy_of(std::string_view name) {
  if (name == "default") return Policy::lenient;
  if (name == "strict") return Policy::strict;
  return {};
}

const char* name_of(Policy policy) { return policy == Policy::strict ? "strict" : "default"; }

Result<CodecRequest> read_request(Api api, std::string_view body, const ConversionOptions& options) {
  auto tree = parse_body(body);
  if (!tree) return tree.error();
  return read_request(api, std::move(*tree), options);
}

Result<CodecRequest> read_request(Api api, Json body, const ConversionOptions& options) {
  CodecRequest out;
  out.api = api;
  switch (api) {
    case Api::chat_completions: {
      auto parsed = ChatCompletionsRequest::parse(std::move(body), options.policy);
      if (parsed) out.include_usage = parsed->include_usage();
      return converted(std::move(parsed), options, std::move(out));
    }
    case Api::responses: {
      auto parsed = ResponsesRequest::parse(std::move(body), options.policy);
      if (!parsed) return parsed.error();
      out.echo = parsed->echo();
      // A declaration that has no full names is refused by convert() too, in its own order of checks.
      if (auto namespaces = parsed->namespaces(options)) out.namespaces = std::move(*namespaces);
      return converted(std::move(parsed), options, std::move(out));
    }
    case Api::messages:
      return converted(MessagesRequest::parse(std::move(body), options.policy), options, std::move(out));
  }
  return Error{ErrorCode::failed, "no such API", "", ""};
}

Prompt render(const ConvertedRequest& request, const ConversionOptions& options) {
  return render(request.conversation, request.version, options.spellings);
}

AnswerWriter make_writer(const CodecRequest& request, AnswerIdentity identity, const Tokenizer* tokenizer) {
  switch (request.api) {
    case Api::responses: return ResponsesWriter(responses_form(request, std::move(identity), tokenizer));
    case Api::messages: return MessagesWriter(messages_form(request, std::move(identity)));
    case Api::chat_completions: break;
  }
  return ChatCompletionsWriter(chat_form(request, std::move(identity), tokenizer));
}

AnswerBody make_body(const CodecRequest& request, AnswerIdentity identity, const Tokenizer* tokenizer) {
  switch (request.api) {
    case Api::responses: return ResponsesBody(responses_form(request, std::move(identity), tokenizer));
    case Api::messages: return MessagesBody(messages_form(request, std::move(identity)));
    case Api::chat_completions: break;
  }
  return ChatCompletionsBody(chat_form(request, std::move(identity), tokenizer));
}

void append_body(std::string& out, const AnswerBody& body) {
  std::visit([&](const auto& one) { one.append_to(out); }, body);
}

}  // namespace fathom::recipe
