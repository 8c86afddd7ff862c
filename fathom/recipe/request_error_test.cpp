// The body of a refusal: spec/recipe.md 1.4, spec/codec-policy.md D-9.
#include "fathom/recipe/request_error.h"

#include <gtest/gtest.h>

namespace fathom::recipe {
namespace {

const Error kValue = convert_error("Invalid \"n\"", "n");
const Error kContext{ErrorCode::out_of_range, "too long", "", ""};

TEST(RequestError, StrictHasOneFlatFormForAllApis) {
  for (const Api api : {Api::chat_completions, Api::responses, Api::messages}) {
    for (const Error& error : {kValue, kContext}) {
      const std::string quoted = error.code == ErrorCode::usage ? R"(Invalid \"n\")" : "too long";
      EXPECT_EQ(error_body(error, api, Policy::strict, "req_1"),
                R"({"error":{"message":")" + quoted +
                    R"(","type":"invalid_request_error","param":null,"code":"invalid_request_error"}})");
    }
  }
}

TEST(RequestError, LenientNamesTheValueAndTheContext) {
  EXPECT_EQ(error_body(kValue, Api::responses, Policy::lenient),
            R"({"error":{"message":"Invalid \"n\"","type":"invalid_request_error","param":"n",)"
            R"("code":"invalid_request_error"}})");
  EXPECT_EQ(error_body(kContext, Api::chat_completions, Policy::lenient),
            R"({"error":{"message":"too long","type":"invalid_request_error","param":null,)"
            R"("code":"context_length_exceeded"}})");
}

TEST(RequestError, LenientGivesMessagesItsOwnEnvelope) {
  EXPECT_EQ(
      error_body(kValue, Api::messages, Policy::lenient, "req_1"),
      R"({"type":"error","error":{"type":"invalid_request_error","message":"Invalid \"n\""},"request_id":"req_1"})");
  EXPECT_EQ(error_body(kValue, Api::messages, Policy::lenient),
            R"({"type":"error","error":{"type":"invalid_request_error","message":"Invalid \"n\""},"request_id":null})");
}

TEST(RequestError, EveryRefusalIsStatus400) {
  EXPECT_EQ(status_of(kValue), 400);
  EXPECT_EQ(status_of(kContext), 400);
  EXPECT_EQ(status_of(parse_error("a", "b")), 400);
  EXPECT_EQ(parse_error("a", "b").message, "invalid request body: b");
}

}  // namespace
}  // namespace fathom::recipe
