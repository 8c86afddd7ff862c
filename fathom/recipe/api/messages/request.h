// fathom/recipe/api/messages/request.h
// A Messages request: parse (shape only), then convert (meaning). Source: spec/recipe.md 1, 1.1, 1.2, 4, 5;
// spec/codec-policy.md 1.
#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "fathom/base/json.h"
#include "fathom/base/result.h"
#include "fathom/recipe/settings.h"

namespace fathom::recipe {

struct MessagesRequestBody;  // the typed fields, in body.h

/// A request whose shape is right. Movable; converting consumes it.
class MessagesRequest {
 public:
  /// Errors: parse stage (bad_input), with the JSON path. The policy decides what is read at all (D-1, D-4, D-5, D-6).
  static Result<MessagesRequest> parse(std::string_view body, Policy policy = Policy::lenient);
  static Result<MessagesRequest> parse(Json body, Policy policy = Policy::lenient);

  MessagesRequest(MessagesRequest&&) noexcept;
  MessagesRequest& operator=(MessagesRequest&&) noexcept;
  ~MessagesRequest();

  /// The model's name as the request has it.
  const std::string& model() const;

  /// Errors: convert stage (usage), with the normative text and the JSON path where one value is at fault.
  Result<ConvertedRequest> convert(const ConversionOptions& options) &&;

 private:
  explicit MessagesRequest(std::unique_ptr<MessagesRequestBody> body);
  std::unique_ptr<MessagesRequestBody> body_;
};

}  // namespace fathom::recipe
