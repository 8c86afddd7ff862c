#include "fathom/recipe/answerable.h"

#include <gtest/gtest.h>

namespace fathom::recipe {
namespace {

CodecRequest request_of(Api api, const std::string& body) {
  auto request = read_request(api, std::string_view(body), ConversionOptions());
  EXPECT_TRUE(request.ok()) << body << to_string(request.error());
  return std::move(*request);
}

ConstraintCheck refusing(std::string where) {
  return [where](const grammar::Constraint&) -> Result<void> {
    return Error{ErrorCode::out_of_range, "too much", where, "ask for less"};
  };
}

const std::string kChat = R"({"model":"deepseek-flash","messages":[{"role":"user","content":"json"}])";

std::string chat_format(const std::string& format) { return kChat + R"(,"response_format":)" + format + "}"; }
std::string responses_format(const std::string& format) {
  return R"({"model":"deepseek-flash","input":"json","text":{"format":)" + format + "}}";
}

// Each API has its own member for the form of an answer; the check's path goes on from there.
TEST(Answerable, WhereAConstraintIsAskedForIsAPathInTheRequest) {
  const std::string schema = R"({"type":"json_schema","json_schema":{"name":"t","schema":{"type":"object"}}})";
  const std::string flat = R"({"type":"json_schema","name":"t","schema":{"type":"object"}})";
  struct Case {
    Api api;
    std::string body, inner, where, message;
  };
  const std::vector<Case> cases = {
      {Api::chat_completions, chat_format(schema), "properties.a", "response_format.json_schema.schema.properties.a",
       "too much"},
      {Api::chat_completions, chat_format(schema), "[3].x", "response_format.json_schema.schema[3].x", "too much"},
      {Api::chat_completions, chat_format(schema), "", "response_format.json_schema.schema", "too much"},
      {Api::chat_completions, chat_format(schema), "#/$defs/a", "response_format.json_schema.schema",
       "too much (#/$defs/a)"},
      {Api::responses, responses_format(flat), "properties.a", "text.format.schema.properties.a", "too much"},
  };
  for (const Case& one : cases) {
    const CodecRequest request = request_of(one.api, one.body);
    const auto kept = check_constraint(request, refusing(one.inner));
    ASSERT_FALSE(kept.ok());
    EXPECT_EQ(kept.error().code, ErrorCode::usage) << "whatever the check calls it, the request is at fault";
    EXPECT_EQ(kept.error().where, one.where);
    EXPECT_EQ(kept.error().message, one.message);
    EXPECT_EQ(kept.error().remedy, "ask for less");
    EXPECT_EQ(check_promise(request, refusing(one.inner)).error().where, one.inner) << "inside of the constraint";
    EXPECT_TRUE(check_constraint(request, [](const grammar::Constraint&) { return Result<void>(); }).ok());
  }
}

// Tools that may be called, none of them strict, promise nothing; a strict one does, and its path is one in the tools.
TEST(Answerable, OnlyWhatIsPromisedMustBeKept) {
  const std::string tools = R"(,"tools":[{"type":"function","function":{"name":"f"}}])";
  const std::string strict = R"(,"tools":[{"type":"function","function":{"name":"f","strict":true}}])";
  const CodecRequest free = request_of(Api::chat_completions, kChat + tools + "}");
  ASSERT_TRUE(free.converted.inference.constraint.has_value());
  EXPECT_FALSE(is_promise(*free.converted.inference.constraint));
  EXPECT_TRUE(check_constraint(free, refusing("x")).ok());
  const CodecRequest bound = request_of(Api::chat_completions, kChat + strict + "}");
  EXPECT_EQ(check_constraint(bound, refusing("tools[0].parameters")).error().where, "tools[0].parameters");
  EXPECT_TRUE(check_constraint(request_of(Api::chat_completions, kChat + "}"), refusing("x")).ok());
}

TEST(Answerable, TheFirstImageIsNamedByItsPath) {
  const CodecRequest request =
      request_of(Api::chat_completions, R"({"model":"deepseek-flash","messages":[{"role":"user","content":[)"
                                        R"({"type":"text","text":"see"},{"type":"image_url",)"
                                        R"("image_url":{"url":"data:image/png;base64,AAAA"}}]}]})");
  const auto seen = check_images(request);
  ASSERT_FALSE(seen.ok());
  EXPECT_EQ(seen.error().code, ErrorCode::usage);
  EXPECT_EQ(seen.error().where.find("messages[0]"), 0u) << seen.error().where;
  EXPECT_TRUE(check_images(request_of(Api::chat_completions, kChat + "}")).ok());
}

}  // namespace
}  // namespace fathom::recipe
