// Messages requests: the rules D-3 to D-9 (lenient), what a wrong type anywhere does, and what deepseek-recipe does
// beyond the vectors. Vector rows and cases are run by recipe/conformance.
#include "fathom/recipe/api/messages/request.h"

#include <gtest/gtest.h>

#include <functional>

#include "fathom/recipe/describe.h"
#include "fathom/recipe/prompt.h"
#include "fathom/recipe/request_error.h"

namespace fathom::recipe {
namespace {

constexpr Api kApi = Api::messages;
constexpr std::string_view kTools =
    R"([{"name":"f","input_schema":{"type":"object"}},{"name":"g","input_schema":{"type":"object"},)"
    R"("defer_loading":true},{"name":"h","input_schema":{"type":"object"}}])";

Result<ConvertedRequest> convert(std::string_view body, const ConversionOptions& options) {
  auto request = MessagesRequest::parse(body, options.policy);
  if (!request) return request.error();
  return std::move(*request).convert(options);
}

ConversionOptions with(Policy policy) {
  ConversionOptions options;
  options.policy = policy;
  return options;
}

std::string message_of(const Result<ConvertedRequest>& result) { return result ? "accepted" : result.error().message; }
std::string place_of(const Result<ConvertedRequest>& result) { return result ? "accepted" : result.error().where; }

// -- requests in few words --------------------------------------------------------------------------------------------

std::string listed(std::initializer_list<std::string> items) {
  std::string out;
  for (const std::string& item : items) out += (out.empty() ? "" : ",") + item;
  return "[" + out + "]";
}
std::string text(std::string_view text) {
  std::string out = R"({"type":"text","text":)";
  append_json_string(out, text);
  return out + "}";
}
std::string thinking(std::string_view text) { return R"({"type":"thinking","thinking":")" + std::string(text) + "\"}"; }
std::string use(const std::string& id) { return R"({"type":"tool_use","id":")" + id + R"(","name":"f","input":{}})"; }
std::string result(const std::string& id, const std::string& content = "\"r\"") {
  return R"({"type":"tool_result","tool_use_id":")" + id + R"(","content":)" + content + "}";
}
std::string image(std::string_view url) {
  return R"({"type":"image","source":{"type":"url","url":")" + std::string(url) + "\"}}";
}
std::string reference(const std::string& name) { return R"({"type":"tool_reference","tool_name":")" + name + "\"}"; }
std::string addition(const std::string& name) {
  return R"({"type":"tool_addition","tool":{"type":"tool_reference","name":")" + name + "\"}}";
}
const std::string kServerUse = R"({"type":"server_tool_use","id":"s","name":"web_search","input":{}})";
const std::string kServerResult = R"({"type":"web_search_tool_result","tool_use_id":"s","content":[]})";

std::string turn(std::string_view role, std::initializer_list<std::string> blocks) {
  return R"({"role":")" + std::string(role) + R"(","content":)" + listed(blocks) + "}";
}
std::string user(std::initializer_list<std::string> blocks = {text("u")}) { return turn("user", blocks); }
std::string assistant(std::initializer_list<std::string> blocks) { return turn("assistant", blocks); }
std::string system(std::initializer_list<std::string> blocks) { return turn("system", blocks); }

// A request with these turns and further members; "tools" are f, g (deferred) and h unless the members have their own.
std::string request(std::initializer_list<std::string> turns, const std::string& members = "",
                    std::string_view model = "DeepSeek-V4.1-Flash") {
  std::string body = R"({"model":")" + std::string(model) + R"(","messages":)" + listed(turns);
  if (members.find("\"tools\"") == members.npos) body += R"(,"tools":)" + std::string(kTools);
  if (!members.empty()) body += "," + members;
  return body + "}";
}

std::string refusal(std::initializer_list<std::string> turns, const std::string& members = "") {
  return message_of(convert(request(turns, members), with(Policy::strict)));
}

// The messages in one line: "system:S user:x assistant:y tool:z system:S+g".
std::string told(const Result<ConvertedRequest>& converted) {
  if (!converted) return converted.error().message;
  std::string out;
  for (const Message& message : converted->conversation.messages) {
    out += (out.empty() ? "" : " ") + std::string(name_of(message.role)) + ":" + message.content;
    if (!message.tools) continue;
    for (const ToolDefinition& tool : *message.tools) out += "+" + tool.name;
  }
  return out;
}
std::string told(std::initializer_list<std::string> turns, const std::string& members = "",
                 std::string_view model = "DeepSeek-V4.1-Flash", Policy policy = Policy::strict) {
  return told(convert(request(turns, members, model), with(policy)));
}

// -- wrong types ------------------------------------------------------------------------------------------------------

constexpr std::string_view kRich = R"({"model":"DeepSeek-V4.1-Flash","system":[{"type":"text","text":"s"}],"messages":[
  {"role":"user","content":[{"type":"text","text":"t"},
    {"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}},
    {"type":"image","source":{"type":"url","url":"https://x"}},{"type":"document","source":{"media_type":"m"}}]},
  {"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"s"},
    {"type":"tool_use","id":"1","name":"f","input":{}}]},
  {"role":"user","content":[{"type":"tool_result","tool_use_id":"1","is_error":true,"content":[
    {"type":"text","text":"t"},{"type":"tool_reference","tool_name":"f"},
    {"type":"image","source":{"type":"file","file_id":"x"}},{"type":"document","source":{}}]}]},
  {"role":"system","content":[{"type":"tool_addition","tool":{"type":"tool_reference","name":"f"}}]},
  {"role":"assistant","content":[{"type":"server_tool_use","id":"s","name":"n","input":{}},
    {"type":"web_search_tool_result","tool_use_id":"s","content":[]}]},{"role":"user","content":"x"}],
  "max_tokens":9,"thinking":{"type":"enabled","budget_tokens":5},"output_config":{"effort":"high"},"temperature":1,
  "top_p":1,"stop_sequences":["s"],"stream":true,"metadata":{"user_id":"u"},"tools":[{"name":"f","description":"d",
  "input_schema":{"type":"object"},"defer_loading":false},{"type":"web_search_20250305","name":"web_search"}],
  "tool_choice":{"type":"tool","name":"f","disable_parallel_tool_use":true}})";

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

TEST(MessagesRequest, AWrongTypeAnywhereIsRefusedAtItsOwnPathOrMeansNothing) {
  auto rich = parse_json(kRich, "test");
  ASSERT_TRUE(rich.ok());
  ASSERT_TRUE(MessagesRequest::parse(Json(*rich)).ok());
  int refused = 0;
  visit_all(*rich, "", [&](Json& node, const std::string& path) {
    const Json original = node;
    for (const Json& wrong : {Json::of(true), Json::of(-3), Json::of(0.5), Json::of("?"), Json::array()}) {
      node = wrong;
      const auto parsed = MessagesRequest::parse(Json(*rich));
      if (parsed) continue;
      ++refused;
      EXPECT_EQ(parsed.error().code, ErrorCode::bad_input);
      EXPECT_EQ(parsed.error().where, path) << to_string(wrong) << ": " << parsed.error().message;
    }
    node = original;
  });
  // 82 typed values, most of which refuse four of the five.
  EXPECT_GT(refused, 250);
}

TEST(MessagesRequest, WhatIsRequiredIsMissedByItsPath) {
  const auto missing = [](std::string_view body) { return place_of(convert(body, with(Policy::strict))); };
  EXPECT_EQ(missing(R"({"messages":[]})"), "model");
  EXPECT_EQ(missing(R"({"model":"m"})"), "messages");
  EXPECT_EQ(missing(R"({"model":"m","messages":null})"), "messages");
  EXPECT_EQ(missing(R"({"model":"m","messages":[{"role":"user"}]})"), "messages[0].content");
  EXPECT_EQ(missing(R"({"model":"m","messages":[{"content":"x"}]})"), "messages[0].role");
  EXPECT_EQ(missing(request({assistant({R"({"type":"tool_use","id":"1","name":"f"})"})})),
            "messages[0].content[0].input");
  EXPECT_EQ(missing(request({user()}, R"("tools":[{"input_schema":{}}])")), "tools[0].name");
  EXPECT_EQ(missing(request({user()}, R"("tool_choice":{"type":"tool"})")), "tool_choice.name");
  EXPECT_EQ(missing(request({user()}, R"("tools":[{"type":null,"name":"f"}])")), "tools[0].type");
}

TEST(MessagesRequest, NullIsAbsenceAndOfAnInputAValue) {
  EXPECT_EQ(told({user()}, R"("system":null,"thinking":null,"output_config":null,"tools":null,"tool_choice":null,)"
                           R"("stop_sequences":null,"stream":null,"metadata":null,"temperature":null)"),
            "user:u");
  const auto converted = convert(
      request({assistant({R"({"type":"tool_use","id":"1","name":"f","input":null})"}), user({result("1", "null")})}),
      with(Policy::strict));
  ASSERT_TRUE(converted.ok()) << message_of(converted);
  EXPECT_EQ(converted->conversation.messages[0].calls->at(0).arguments, "null");
  EXPECT_EQ(converted->conversation.messages[1].content, "");
}

// -- calls and results (measured; docs/recipe-findings.md)
// ---------------------------------------------------------------

std::string unanswered(const std::string& where, const std::string& ids) {
  return "messages." + where + "`tool_use` ids were found without `tool_result` blocks immediately after: " + ids +
         ". Each `tool_use` block must have a corresponding `tool_result` block in the next message.";
}

TEST(MessagesRequest, CallsMustBeAnsweredFirstInTheNextMessage) {
  const std::string calls = assistant({use("b"), use("a")});
  EXPECT_EQ(refusal({calls}), unanswered("0:", "a, b"));
  EXPECT_EQ(refusal({calls, user({result("b")})}), unanswered("0:", "a"));
  EXPECT_EQ(refusal({calls, user({text("t"), result("a")})}), unanswered("1: ", "a, b"));
  EXPECT_EQ(refusal({calls, user({result("a"), text("t"), result("b")})}), unanswered("1: ", "b"));
  EXPECT_EQ(refusal({calls, system({text("t")}), user({result("a"), result("b")})}), unanswered("1: ", "a, b"));
  EXPECT_EQ(refusal({calls, assistant({}), user()}), unanswered("1: ", "a, b"));
  EXPECT_EQ(refusal({calls, user({})}), "messages.1: all messages must have non-empty content");
  EXPECT_EQ(refusal({assistant({use("a"), text("t")}), user({result("a")})}), unanswered("0.1: ", "a"));
  EXPECT_EQ(refusal({assistant({use("a"), thinking("t")}), user({result("a")})}), "accepted");
  EXPECT_EQ(refusal({calls, user({result("a"), result("b"), text("t")}), calls, user({result("b"), result("a")})}),
            "accepted");
}

TEST(MessagesRequest, ResultsMustAnswerACallOfTheMessageBefore) {
  const std::string unexpected =
      ": tool_use_id` found in `tool_result` blocks: a. Each `tool_result` block must have a corresponding `tool_use` "
      "block in the previous message.";
  const std::string call = assistant({use("a")}), answer = user({result("a")});
  EXPECT_EQ(refusal({answer}), "unexpected `messages.0.content.0" + unexpected);
  EXPECT_EQ(refusal({call, answer, answer}), "unexpected `messages.2.content.0" + unexpected);
  EXPECT_EQ(refusal({call, user({result("a"), text("t"), result("a")})}),
            "messages.1.content.2: each tool_use must have a single result. Found multiple `tool_result` blocks with "
            "id: a");
}

TEST(MessagesRequest, BlocksStandInMessagesOfTheirRole) {
  EXPECT_EQ(refusal({user({kServerUse})}), "messages.0: `tool_use` blocks can only be in `assistant` messages");
  EXPECT_EQ(refusal({system({kServerResult})}),
            "messages.0: `web_search_tool_result` blocks can only be in `assistant` messages");
  EXPECT_EQ(refusal({system({result("a")})}), "messages.0: `tool_result` blocks can only be in `user` messages");
  EXPECT_EQ(refusal({assistant({addition("f")})}),
            "messages.0: `tool_addition` blocks can only be in `system` messages");
  EXPECT_EQ(refusal({user({thinking("t")})}),
            "messages.0.content: thinking blocks may only be in `assistant` messages");
}

TEST(MessagesRequest, TextsOfUsersStaySeparateAndOthersJoin) {
  EXPECT_EQ(told({user({text("a"), text(""), text("b")})}), "user:a user: user:b");
  EXPECT_EQ(told({assistant({text(""), text("a"), text(""), text("b")})}), "assistant:a\n\n\n\nb");
  EXPECT_EQ(told({system({text(""), text("a")}), user()}), "system:\n\na user:u");
  EXPECT_EQ(told({assistant({use("1")}), user({result("1", listed({text(""), text("a"), reference("h")}))})}),
            "assistant: tool:\n\na\n\nh system:+h");
  EXPECT_EQ(told({user({R"({"type":"document","source":{"media_type":"application/pdf"}})",
                        R"({"type":"document","source":{}})"})}),
            "user:[Unsupported document type: application/pdf] user:[Unsupported document type: unknown]");
}

TEST(MessagesRequest, SystemMessagesOfV4BecomeNotesOfTheUserAndEmptyOnesVanish) {
  EXPECT_EQ(told({system({text("a"), addition("g"), text("b")}), system({text("")}), system({}), user()}, "",
                 "DeepSeek-V4-Pro"),
            "user:<system-reminder>\na\n\nb\n</system-reminder> user:u");
  EXPECT_EQ(told({system({}), user()}), "system: user:u");
}

TEST(MessagesRequest, ThinkingOfTheHistoryIsKeptWhileThinkingIsOn) {
  const auto reasoning = [](std::initializer_list<std::string> blocks, const std::string& members = "") {
    const auto converted = convert(request({assistant(blocks), user()}, members), with(Policy::strict));
    return converted ? converted->conversation.messages[0].reasoning
                     : std::optional<std::string>(message_of(converted));
  };
  EXPECT_EQ(reasoning({thinking("a"), text("t"), thinking(""), thinking("b")}), "a\n\n\n\nb");
  EXPECT_EQ(reasoning({text("t")}), "");
  EXPECT_EQ(reasoning({thinking("a")}, R"("thinking":{"type":"disabled"})"), std::nullopt);
}

TEST(MessagesRequest, UnderRejectTheTurnInProgressNeedsItsThinking) {
  ConversionOptions options = with(Policy::strict);
  options.reject_missing_reasoning = true;
  const auto accepted = [&](std::initializer_list<std::string> turns, const std::string& members = "") {
    return convert(request(turns, members), options).ok();
  };
  const std::string plain = assistant({text("t")}), call = assistant({use("1")}), answer = user({result("1")});
  const std::string excused = assistant({use("call_00_ET_x")}), its_answer = user({result("call_00_ET_x")});
  EXPECT_FALSE(accepted({user(), call, answer}));
  EXPECT_TRUE(accepted({user(), call, answer, user()}));
  EXPECT_FALSE(accepted({user(), plain}));
  EXPECT_TRUE(accepted({user(), plain, user()}));
  EXPECT_TRUE(accepted({user(), plain}, R"("tools":[])"));
  EXPECT_FALSE(accepted({user(), call, answer}, R"("tools":[])"));
  EXPECT_TRUE(accepted({user(), excused, its_answer}));
  EXPECT_FALSE(accepted({user(), plain, excused, its_answer}));
  EXPECT_TRUE(accepted({user(), assistant({thinking(""), use("1")}), answer}));
  EXPECT_TRUE(accepted({user(), call, answer}, R"("thinking":{"type":"disabled"})"));
}

// -- tools
// ----------------------------------------------------------------------------------------------------------------

TEST(MessagesRequest, ReferencedToolsAreAnnouncedBehindTheTurnOfV41) {
  const std::string calls = assistant({use("1"), use("2")});
  const std::string answers =
      user({result("1", listed({reference("g"), reference("h")})), result("2", listed({reference("g")})), text("t")});
  EXPECT_EQ(told({calls, answers, user()}), "assistant: tool:g\n\nh tool:g user:t system:+g+h+g user:u");
  EXPECT_EQ(told({calls, answers, user()}, "", "DeepSeek-V4-Pro"), "assistant: tool:g\n\nh tool:g user:t user:u");
  // Only tools that tool_choice leaves; an announcement of nothing vanishes.
  EXPECT_EQ(told({calls, answers}, R"("thinking":{"type":"disabled"},"tool_choice":{"type":"tool","name":"h"})"),
            "assistant: tool:g\n\nh tool:g user:t system:+h");
  EXPECT_EQ(told({calls, answers}, R"("tool_choice":{"type":"none"})"), "assistant: tool:g\n\nh tool:g user:t");
  EXPECT_EQ(told({system({text("s"), addition("g")}), system({addition("g")}), user()}), "system:s+g system:+g user:u");
  EXPECT_EQ(
      told({system({text("s"), addition("g")}), system({addition("g")}), user()}, R"("tool_choice":{"type":"none"})"),
      "system:s user:u");
}

TEST(MessagesRequest, ToolChoiceReducesTheTools) {
  const auto choose = [](const std::string& choice, const std::string& more = "") {
    const auto converted = convert(request({user()}, R"("tool_choice":)" + choice + more), with(Policy::strict));
    if (!converted) return message_of(converted);
    std::string out = name_of(converted->conversation.tool_choice);
    for (const ToolDefinition& tool : converted->conversation.tools) out += " " + tool.name;
    return out;
  };
  const std::string off = R"(,"thinking":{"type":"disabled"})";
  EXPECT_EQ(choose(R"({"type":"auto"})"), "auto f g h");
  EXPECT_EQ(choose(R"({"type":"any"})", off), "auto f g h");
  EXPECT_EQ(choose(R"({"type":"none"})"), "none");
  EXPECT_EQ(choose(R"({"type":"none"})", R"(,"tools":[{"name":"f","input_schema":5}])"), "none");
  EXPECT_EQ(choose(R"({"type":"tool","name":"g"})", off), "required g");
  EXPECT_EQ(choose(R"({"type":"tool","name":"g"})"), "Thinking mode does not support this tool_choice");
  EXPECT_EQ(choose(R"({"type":"tool","name":"z"})"),
            "Invalid value for 'tool_call': no function named 'z' was specified in the 'tools' parameter.");
  EXPECT_EQ(choose(R"({"type":"tool","name":"z"})", R"(,"tools":[])"), "auto");
}

TEST(MessagesRequest, WebSearchIsRefusedOrDroppedWithItsChoiceAndItsBlocks) {
  ConversionOptions options = with(Policy::strict);
  const std::string members =
      R"("tools":[{"type":"web_search_20250305"},{"name":"f","input_schema":{"type":"object"}}],)"
      R"("tool_choice":{"type":"tool","name":"web_search"})";
  const std::string body = request({assistant({kServerUse, kServerResult, text("t")}), user()}, members);
  EXPECT_EQ(message_of(convert(body, options)), "tools[0]: server tools are not supported");
  options.messages_web_search = ConversionOptions::WebSearch::drop;
  const auto converted = convert(body, options);
  ASSERT_TRUE(converted.ok()) << message_of(converted);
  EXPECT_EQ(told(converted), "assistant:t user:u");
  EXPECT_EQ(converted->conversation.tool_choice, ToolChoice::automatic);
  EXPECT_EQ(converted->conversation.tools.size(), 1u);
  EXPECT_EQ(message_of(convert(request({user()}, R"("tools":[{"type":"bash_20250124","name":"bash"}])"), options)),
            "tools[0]: server tools are not supported");
  // The choice of a name that neither remained nor was dropped.
  EXPECT_EQ(message_of(convert(request({user()}, R"("tools":[{"type":"web_search"}],)"
                                                 R"("tool_choice":{"type":"tool","name":"f"})"),
                               options)),
            "Invalid value for 'tool_call': no function named 'f' was specified in the 'tools' parameter.");
}

TEST(MessagesRequest, AllToolsMayBeDeferredInV4Only) {
  const std::string tools = R"("tools":[{"name":"f","input_schema":{"type":"object"},"defer_loading":true}])";
  EXPECT_EQ(refusal({user()}, tools),
            "tools: at least one tool must have defer_loading=false. All tools cannot be deferred.");
  const auto converted = convert(request({user()}, tools, "DeepSeek-V4-Pro"), with(Policy::strict));
  ASSERT_TRUE(converted.ok()) << message_of(converted);
  EXPECT_FALSE(converted->conversation.tools[0].defer_loading);
}

// -- images
// ---------------------------------------------------------------------------------------------------------------

TEST(MessagesRequest, ImagesKnowWhereTheyStandInTheRequestAndInTheMessage) {
  const auto converted =
      convert(request({user({text("<｜image｜>"), image("http://0")}), assistant({use("1")}),
                       user({result("1", listed({text("<｜image｜>"), image("http://1"), image("http://2")}))}),
                       system({text("s"), image("http://3")})}),
              with(Policy::strict));
  ASSERT_TRUE(converted.ok()) << message_of(converted);
  const auto& messages = converted->conversation.messages;
  const int64_t token = int64_t(std::string_view("<｜image｜>").size());
  const auto expect = [](const ImageSource& image, std::string_view url, std::string_view path, int64_t offset) {
    EXPECT_EQ(image.data, url);
    EXPECT_EQ(image.path, path);
    EXPECT_EQ(image.offset, offset);
    EXPECT_EQ(image.detail, ImageDetail::high);
  };
  EXPECT_TRUE(messages[0].images.empty());  // what a user types is text
  expect(messages[1].images.at(0), "http://0", "messages.0.content[1]", 0);
  expect(messages[3].images.at(0), "http://1", "messages.2.content.0.tool_result", token + 2);
  expect(messages[3].images.at(1), "http://2", "messages.2.content.0.tool_result", 2 * (token + 2));
  expect(messages[4].images.at(0), "http://3", "messages.3", 3);
}

TEST(MessagesRequest, ImagesThatCannotBeAreRefusedWhereTheyStand) {
  EXPECT_EQ(refusal({user({text("t"), image("ftp://x")})}), "messages.0.content[1]: invalid url: \"ftp://x\"");
  EXPECT_EQ(refusal({system({image("data:image/png;base64,AAAA")})}),
            "messages.0.content[0]: invalid url: \"data:image/png;base64,AAAA\"");
  EXPECT_EQ(refusal({assistant({use("1")}), user({result("1", listed({text("t"), image("")}))})}),
            "messages.1.content.0.tool_result.content[1]: invalid url: \"\"");
  const auto at = convert(request({assistant({use("1")}), user({result("1", listed({text("t"), image("")}))})}), {});
  EXPECT_EQ(place_of(at), "messages[1].content[0].content[1]");
  EXPECT_EQ(refusal({user({image("http" + std::string(8188, 'x'))})}), "accepted");
  EXPECT_EQ(refusal({user({image("http" + std::string(8189, 'x'))})}),
            "messages.0.content[0]: external link length 8193 too long, max link length 8192. Consider passing file "
            "data directly with base64 data url instead.");
  EXPECT_EQ(refusal({assistant({image("http")})}), "Image in assistant message is unsupported");
  // V4 shows no image and looks at none.
  EXPECT_EQ(told({user({image("ftp")}), assistant({image("ftp")}), user()}, "", "DeepSeek-V4-Pro"),
            "user:[Unsupported Image] assistant:[Unsupported Image] user:u");
}

// -- numbers, policies
// ------------------------------------------------------------------------------------------------------

TEST(MessagesRequest, MaxTokensAboveTheBoundAreLowered) {
  ConversionOptions options = with(Policy::strict);
  options.thinking_max_tokens = 100;
  options.non_thinking_max_tokens = 50;
  const std::string off = R"(,"thinking":{"type":"disabled"})";
  const auto tokens = [&](const std::string& members) {
    const auto converted = convert(request({user()}, members), options);
    return converted ? std::to_string(converted->inference.max_tokens.value_or(0)) : message_of(converted);
  };
  EXPECT_EQ(tokens(R"("max_tokens":4294967295)"), "100");
  EXPECT_EQ(tokens(R"("max_tokens":101)" + off), "50");
  EXPECT_EQ(tokens(R"("max_tokens":1)"), "1");
  EXPECT_EQ(tokens(R"("max_tokens":0)" + off), "Invalid max_tokens value, the valid range of max_tokens is [1, 50]");
  EXPECT_EQ(tokens(R"("stream":false)"), "0");  // not given
}

TEST(MessagesRequest, UnderStrictOnlyTheFirstBlockOfASystemListIsABillingBlock) {  // D-3
  const auto head = [](const std::string& system) { return told({user()}, R"("system":)" + system); };
  const std::string line = "X-Anthropic-Billing-Header: a\nb";
  EXPECT_EQ(head(listed({text(line), text("c")})), "system:c user:u");
  EXPECT_EQ(head(listed({text(line)})), "system: user:u");
  EXPECT_EQ(head(listed({text("c"), text(line)})), "system:c\n\n" + line + " user:u");
  EXPECT_EQ(head(R"("x-anthropic-billing-header")"), "system:x-anthropic-billing-header user:u");
  EXPECT_EQ(head(R"("")"), "system: user:u");
  EXPECT_EQ(head("[]"), "system: user:u");
  EXPECT_EQ(told({system({text(line)}), user()}), "system:" + line + " user:u");
}

TEST(MessagesRequest, UnderLenientBillingLinesLeaveAllSystemTexts) {  // D-3
  const auto said = [](const std::string& head, std::initializer_list<std::string> turns,
                       std::string_view model = "DeepSeek-V4.1-Flash") {
    return told(turns, R"("system":)" + head, model, Policy::lenient);
  };
  const std::string line = "x-anthropic-billing-header: a\n", twice = line + "\n" + "X-ANTHROPIC-BILLING-HEADERb\r\n";
  EXPECT_EQ(said(listed({text("c"), text(twice + "d")}), {user()}), "system:c\n\nd user:u");
  EXPECT_EQ(said(listed({text(line), text("c")}), {user()}), "system:c user:u");
  EXPECT_EQ(said(listed({text(line)}), {user()}), "user:u");
  EXPECT_EQ(said(R"("x-anthropic-billing-header")", {user()}), "user:u");
  EXPECT_EQ(said(R"("")", {user()}), "system: user:u");  // empty as it was sent
  EXPECT_EQ(said(R"("s")", {system({text(line)}), system({text(line + "d")}), user()}), "system:s system:d user:u");
  EXPECT_EQ(said(R"("s")", {system({text(line), addition("g")}), user()}), "system:s system:+g user:u");
  EXPECT_EQ(said(R"("s")", {system({text(line)}), user()}, "DeepSeek-V4-Pro"), "system:s user:u");
  EXPECT_EQ(said(R"("s")", {user({text(line)}), assistant({text(line)})}),
            "system:s user:" + line + " assistant:" + line);
}

TEST(MessagesRequest, UnderLenientAnEffortMayBeANumber) {  // D-6
  const auto effort = [](const std::string& number, std::string_view model = "DeepSeek-V4.1-Flash") {
    ConversionOptions options;
    options.default_thinking = false;
    const auto converted = convert(request({user()}, R"("output_config":{"effort":)" + number + "}", model), options);
    if (!converted) return message_of(converted);
    return converted->conversation.thinking ? std::to_string(converted->conversation.effort_number.value_or(0)) : "off";
  };
  EXPECT_EQ(effort("1"), "1");
  EXPECT_EQ(effort("100"), "100");
  EXPECT_EQ(effort("\"high\""), "0");
  EXPECT_EQ(effort("\"none\""), "off");
  EXPECT_EQ(effort("101"), "Invalid reasoning_effort value, the valid range of reasoning_effort is [1, 100]");
  EXPECT_EQ(effort("50", "DeepSeek-V4-Pro"), "Integer reasoning_effort needs DeepSeek-V4.1-Flash");
  const auto strict = convert(request({user()}, R"("output_config":{"effort":50})"), with(Policy::strict));
  ASSERT_FALSE(strict.ok());
  EXPECT_EQ(strict.error().code, ErrorCode::bad_input);
}

TEST(MessagesRequest, UnderLenientModelNamesIgnoreCaseAndHaveAnAlias) {  // D-7
  for (std::string_view model : {"deepseek-v4.1-FLASH", "DeepSeek-Flash"}) {
    const auto lenient = convert(request({user()}, "", model), {});
    ASSERT_TRUE(lenient.ok()) << message_of(lenient);
    EXPECT_EQ(lenient->version, ModelVersion::v41);
    EXPECT_FALSE(convert(request({user()}, "", model), with(Policy::strict)).ok());
  }
}

}  // namespace
}  // namespace fathom::recipe
