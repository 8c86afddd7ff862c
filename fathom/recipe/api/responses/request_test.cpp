// Responses requests: the rules D-1 to D-9 (lenient), and what docs/recipe-findings.md says of them. Vector rows and
// cases are run by recipe/conformance.
#include "fathom/recipe/api/responses/request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fathom/base/mapped_file.h"
#include "fathom/recipe/api/responses/apply_patch.h"
#include "fathom/recipe/describe.h"
#include "fathom/recipe/request_error.h"

namespace fathom::recipe {
namespace {

using testing::ElementsAre;
using testing::Pair;
using testing::StartsWith;

constexpr Api kApi = Api::responses;

Result<ConvertedRequest> convert(std::string_view body, const ConversionOptions& options) {
  auto request = ResponsesRequest::parse(body, options.policy);
  if (!request) return request.error();
  return std::move(*request).convert(options);
}

ConversionOptions with(Policy policy) {
  ConversionOptions options;
  options.policy = policy;
  return options;
}

/// A V4.1 request with these members.
std::string request_with(std::string_view members) {
  return R"({"model":"DeepSeek-V4.1-Flash",)" + std::string(members) + "}";
}
std::string v4_request_with(std::string_view members) {
  return R"({"model":"DeepSeek-V4-Pro",)" + std::string(members) + "}";
}

std::string message_of(const Result<ConvertedRequest>& result) { return result ? "accepted" : result.error().message; }

/// One line a message: "assistant[reasoning] content (call:name …)".
std::vector<std::string> lines_of(const Result<ConvertedRequest>& result) {
  if (!result) return {result.error().message};
  std::vector<std::string> lines;
  for (const Message& message : result->conversation.messages) {
    std::string line = name_of(message.role);
    if (!message.reasoning.value_or("").empty()) line += '[' + *message.reasoning + ']';
    if (message.call_id) line += '(' + *message.call_id + ')';
    line += ' ' + message.content;
    if (message.calls) {
      for (const ToolCall& call : *message.calls) line += " (" + call.id + ':' + call.name + ')';
    }
    if (message.tools) {
      for (const ToolDefinition& tool : *message.tools) line += " +" + tool.name;
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

std::vector<std::string> strict_lines(const std::string& input) {
  return lines_of(convert(request_with("\"input\":" + input), with(Policy::strict)));
}
std::vector<std::string> lenient_lines(const std::string& input) {
  return lines_of(convert(request_with("\"input\":" + input), with(Policy::lenient)));
}

std::vector<std::string> tool_names(const Result<ConvertedRequest>& result) {
  if (!result) return {result.error().message};
  std::vector<std::string> names;
  for (const ToolDefinition& tool : result->conversation.tools) names.push_back(tool.name);
  return names;
}

// -- turns ----------------------------------------------------------------------------------------------------------

std::string user(const std::string& text) { return R"({"role":"user","content":")" + text + R"("})"; }
std::string assistant(const std::string& text) { return R"({"role":"assistant","content":")" + text + R"("})"; }
std::string reasoning(const std::string& text) {
  return R"({"type":"reasoning","content":[{"type":"reasoning_text","text":")" + text + R"("}]})";
}
std::string call(const std::string& id) {
  return R"({"type":"function_call","call_id":")" + id + R"(","name":"f","arguments":"{}"})";
}
std::string output(const std::string& id) {
  return R"({"type":"function_call_output","call_id":")" + id + R"(","output":"o)" + id + R"("})";
}
std::string search(const std::string& id, const std::string& tools) {
  return R"({"type":"tool_search_call","call_id":")" + id + R"(","arguments":{"q":1.50}},)" +
         R"({"type":"tool_search_output","call_id":")" + id + R"(","tools":[)" + tools + "]}";
}
std::string list(std::initializer_list<std::string> items) {
  std::string out = "[";
  for (const std::string& item : items) out += (out.size() > 1 ? "," : "") + item;
  return out + "]";
}

TEST(ResponsesRequest, MergesReasoningTextsAndCallsOfOneTurn) {
  EXPECT_THAT(strict_lines(list({reasoning("1"), reasoning("2"), assistant("a"), assistant("b"), call("c"), output("c"),
                                 reasoning("3"), assistant("d")})),
              ElementsAre("assistant[1\n2] a\n\nb (c:f)", "tool(c) oc", "assistant[3] d"));
  EXPECT_THAT(strict_lines(list({reasoning("1"), assistant("a"), reasoning("2"), call("c"), output("c")})),
              ElementsAre("assistant[1] a", "assistant[2]  (c:f)", "tool(c) oc"));
  EXPECT_THAT(strict_lines(list({reasoning("1"), user("u"), reasoning("2")})),
              ElementsAre("assistant[1] ", "user u", "assistant[2] "));
}

TEST(ResponsesRequest, EmptyReasoningAndEmptyTextLeaveNoTraceInATurn) {
  EXPECT_THAT(strict_lines(list({assistant("a"), reasoning(""), assistant(""), assistant("b")})),
              ElementsAre("assistant a\n\nb"));
  EXPECT_THAT(strict_lines(list({user("u"), R"({"type":"reasoning","summary":[]})"})), ElementsAre("user u"));
  EXPECT_THAT(strict_lines(list({assistant("")})), ElementsAre("assistant "));
}

TEST(ResponsesRequest, WithThinkingOffReasoningIsNotKeptButItsTurnIs) {
  const auto result =
      convert(request_with(R"("reasoning":{"effort":"none"},"input":)" + list({reasoning("r")})), with(Policy::strict));
  ASSERT_TRUE(result.ok());
  ASSERT_EQ(result->conversation.messages.size(), 1u);
  EXPECT_FALSE(result->conversation.messages[0].reasoning);
}

TEST(ResponsesRequest, CallsOfATurnStandById) {
  EXPECT_THAT(strict_lines(list({call("z"), call("a"), output("z"), call("m"), output("m"), output("a")})),
              ElementsAre("assistant  (a:f) (m:f) (z:f)", "tool(a) oa", "tool(m) om", "tool(z) oz"));
  EXPECT_THAT(strict_lines(list({call("2"), output("2"), call("1"), output("1")})),
              ElementsAre("assistant  (2:f)", "tool(2) o2", "assistant  (1:f)", "tool(1) o1"));
}

TEST(ResponsesRequest, RefusesCallsAndOutputsThatDoNotMeet) {
  EXPECT_THAT(strict_lines(list({output("1")})), ElementsAre("No tool call found for tool output with call_id 1."));
  EXPECT_THAT(strict_lines(list({call("1"), output("1"), output("1")})),
              ElementsAre("Duplicate tool output for call_id: 1."));
  EXPECT_THAT(strict_lines(list({call("1"), output("1"), user("u"), call("1")})),
              ElementsAre("Duplicate 'call_id': 1."));
  EXPECT_THAT(strict_lines(list({call("1"), R"({"type":"web_search_call"})", output("1")})),
              ElementsAre("No tool output found for tool call 1."));
  EXPECT_THAT(strict_lines(list({user("u"), call("")})),
              ElementsAre("Invalid 'input[1].call_id': empty string. Expected a string with minimum length 1, but got "
                          "an empty string instead."));
}

TEST(ResponsesRequest, AnOutputWithoutCallIdStandsForItself) {
  EXPECT_THAT(strict_lines(list({assistant("a"), R"({"type":"function_call_output","output":"x"})", assistant("b")})),
              ElementsAre("assistant a", "tool x", "assistant b"));
  EXPECT_THAT(strict_lines(list({call("1"), R"({"type":"function_call_output","output":"x"})", output("1")})),
              ElementsAre("No tool output found for tool call 1."));
}

TEST(ResponsesRequest, ACustomOutputMayBeAbsent) {
  EXPECT_THAT(strict_lines(list({R"({"type":"custom_tool_call","call_id":"1","name":"apply_patch","input":""})",
                                 R"({"type":"custom_tool_call_output","call_id":"1"})"})),
              ElementsAre("assistant  (1:apply_patch)", "tool(1) "));
}

TEST(ResponsesRequest, UnknownItemsLeaveNoTrace) {
  EXPECT_THAT(strict_lines(list({assistant("a"), R"({"type":"item_reference","id":"x"})", assistant("b"), call("1"),
                                 R"({"type":"computer_call"})", output("1")})),
              ElementsAre("assistant a\n\nb (1:f)", "tool(1) o1"));
}

TEST(ResponsesRequest, DeveloperIsASystemMessageInV41AndAUserMessageInV4) {
  const std::string input = R"("instructions":"i","input":[{"role":"developer","content":"d"},)" + user("u") + "]";
  EXPECT_THAT(lines_of(convert(request_with(input), with(Policy::strict))),
              ElementsAre("system i", "system d", "user u"));
  EXPECT_THAT(lines_of(convert(v4_request_with(input), with(Policy::strict))),
              ElementsAre("system i", "user d", "user u"));
}

TEST(ResponsesRequest, ACustomCallHasItsInputAsTheOneArgument) {
  const auto result =
      convert(request_with(
                  R"("input":[{"type":"custom_tool_call","call_id":"1","name":"apply_patch","input":"a\n\"b\"\u0001"},)"
                  R"({"type":"custom_tool_call_output","call_id":"1","output":"ok"}])"),
              with(Policy::strict));
  ASSERT_TRUE(result.ok()) << message_of(result);
  EXPECT_EQ((*result->conversation.messages[0].calls)[0].arguments, R"({"input":"a\n\"b\"\u0001"})");
}

// -- tools ----------------------------------------------------------------------------------------------------------

constexpr const char* kFunction = R"({"type":"function","name":"f"})";

TEST(ResponsesRequest, FoundToolsAreDeclaredLateAndAnnouncedBehindTheirTurn) {
  const auto result =
      convert(request_with("\"input\":" + list({search("1", R"({"type":"namespace","name":"n","description":"D",)"
                                                            R"("tools":[{"type":"function","name":"g"}]})"),
                                                call("2"), output("2")})),
              with(Policy::strict));
  EXPECT_THAT(
      lines_of(result),
      ElementsAre("assistant  (1:tool_search)",
                  R"(tool(1) [{"type":"function","name":"g","description":null,"parameters":null,"strict":null,)"
                  R"("namespace":{"name":"n","description":"D"}}])",
                  "system  +n::g", "assistant  (2:f)", "tool(2) o2"));
  ASSERT_TRUE(result.ok());
  EXPECT_EQ((*result->conversation.messages[0].calls)[0].arguments, R"({"q":1.5})");
  EXPECT_TRUE(result->conversation.tools[0].defer_loading);
  EXPECT_EQ(result->conversation.tools[0].description, "D\n");
}

TEST(ResponsesRequest, V4KnowsNothingOfToolSearches) {
  EXPECT_THAT(lines_of(convert(v4_request_with("\"input\":" + list({user("u"), search("1", kFunction)})),
                               with(Policy::strict))),
              ElementsAre("user u"));
}

TEST(ResponsesRequest, AChoiceReducesTheAnnouncementsToo) {
  const std::string found = "\"reasoning\":{\"effort\":\"none\"},\"input\":" +
                            list({search("1", R"({"type":"function","name":"g"},{"type":"function","name":"h"})")});
  const auto announced = [&](const std::string& choice) {
    const auto lines = lines_of(convert(request_with("\"tool_choice\":" + choice + "," + found), with(Policy::strict)));
    return lines.size() == 3 ? lines[2] : std::to_string(lines.size()) + " messages";
  };
  EXPECT_EQ(announced(R"("auto")"), "system  +g +h");
  EXPECT_EQ(announced(R"({"type":"function","name":"h"})"), "system  +h");
  EXPECT_EQ(announced(R"("none")"), "2 messages");
}

TEST(ResponsesRequest, V4NamesOfNamespaceMembersAvoidEachOther) {
  const std::string tools =
      R"("input":"x","tools":[{"type":"namespace","name":"a","tools":[{"type":"function","name":"b__c"},)"
      R"({"type":"function","name":"_d"}]},{"type":"namespace","name":"a__b","tools":[{"type":"function","name":"c"}]},)"
      R"({"type":"namespace","name":"n_","tools":[{"type":"function","name":"f"}]},{"type":"function","name":"n_f"}])";
  const auto result = convert(v4_request_with(tools), with(Policy::strict));
  EXPECT_THAT(tool_names(result), ElementsAre("a__b__c", "a_d", "a__b__c_1", "n_f_1", "n_f"));
  const auto request = ResponsesRequest::parse(v4_request_with(tools));
  ASSERT_TRUE(request.ok());
  const auto map = request->namespaces(with(Policy::strict));
  ASSERT_TRUE(map.ok());
  EXPECT_THAT(*map, ElementsAre(Pair("a__b__c", Pair("a", "b__c")), Pair("a__b__c_1", Pair("a__b", "c")),
                                Pair("a_d", Pair("a", "_d")), Pair("n_f_1", Pair("n_", "f"))));
}

TEST(ResponsesRequest, RefusesToolsWithTheNormativeTexts) {
  const auto refusal = [](const std::string& tools) {
    return message_of(convert(request_with(R"("input":"x","tools":[)" + tools + "]"), with(Policy::strict)));
  };
  EXPECT_EQ(refusal(R"({"type":"namespace","name":"n","tools":[{"type":"custom","name":"z"}]})"),
            "Currently custom tools are not allowed inside a namespace. Found custom tool 'z' in tools[0].tools[0].");
  EXPECT_EQ(refusal(std::string(R"({"type":"namespace","name":"n","tools":[)") + kFunction + "," + kFunction + "]}"),
            "Tool names within a namespace must be unique.");
  EXPECT_THAT(refusal(R"({"type":"namespace","name":"n","tools":[{"type":"function","name":"a b"}]})"),
              StartsWith("Invalid 'tools[0].tools[0].name': string does not match pattern."));
  EXPECT_EQ(refusal(std::string(R"({"type":"function","name":"g","strict":true},)") + kFunction),
            "Cannot use strict tool with non-strict tool in the same request");
}

TEST(ResponsesRequest, AToolSearchOfTheCallerIsCallableInV41) {
  const std::string tools = R"("input":"x","tools":[{"type":"tool_search","execution":"client"}])";
  EXPECT_THAT(tool_names(convert(request_with(tools), with(Policy::strict))), ElementsAre("tool_search"));
  EXPECT_THAT(tool_names(convert(v4_request_with(tools), with(Policy::strict))), ElementsAre());
  EXPECT_THAT(
      tool_names(convert(request_with(R"("input":"x","tools":[{"type":"tool_search"}])"), with(Policy::strict))),
      ElementsAre());
}

TEST(ResponsesRequest, MissingReasoningIsRefusedBehindTheLastUserMessageOnly) {
  ConversionOptions options = with(Policy::strict);
  options.reject_missing_reasoning = true;
  const auto accepted = [&](std::initializer_list<std::string> items, const char* tools = "[]") {
    return convert(request_with("\"tools\":" + std::string(tools) + ",\"input\":" + list(items)), options).ok();
  };
  const std::string with_tool = std::string("[") + kFunction + "]";
  EXPECT_FALSE(accepted({call("1"), output("1")}));
  EXPECT_TRUE(accepted({call("1"), output("1"), user("u")}));
  EXPECT_TRUE(accepted({call("call_07_ET_x"), output("call_07_ET_x")}));
  EXPECT_TRUE(accepted({reasoning("r"), call("1"), output("1")}));
  EXPECT_TRUE(accepted({assistant("a")}));
  EXPECT_FALSE(accepted({assistant("a")}, with_tool.c_str()));
}

// -- images ---------------------------------------------------------------------------------------------------------

TEST(ResponsesRequest, ImagesKeepTheirPlaceAlsoInSystemMessagesAndOutputs) {
  const std::string parts =
      R"([{"type":"input_text","text":"ab"},{"type":"input_image","image_url":"https://x/i.png","detail":"low"}])";
  const auto result = convert(request_with(R"("input":[{"role":"system","content":)" + parts + "}," + call("1") +
                                           R"(,{"type":"function_call_output","call_id":"1","output":)" + parts + "}]"),
                              with(Policy::strict));
  ASSERT_TRUE(result.ok()) << message_of(result);
  const auto& messages = result->conversation.messages;
  for (const auto& [message, path] : {std::pair(0, "input[0]"), std::pair(2, "input[2]")}) {
    ASSERT_EQ(messages[size_t(message)].images.size(), 1u);
    const ImageSource& image = messages[size_t(message)].images[0];
    EXPECT_EQ(image.offset, 4) << "behind ab and a blank line";
    EXPECT_EQ(image.path, path);
    EXPECT_EQ(image.detail, ImageDetail::low);
    EXPECT_EQ(image.kind, ImageSource::Kind::url);
  }
}

TEST(ResponsesRequest, ImagesOfAnItemAreCheckedBeforeTheyAreRead) {
  const auto refusal = [](const std::string& role, const std::string& parts) {
    return message_of(convert(request_with(R"("input":[{"role":")" + role + R"(","content":[)" + parts + "]}]"),
                              with(Policy::strict)));
  };
  const std::string bad = R"({"type":"input_image","image_url":"zz"})", none = R"({"type":"input_image"})";
  EXPECT_EQ(refusal("user", bad + "," + none), "input[0].content[1]: input_image must have image_url or file_id");
  EXPECT_EQ(refusal("user", bad), "input[0]: Unsupported image_url format");
  EXPECT_EQ(refusal("assistant", bad), "input[0]: Image in assistant message is unsupported");
}

// -- codec policy ---------------------------------------------------------------------------------------------------

TEST(ResponsesRequest, D1ReasoningMayBeAString) {
  const std::string input = list({R"({"type":"reasoning","content":"why"})", assistant("a")});
  EXPECT_THAT(lenient_lines(input), ElementsAre("assistant[why] a"));
  const auto strict = convert(request_with("\"input\":" + input), with(Policy::strict));
  ASSERT_FALSE(strict.ok());
  EXPECT_EQ(strict.error().code, ErrorCode::bad_input);
  EXPECT_EQ(strict.error().where, "input[0].content");
}

TEST(ResponsesRequest, D2WhatStandsBetweenCallsAndOutputsMovesBehindThem) {
  EXPECT_THAT(
      lenient_lines(list({call("1"), call("2"), user("u"), output("2"), assistant("a"), output("1"), user("v")})),
      ElementsAre("assistant  (1:f) (2:f)", "tool(1) o1", "tool(2) o2", "user u", "assistant a", "user v"));
  // Other calls before the output: what was open stays without one.
  EXPECT_THAT(lenient_lines(list({call("1"), user("u"), call("2"), output("2"), output("1")})),
              ElementsAre("No tool output found for tool call 1."));
  EXPECT_THAT(lenient_lines(list({call("1"), user("u")})), ElementsAre("No tool output found for tool call 1."));
}

TEST(ResponsesRequest, D2PathsNameTheItemsOfTheCaller) {
  const auto result =
      convert(request_with("\"input\":" +
                           list({call("1"), R"({"role":"user","content":[{"type":"input_image"}]})", output("1")})),
              with(Policy::lenient));
  EXPECT_EQ(message_of(result), "input[1].content[0]: input_image must have image_url or file_id");
}

TEST(ResponsesRequest, D3BillingLinesLeaveInstructionsAndSystemItemsOnly) {
  const std::string line = R"(X-Anthropic-Billing-Header: cch=1;)";
  const std::string body =
      request_with("\"instructions\":\"" + line + R"(\n\nbe kind","input":[{"role":"system","content":")" + line +
                   R"("},)" + R"({"role":"developer","content":[{"type":"input_text","text":")" + line +
                   R"("},{"type":"input_image","image_url":"https://x"}]},)" + user(line) + "]");
  const auto result = convert(body, with(Policy::lenient));
  EXPECT_THAT(lines_of(result), ElementsAre("system be kind", "system <｜image｜>", "user " + line));
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->conversation.messages[1].images[0].offset, 0);
  const auto strict = lines_of(convert(body, with(Policy::strict)));
  ASSERT_EQ(strict.size(), 4u);
  EXPECT_EQ(strict[0], "system " + line + "\n\nbe kind");
}

TEST(ResponsesRequest, D6EffortMayBeANumber) {
  const auto body = [](const char* number) {
    return R"("input":"x","reasoning":{"effort":)" + std::string(number) + "}";
  };
  const auto result = convert(request_with(body("60")), with(Policy::lenient));
  ASSERT_TRUE(result.ok()) << message_of(result);
  EXPECT_EQ(result->conversation.effort_number, 60);
  EXPECT_EQ(to_string(ResponsesRequest::parse(request_with(body("60")))->echo().reasoning),
            R"({"effort":60,"summary":null})");
  const auto outside = convert(request_with(body("101")), with(Policy::lenient));
  EXPECT_EQ(message_of(outside), "Invalid reasoning_effort value, the valid range of reasoning_effort is [1, 100]");
  EXPECT_EQ(outside.error().where, "reasoning.effort");
  EXPECT_EQ(message_of(convert(v4_request_with(body("60")), with(Policy::lenient))),
            "Integer reasoning_effort needs DeepSeek-V4.1-Flash");
  EXPECT_EQ(convert(request_with(body("60")), with(Policy::strict)).error().code, ErrorCode::bad_input);
}

TEST(ResponsesRequest, D7ModelNamesAreComparedWithoutCase) {
  const std::string body = R"({"model":"deepseek-v4.1-FLASH","input":"x"})";
  EXPECT_TRUE(convert(body, with(Policy::lenient)).ok());
  EXPECT_FALSE(convert(body, with(Policy::strict)).ok());
  EXPECT_TRUE(
      ResponsesRequest::parse(R"({"model":"DeepSeek-Flash","input":"x"})")->namespaces(with(Policy::lenient)).ok());
}

TEST(ResponsesRequest, D8DefinitionsStayInTheSchemasOfStrictTools) {
  const std::string body =
      request_with(R"("input":"x","tools":[{"type":"function","name":"f","strict":true,"parameters":{"type":"object",)"
                   R"("properties":{"a":{"$ref":"#/$defs/t"}},"$defs":{"t":{"type":"string"}}}}])");
  const auto lenient = convert(body, with(Policy::lenient)), strict = convert(body, with(Policy::strict));
  ASSERT_TRUE(lenient.ok() && strict.ok()) << message_of(lenient) << message_of(strict);
  EXPECT_NE(lenient->conversation.tools[0].parameters.find("$defs"), nullptr);
  EXPECT_EQ(strict->conversation.tools[0].parameters.find("$defs"), nullptr);
}

TEST(ResponsesRequest, D9ErrorsNameTheValueAtFault) {
  const auto where = [](const std::string& members) {
    const auto result = convert(request_with(members), with(Policy::lenient));
    return result ? "accepted" : result.error().where;
  };
  EXPECT_EQ(where(R"("input":"x","temperature":3)"), "temperature");
  EXPECT_EQ(where(R"("input":"x","max_output_tokens":0)"), "max_output_tokens");
  EXPECT_EQ(where("\"input\":" + list({user("u"), call("1")})), "input[1].call_id");
  EXPECT_EQ(where(R"("input":"x","tools":[{"type":"function","name":"f","parameters":5}])"), "tools[0].parameters");
  EXPECT_EQ(where(R"("input":[{"role":"user","content":[{"type":"input_text"}]}])"), "input[0].content[0].text");
  EXPECT_EQ(where(R"("input":"json","text":{"format":{"type":"json_object"}},"tools":[{"type":"function","name":"f",)"
                  R"("strict":true}])"),
            "text.format");
  EXPECT_EQ(where(R"("input":"x","tools":[{"type":"custom","name":"zz"}])"), "tools[0].name");
}

}  // namespace
}  // namespace fathom::recipe
