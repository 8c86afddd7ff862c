// Chat requests: the rules D-3 to D-9 (lenient), and what a wrong type anywhere does. Vector rows and cases are run by
// recipe/conformance.
#include "fathom/recipe/api/chat_completions/request.h"

#include <gtest/gtest.h>

#include <functional>

#include "fathom/recipe/api/shared_rules.h"
#include "fathom/recipe/describe.h"
#include "fathom/recipe/request_error.h"

namespace fathom::recipe {
namespace {

constexpr Api kApi = Api::chat_completions;

Result<ConvertedRequest> convert(std::string_view body, const ConversionOptions& options) {
  auto request = ChatCompletionsRequest::parse(body, options.policy);
  if (!request) return request.error();
  return std::move(*request).convert(options);
}

ConversionOptions with(Policy policy) {
  ConversionOptions options;
  options.policy = policy;
  return options;
}

// A request with these members besides model and messages; `messages` may be among them.
std::string request_with(std::string_view members) {
  std::string body = R"({"model":"DeepSeek-V4.1-Flash")";
  if (members.find("\"messages\"") == members.npos) body += R"(,"messages":[{"role":"user","content":"x"}])";
  if (!members.empty()) body += "," + std::string(members);
  return body + "}";
}

std::string message_of(const Result<ConvertedRequest>& result) { return result ? "accepted" : result.error().message; }

// -- wrong types ----------------------------------------------------------------------------------------------------

constexpr std::string_view kRich = R"({"model":"DeepSeek-V4.1-Flash","messages":[
  {"role":"system","content":[{"type":"text","text":"json"}],"name":"n"},
  {"role":"user","content":[{"type":"image_url","image_url":{"url":"https://x","detail":"low"}}]},
  {"role":"assistant","content":"a","reasoning_content":"r","prefix":false,
   "tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},
  {"role":"tool","tool_call_id":"c","content":"t"},{"role":"latest_reminder","content":"l"}],
  "thinking":{"type":"enabled","budget_tokens":5},"reasoning_effort":"high","temperature":1,"top_p":1,"max_tokens":9,
  "stop":["s"],"stream":true,"stream_options":{"include_usage":true},"seed":1,"n":1,"logprobs":true,"top_logprobs":2,
  "frequency_penalty":0,"presence_penalty":0,"response_format":{"type":"json_schema","json_schema":{"name":"n",
  "schema":{},"strict":false}},"tools":[{"type":"function","function":{"name":"f","description":"d",
  "parameters":{"type":"object"},"strict":false}}],"tool_choice":"auto","parallel_tool_calls":true})";

// Calls `visit` with every node of a tree and its path; the node may be changed during the call.
void visit_all(Json& node, const std::string& path, const std::function<void(Json&, const std::string&)>& visit) {
  visit(node, path);
  for (size_t i = 0; i < node.items.size(); ++i) visit_all(node.items[i], path + "[" + std::to_string(i) + "]", visit);
  for (auto& [key, value] : node.fields) {
    std::string inner = path;
    append_path_key(inner, key);
    visit_all(value, inner, visit);
  }
}

TEST(ChatRequest, AWrongTypeAnywhereIsRefusedAtItsOwnPathOrMeansNothing) {
  auto rich = parse_json(kRich, "test");
  ASSERT_TRUE(rich.ok());
  ASSERT_TRUE(ChatCompletionsRequest::parse(Json(*rich)).ok());
  int refused = 0;
  visit_all(*rich, "", [&](Json& node, const std::string& path) {
    const Json original = node;
    for (const Json& wrong :
         {Json::of(true), Json::of(-3), Json::of(0.5), Json::of("?"), Json::array(), Json::object()}) {
      node = wrong;
      const auto request = ChatCompletionsRequest::parse(Json(*rich));
      if (request) continue;
      ++refused;
      EXPECT_EQ(request.error().code, ErrorCode::bad_input);
      // An empty object lacks something: then the path goes on below it.
      EXPECT_EQ(request.error().where.find(path), 0u)
          << to_string(wrong) << " at " << path << ": " << request.error().message;
      if (!wrong.is_object()) {
        EXPECT_EQ(request.error().where, path) << to_string(wrong) << " at " << path;
      }
    }
    node = original;
  });
  // 58 typed values, each refusing most of the six.
  EXPECT_GT(refused, 200);
}

TEST(ChatRequest, NullIsAbsence) {
  const auto converted = convert(
      request_with(R"("thinking":null,"reasoning_effort":null,"stop":null,"tools":null,"tool_choice":null,"n":null,)"
                   R"("stream":null,"stream_options":null,"response_format":null,"seed":null,"logprobs":null)"),
      with(Policy::strict));
  EXPECT_TRUE(converted.ok()) << message_of(converted);
}

// -- what deepseek-recipe does beyond the vectors (measured; docs/recipe-findings.md)
// ----------------------------------

TEST(ChatRequest, ImageUrlsAreJudgedBySpellingAlone) {
  const struct {
    const char* url;
    ImageUrl expected;
  } rows[] = {
      {"data:image/png;base64,AA==", ImageUrl::data},
      {"data:image/png;base64,AA", ImageUrl::data},
      {"data:image/png;base64,A", ImageUrl::bad_base64},
      {"data:image/png;base64,", ImageUrl::data},
      {"data:image/png;base64,A A==\n", ImageUrl::data},
      {"data:image/png;base64,AA=", ImageUrl::bad_base64},
      {"data:image/png;base64,AAB=", ImageUrl::data},
      {"data:image/png;base64,AAAA==", ImageUrl::bad_base64},
      {"data:image/png;base64,-_-_", ImageUrl::bad_base64},
      {"data:image/png;base64,AA%3D%3d", ImageUrl::data},
      {"data:image/png;base64,AAAA%3D", ImageUrl::bad_base64},
      {"data:image/png;base64,%4", ImageUrl::bad_base64},
      {"data:image/png;base64,AAAA#@@", ImageUrl::data},
      {"data:image/png;base64,A\fAA\vA", ImageUrl::bad_base64},
      {"data:image/png;charset=x;base64,AAAA", ImageUrl::data},
      {"data:image/png; base64,AAAA", ImageUrl::data},
      {"data:image/png; base64,@", ImageUrl::bad_base64},
      {"data:image/png;xbase64,@", ImageUrl::data},
      {"data:image/png,base64,@", ImageUrl::data},
      {"data:image/png;base64;x=1,AAAA", ImageUrl::bad_format},
      {"data:image/png;base64 ,base64,", ImageUrl::bad_base64},
      {"data:image/png;BASE64,AAAA", ImageUrl::bad_format},
      {"DATA:image/PNG;base64,AAAA", ImageUrl::data},
      {" \x01 da\tta:image/p\nng;base64,AAAA", ImageUrl::data},
      {"\u00a0data:image/png;base64,AAAA", ImageUrl::bad_format},
      {"data: image/png ;base64,AAAA", ImageUrl::data},
      {"data:image/png\f;base64,AAAA", ImageUrl::bad_type},
      {"data:image/ png;base64,AAAA", ImageUrl::bad_type},
      {"data:;base64,AAAA", ImageUrl::bad_type},
      {"data:base64,AAAA", ImageUrl::bad_type},
      {"data:image/bmp;base64,@@", ImageUrl::bad_type},
      {"data:image/svg+xml,abc", ImageUrl::bad_format},
      {"data:image#/png;base64,AAAA", ImageUrl::bad_format},
      {"data:image/png;base64", ImageUrl::bad_format},
      {"xdata:image/png;base64,AAAA", ImageUrl::bad_format},
      {"data:", ImageUrl::bad_format},
      {"", ImageUrl::bad_format},
      {"httpfoo", ImageUrl::web},
      {"HtTp://x", ImageUrl::web},
      {" http://x", ImageUrl::bad_format},
      {"ftp://x", ImageUrl::bad_format},
  };
  for (const auto& row : rows) EXPECT_EQ(judge_image_url(row.url), row.expected) << row.url;
  EXPECT_EQ(judge_image_url("http://" + std::string(8185, 'a')), ImageUrl::web);
  EXPECT_EQ(judge_image_url("http://" + std::string(8186, 'a')), ImageUrl::too_long);
}

TEST(ChatRequest, OfTwoMistakesTheOneThatTheOriginalReportsIsReported) {
  const struct {
    const char* members;
    const char* message;
  } rows[] = {
      {R"("messages":[],"tools":[{"type":"function","function":{"name":""}}])", "Invalid 'tools[0].function.name'"},
      {R"("messages":[],"temperature":3)", "Empty input messages"},
      {R"("messages":[{"role":"tool","tool_call_id":"a","content":"x"}],"tools":[{"type":"function","function":)"
       R"({"name":"f","parameters":{"type":"string"}}}])",
       "Messages with role 'tool'"},
      {R"("response_format":{"type":"json_object"},"tools":[{"type":"function","function":{"name":"f"}}],)"
       R"("tool_choice":"required")",
       "Prompt must contain"},
      {R"("stop":"","n":2)", "Invalid 'stop'"},
      {R"("n":2,"temperature":3)", "Invalid n value"},
      {R"("temperature":3,"max_tokens":0)", "Invalid temperature"},
      {R"("max_tokens":0,"seed":9223372036854775808)", "Invalid max_tokens"},
      {R"("tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"g","strict":true}}],)"
       R"("n":2)",
       "Cannot use strict tool with non-strict tool in the same request"},
      {R"("tools":[{"type":"function","function":{"name":"g","strict":true}}],"n":2,"response_format":{"type":"text"})",
       "response_format should not be used with tools"},
      {R"("messages":[{"role":"user","content":"json"},{"role":"assistant","content":"p","prefix":true}],)"
       R"("tools":[{"type":"function","function":{"name":"f"}}],"response_format":{"type":"json_object"})",
       "response_format json_object should not be used with prefix"},
  };
  for (const auto& row : rows) {
    const auto converted = convert(request_with(row.members), with(Policy::strict));
    EXPECT_EQ(message_of(converted).find(row.message), 0u) << row.members << ": " << message_of(converted);
  }
}

TEST(ChatRequest, AMessageThatVanishesDoesNotCountAsTheFinalOne) {
  const std::string prefix =
      R"("messages":[{"role":"user","content":"u"},{"role":"assistant","content":"p","prefix":true},)";
  const auto vanishing = convert(request_with(prefix + R"({"role":"system","content":""}])"), with(Policy::strict));
  ASSERT_TRUE(vanishing.ok()) << message_of(vanishing);
  EXPECT_TRUE(vanishing->conversation.messages.back().prefix);
  EXPECT_FALSE(convert(request_with(prefix + R"({"role":"system","content":"s"}])"), with(Policy::strict)).ok());
}

TEST(ChatRequest, TheFieldsOfAllImagesAreJudgedBeforeTheDataOfAny) {
  const std::string bad_data = R"({"type":"image_url","image_url":{"url":"ftp://x"}})", no_data = R"({"type":"file"})";
  const auto refusal = [&](const std::string& role, const std::string& parts) {
    return message_of(convert(request_with("\"messages\":[{\"role\":\"" + role + "\",\"content\":[" + parts + "]}]"),
                              with(Policy::strict)));
  };
  EXPECT_EQ(refusal("user", bad_data + "," + no_data), ".messages[0]: file must have a file_id or file_data");
  EXPECT_EQ(refusal("assistant", bad_data + "," + no_data), ".messages[0]: file must have a file_id or file_data");
  EXPECT_EQ(refusal("assistant", bad_data), "Image in assistant message is not supported");
  EXPECT_EQ(refusal("user", bad_data), ".messages[0]: Unsupported image_url format");
  const auto file = [&](const std::string& data) {
    return refusal("user", R"({"type":"file","file_data":")" + data + "\"}");
  };
  EXPECT_EQ(file("data:image/png;base64,AAAA"), "accepted");
  EXPECT_EQ(file("data:image/png;base64,@"), ".messages[0]: file_data is not a valid base64 data url");
  EXPECT_EQ(file("https://x"), ".messages[0]: file_data is not a valid base64 data url");
  EXPECT_EQ(file("data:image/png,AA"), ".messages[0]: Unsupported image_url format");
  EXPECT_EQ(file("data:text/plain,AA").substr(0, 51), ".messages[0]: You have uploaded an unsupported file");
}

TEST(ChatRequest, UnderRejectReasoningIsNeededSinceTheLastUserMessageOnly) {
  ConversionOptions options = with(Policy::strict);
  options.reject_missing_reasoning = true;
  const std::string user = R"({"role":"user","content":"u"})", plain = R"({"role":"assistant","content":"p"})";
  const std::string tool = R"({"role":"tool","tool_call_id":"ID","content":"r"})";
  const std::string call =
      R"({"role":"assistant","tool_calls":[{"id":"ID","type":"function","function":{"name":"f","arguments":"{}"}}]})";
  const std::string tools = R"(,"tools":[{"type":"function","function":{"name":"f"}}])";
  const auto accepted = [&](std::string messages, const std::string& more, const std::string& id) {
    for (size_t at; (at = messages.find("ID")) != messages.npos;) messages.replace(at, 2, id);
    return convert(request_with("\"messages\":[" + messages + "]" + more), options).ok();
  };
  EXPECT_FALSE(accepted(user + "," + call + "," + tool, "", "a"));
  EXPECT_FALSE(accepted(user + "," + call + "," + tool, tools, "a"));
  EXPECT_TRUE(accepted(user + "," + call + "," + tool + "," + user, tools, "a"));
  EXPECT_TRUE(accepted(user + "," + plain, "", "a"));
  EXPECT_FALSE(accepted(user + "," + plain, tools, "a"));
  EXPECT_TRUE(accepted(user + "," + plain + "," + user, tools, "a"));
  EXPECT_TRUE(accepted(user + "," + call + "," + tool, tools, "call_00_ET_x"));
  EXPECT_FALSE(accepted(user + "," + call + "," + tool, tools, "call_000_ET_x"));
}

// -- the default policy -----------------------------------------------------------------------------------------------

std::string system_text(std::string_view content, Policy policy, std::string_view role = "system") {
  std::string body = "\"messages\":[{\"role\":";
  append_json_string(body, role);
  body += ",\"content\":";
  append_json_string(body, content);
  const auto converted = convert(request_with(body + R"(},{"role":"user","content":"u"}])"), with(policy));
  EXPECT_TRUE(converted.ok()) << message_of(converted);
  if (!converted) return "refused";
  return converted->conversation.messages.size() == 1 ? "(none)" : converted->conversation.messages[0].content;
}

TEST(ChatRequest, BillingLinesLeaveSystemTextsOnly) {  // D-3
  const std::string line = "x-anthropic-billing-header: a=1;", upper = "X-Anthropic-Billing-Header: b";
  for (const Policy policy : {Policy::strict, Policy::lenient}) {
    EXPECT_EQ(system_text(line + "\nYou", policy), "You");
    EXPECT_EQ(system_text(line + "\r\n\r\nYou\n", policy), "You\n");
    EXPECT_EQ(system_text(line, policy), "(none)");
    EXPECT_EQ(system_text("You\n" + line, policy), "You\n" + line);
    EXPECT_EQ(system_text(line + "\nYou", policy, "user"), line + "\nYou");
    EXPECT_EQ(system_text(line + "\nYou", policy, "latest_reminder"), line + "\nYou");
  }
  EXPECT_EQ(system_text(line + "\n" + line + "\nYou", Policy::strict), line + "\nYou");
  EXPECT_EQ(system_text(line + "\n" + upper + "\nYou", Policy::lenient), "You");
  EXPECT_EQ(system_text(upper + "\nYou", Policy::strict), upper + "\nYou");
  // White space behind the line: all of it goes under strict, line breaks only by the rule of ours.
  EXPECT_EQ(system_text(line + "\n \u2003You", Policy::strict), "You");
  EXPECT_EQ(system_text(line + "\n You", Policy::lenient), " You");
  EXPECT_EQ(system_text(line + "\nYou", Policy::lenient, "developer"), "You");
}

TEST(ChatRequest, ImagesBehindABillingLineKeepTheirPlace) {
  for (const Policy policy : {Policy::strict, Policy::lenient}) {
    const auto converted = convert(
        request_with(R"("messages":[{"role":"system","content":[{"type":"text","text":"x-anthropic-billing-header"},)"
                     R"({"type":"text","text":"see"},{"type":"image_url","image_url":{"url":"http://x"}}]}])"),
        with(policy));
    ASSERT_TRUE(converted.ok()) << message_of(converted);
    const Message& message = converted->conversation.messages.at(0);
    EXPECT_EQ(message.content, "see\n\n<｜image｜>");
    ASSERT_EQ(message.images.size(), 1u);
    EXPECT_EQ(message.images[0].offset, 5);
  }
}

TEST(ChatRequest, DeveloperIsSystemUnderLenient) {  // D-4
  const std::string body = request_with(
      R"("messages":[{"role":"user","content":"u"},{"role":"developer","content":"d"},{"role":"user","content":"v"}])");
  EXPECT_FALSE(convert(body, with(Policy::strict)).ok());
  const auto converted = convert(body, with(Policy::lenient));
  ASSERT_TRUE(converted.ok());
  EXPECT_EQ(converted->conversation.messages.at(1).role, Message::Role::system);
  EXPECT_EQ(converted->conversation.messages.at(1).content, "d");
}

TEST(ChatRequest, MaxCompletionTokensAndPenaltiesCountUnderLenient) {  // D-5
  const auto number = [](std::string_view members, Policy policy) {
    const auto converted = convert(request_with(members), with(policy));
    return converted ? int64_t(converted->inference.max_tokens.value_or(0)) : -1;
  };
  EXPECT_EQ(number(R"("max_completion_tokens":5)", Policy::strict), 0);
  EXPECT_EQ(number(R"("max_completion_tokens":5)", Policy::lenient), 5);
  EXPECT_EQ(number(R"("max_completion_tokens":5,"max_tokens":7)", Policy::lenient), 7);
  EXPECT_EQ(number(R"("max_completion_tokens":"x")", Policy::strict), 0);
  const auto refused = convert(request_with(R"("max_completion_tokens":0)"), with(Policy::lenient));
  EXPECT_EQ(message_of(refused), "Invalid max_tokens value, the valid range of max_tokens is [1, 393216]");
  EXPECT_EQ(refused.error().where, "max_completion_tokens");
  const std::string penalties = request_with(R"("frequency_penalty":1.5,"presence_penalty":-2)");
  EXPECT_EQ(convert(penalties, with(Policy::lenient))->inference.frequency_penalty, 1.5f);
  EXPECT_EQ(convert(penalties, with(Policy::lenient))->inference.presence_penalty, -2.0f);
  EXPECT_EQ(convert(penalties, with(Policy::strict))->inference.frequency_penalty, 0.0f);
}

TEST(ChatRequest, EffortMayBeANumberUnderLenient) {  // D-6
  ConversionOptions options = with(Policy::lenient);
  options.default_thinking = false;
  const auto converted = convert(request_with(R"("reasoning_effort":37)"), options);
  ASSERT_TRUE(converted.ok()) << message_of(converted);
  EXPECT_TRUE(converted->conversation.thinking);
  EXPECT_EQ(converted->conversation.effort_number, 37);
  const auto off = convert(request_with(R"("reasoning_effort":37,"thinking":{"type":"disabled"})"), options);
  ASSERT_TRUE(off.ok());
  EXPECT_FALSE(off->conversation.thinking);
  EXPECT_FALSE(off->conversation.effort_number);
  for (const char* number : {"0", "101", "-1"}) {
    EXPECT_EQ(message_of(convert(request_with(std::string("\"reasoning_effort\":") + number), options)),
              "Invalid reasoning_effort value, the valid range of reasoning_effort is [1, 100]");
  }
  EXPECT_EQ(
      message_of(convert(
          R"({"model":"DeepSeek-V4-Pro","messages":[{"role":"user","content":"x"}],"reasoning_effort":50})", options)),
      "Integer reasoning_effort needs DeepSeek-V4.1-Flash");
  EXPECT_EQ(convert(request_with(R"("reasoning_effort":37)"), with(Policy::strict)).error().code, ErrorCode::bad_input);
}

TEST(ChatRequest, ModelNamesIgnoreCaseUnderLenient) {  // D-7
  const auto version = [](std::string_view model, Policy policy) {
    const auto version = resolve_model(model, with(policy));
    return version ? (*version == ModelVersion::v4 ? "v4" : "v41") : version.error().message;
  };
  EXPECT_EQ(version("deepseek-v4-PRO", Policy::lenient), "v4");
  EXPECT_EQ(version("DeepSeek-Flash", Policy::lenient), "v41");
  EXPECT_EQ(version("deepseek-flash", Policy::strict),
            "The supported API model names are DeepSeek-V4-Pro, DeepSeek-V4.1-Flash, but you passed deepseek-flash.");
  EXPECT_EQ(version("x", Policy::lenient),
            "The supported API model names are DeepSeek-V4-Pro, DeepSeek-V4.1-Flash, but you passed x.");
}

TEST(ChatRequest, ARefusalNamesTheValueAtFaultUnderLenient) {  // D-9
  const struct {
    const char* members;
    const char* path;
  } rows[] = {
      {R"("temperature":3)", "temperature"},
      {R"("stop":["a",""])", "stop[1]"},
      {R"("tools":[{"type":"function","function":{"name":"f f"}}])", "tools[0].function.name"},
      {R"("tools":[{"type":"function","function":{"name":"f","parameters":{"type":"string"}}}])",
       "tools[0].function.parameters"},
      {R"("messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}])",
       "messages[0].content[0]"},
      {R"("messages":[{"role":"user","content":"u"},{"role":"assistant"}])", "messages[1]"},
  };
  for (const auto& row : rows) {
    const auto converted = convert(request_with(row.members), with(Policy::lenient));
    ASSERT_FALSE(converted.ok()) << row.members;
    EXPECT_EQ(converted.error().where, row.path) << row.members;
  }
  const Error error = convert_error("M", "a.b");
  EXPECT_EQ(error_body(error, kApi, Policy::strict),
            R"({"error":{"message":"M","type":"invalid_request_error","param":null,"code":"invalid_request_error"}})");
  EXPECT_EQ(error_body(error, kApi, Policy::lenient),
            R"({"error":{"message":"M","type":"invalid_request_error","param":"a.b","code":"invalid_request_error"}})");
  EXPECT_EQ(error_body(error, Api::messages, Policy::lenient, "req_1"),
            R"({"type":"error","error":{"type":"invalid_request_error","message":"M"},"request_id":"req_1"})");
  const auto converted = convert(request_with(""), with(Policy::lenient));
  ASSERT_TRUE(converted.ok());
  const auto full = resolve_max_tokens(*converted, 20, 10);
  ASSERT_FALSE(full.ok());
  EXPECT_NE(error_body(full.error(), kApi, Policy::lenient).find(R"("code":"context_length_exceeded")"),
            std::string::npos);
}

// -- the constraint ---------------------------------------------------------------------------------------------------

TEST(ChatRequest, AConstraintOfCallsCarriesMarkupToolsAndWhereItBegins) {
  const std::string tools =
      R"("tools":[{"type":"function","function":{"name":"f","strict":true,"parameters":{"type":"object",)"
      R"("properties":{"a":{"type":"string"}}}}},{"type":"function","function":{"name":"g","strict":true}}])";
  const auto converted = convert(request_with(tools), with(Policy::lenient));
  ASSERT_TRUE(converted.ok()) << message_of(converted);
  const auto& constraint = converted->inference.constraint;
  ASSERT_TRUE(constraint.has_value());
  EXPECT_EQ(constraint->kind, grammar::Constraint::Kind::tool_call);
  EXPECT_EQ(constraint->markup, (grammar::CallMarkup{"｜DSML｜", " calls", " "}));
  EXPECT_EQ(constraint->starts_after, "</think>");
  ASSERT_EQ(constraint->tools.size(), 2u);
  EXPECT_TRUE(constraint->tools[0].strict);
  EXPECT_EQ(to_string(constraint->tools[1].parameters),
            R"({"type":"object","properties":{},"additionalProperties":false,"required":[]})");
  EXPECT_EQ(converted->parsing.required_parameters.at("f"), std::vector<std::string>{"a"});
  EXPECT_FALSE(converted->parsing.required_parameters.contains("g"));

  const auto required = convert(
      R"({"model":"DeepSeek-V4-Pro","messages":[{"role":"user","content":"x"}],"thinking":{"type":"disabled"},)" +
          tools + R"(,"tool_choice":"required"})",
      with(Policy::lenient));
  ASSERT_TRUE(required.ok()) << message_of(required);
  EXPECT_EQ(required->inference.constraint->kind, grammar::Constraint::Kind::tool_call_required);
  EXPECT_EQ(required->inference.constraint->markup, (grammar::CallMarkup{"｜DSML｜", "tool_calls", ""}));
  EXPECT_FALSE(required->inference.constraint->starts_after);
}

TEST(ChatRequest, AConstraintBeginsAfterTheReasoningIfThereIsAny) {
  const auto starts_after = [](std::string_view members) {
    const auto converted =
        convert(request_with(std::string(members) + R"(,"response_format":{"type":"regex","regex":"a"})"),
                with(Policy::lenient));
    EXPECT_TRUE(converted.ok()) << message_of(converted);
    return converted ? converted->inference.constraint->starts_after.value_or("(start)") : "refused";
  };
  EXPECT_EQ(starts_after(R"("n":1)"), "</think>");
  EXPECT_EQ(starts_after(R"("thinking":{"type":"disabled"})"), "(start)");
  const std::string prefix = R"("messages":[{"role":"user","content":"x"},{"role":"assistant","prefix":true,)";
  EXPECT_EQ(starts_after(prefix + R"("content":"c"}])"), "(start)");
  EXPECT_EQ(starts_after(prefix + R"("content":"","reasoning_content":"r"}])"), "</think>");
}

// Found by comparing with deepseek-recipe: docs/recipe-findings.md, types.
TEST(ChatRequest, NamesOfToolMessagesAndRemindersAreNotLookedAt) {
  const auto body = [](const char* role) {
    return R"({"model":"DeepSeek-V4.1-Flash","messages":[{"role":")" + std::string(role) +
           R"(","content":"a","tool_call_id":"c","name":3}]})";
  };
  for (const char* role : {"tool", "latest_reminder"}) {
    EXPECT_TRUE(ChatCompletionsRequest::parse(body(role), Policy::strict).ok()) << role;
  }
  for (const char* role : {"user", "system", "assistant"}) {
    EXPECT_FALSE(ChatCompletionsRequest::parse(body(role), Policy::strict).ok()) << role;
  }
}

}  // namespace
}  // namespace fathom::recipe
