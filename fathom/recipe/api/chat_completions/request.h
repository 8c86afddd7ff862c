// fathom/recipe/api/chat_completions/request.h
// A Chat Completions request: parse (shape only), then convert (meaning). Source: spec/recipe.md 1, 1.1, 1.2, 2, 5;
// spec/codec-policy.md 1.
#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "fathom/base/json.h"
#include "fathom/base/result.h"
#include "fathom/recipe/settings.h"

namespace fathom::recipe {

struct ChatCompletionsRequestBody;  // the typed fields, in body.h

/// A request whose shape is right. Movable; converting consumes it.
class ChatCompletionsRequest {
 public:
  /// Errors: parse stage (bad_input), with the JSON path. The policy decides what is read at all (D-1, D-4, D-5, D-6).
  static Result<ChatCompletionsRequest> parse(std::string_view body, Policy policy = Policy::lenient);
  static Result<ChatCompletionsRequest> parse(Json body, Policy policy = Policy::lenient);

  ChatCompletionsRequest(ChatCompletionsRequest&&) noexcept;
  ChatCompletionsRequest& operator=(ChatCompletionsRequest&&) noexcept;
  ~ChatCompletionsRequest();

  /// The model's name as the request has it.
  const std::string& model() const;

  /// stream_options.include_usage: the final chunk's usage is announced by null in the others.
  bool include_usage() const;

  /// Errors: convert stage (usage), with the normative text and the JSON path where one value is at fault.
  Result<ConvertedRequest> convert(const ConversionOptions& options) &&;

 private:
  explicit ChatCompletionsRequest(std::unique_ptr<ChatCompletionsRequestBody> body);
  std::unique_ptr<ChatCompletionsRequestBody> body_;
};

}  // namespace fathom::recipe
