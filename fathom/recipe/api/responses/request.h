// fathom/recipe/api/responses/request.h
// A Responses request: parse (shape only), then convert (meaning). Source: spec/recipe.md 1, 1.1, 1.2, 3, 5;
// spec/codec-policy.md 1.
#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "fathom/base/json.h"
#include "fathom/base/result.h"
#include "fathom/recipe/api/responses/echo.h"
#include "fathom/recipe/settings.h"

namespace fathom::recipe {

struct ResponsesRequestBody;  // the typed fields, in body.h

/// A request whose shape is right. Movable; converting consumes it.
class ResponsesRequest {
 public:
  /// Errors: parse stage (bad_input), with the JSON path. The policy decides what is read at all (D-1, D-4, D-5, D-6).
  static Result<ResponsesRequest> parse(std::string_view body, Policy policy = Policy::lenient);
  static Result<ResponsesRequest> parse(Json body, Policy policy = Policy::lenient);

  ResponsesRequest(ResponsesRequest&&) noexcept;
  ResponsesRequest& operator=(ResponsesRequest&&) noexcept;
  ~ResponsesRequest();

  /// The model's name as the request has it.
  const std::string& model() const;

  /// What the response object repeats, and the full names of the declared namespace tools. Read both before converting.
  ResponsesEcho echo() const;
  Result<NamespaceMap> namespaces(const ConversionOptions& options) const;

  /// Errors: convert stage (usage), with the normative text and the JSON path where one value is at fault.
  Result<ConvertedRequest> convert(const ConversionOptions& options) &&;

 private:
  explicit ResponsesRequest(std::unique_ptr<ResponsesRequestBody> body);
  std::unique_ptr<ResponsesRequestBody> body_;
};

}  // namespace fathom::recipe
