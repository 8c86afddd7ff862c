#include "fathom/recipe/api/responses/answer.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace fathom::recipe {
namespace {

ResponsesForm form(std::string_view tools = "[]", Policy policy = Policy::lenient) {
  ResponsesForm form;
  form.identity = {"r\"1", "m", 7};
  form.echo.tools = *parse_json(tools, "test");
  form.policy = policy;
  return form;
}

struct Answer {
  std::vector<std::string> events;  // "name json"
  std::string body;
  Json response;

  std::string item(size_t i) const { return to_string(response.find("output")->items[i]); }
  int count(std::string_view name) const {
    return int(std::count_if(events.begin(), events.end(), [&](const auto& e) { return e.starts_with(name); }));
  }
};

Answer answer_of(const ResponsesForm& form, const std::vector<Delta>& deltas,
                 FinishReason reason = FinishReason::stop) {
  ResponsesWriter writer(form);
  ResponsesBody body(form);
  WireEvents out;
  writer.start({}, out);
  body.start({});
  for (const Delta& delta : deltas) {
    writer.write(delta, out);
    body.write(delta);
  }
  AnswerEnd end;
  end.reason = reason;
  writer.finish(end, out);
  body.finish(end);
  Answer answer;
  for (const auto& event : out.events) {
    answer.events.push_back(std::string(event.name) + " " + std::string(out.json(event)));
  }
  body.append_to(answer.body);
  answer.response = *parse_json(answer.body, "body");
  EXPECT_NE(answer.events.back().find(answer.body), std::string::npos) << "stream and body differ";
  return answer;
}

std::vector<Delta> call(std::string_view name, std::string_view arguments, Delta::Kind end = Delta::Kind::call_end) {
  return {{Delta::Kind::call, 0, name, "call_00_a", {}},
          {Delta::Kind::arguments, 0, arguments, "", {}},
          {end, 0, "", "", {}}};
}

constexpr std::string_view kPatchTool = R"([{"type":"custom","name":"apply_patch"}])";
constexpr std::string_view kSearchTool = R"([{"type":"tool_search","execution":"client","parameters":{}}])";

TEST(ResponsesWriterTest, ADroppedCallStaysAndIsIncompleteInACompletedResponse) {
  const Answer answer = answer_of(form(), call("f", "{\"k\"", Delta::Kind::call_dropped));
  EXPECT_EQ(answer.item(0),
            R"({"type":"function_call","id":"fc_r\"1_0","status":"incomplete","call_id":"call_00_a","name":"f",)"
            R"("arguments":"{\"k\""})");
  EXPECT_EQ(answer.response.find("status")->text, "completed");
  EXPECT_EQ(answer.count("response.completed"), 1);
}

TEST(ResponsesWriterTest, TheLastItemOfACutResponseIsIncompleteEvenWhenItIsWhole) {
  const Answer answer = answer_of(form(), call("f", "{}"), FinishReason::length);
  EXPECT_EQ(answer.response.find("output")->items[0].find("status")->text, "incomplete");
  EXPECT_EQ(to_string(*answer.response.find("incomplete_details")), R"({"reason":"max_output_tokens"})");
}

// Measured: only the declaration makes a call special, not the name.
TEST(ResponsesWriterTest, ApplyPatchIsCustomAndToolSearchIsSearchOnlyWhenDeclaredSo) {
  const auto patch = call("apply_patch", R"({"input": "x"})"), search = call("tool_search", R"({"q": 1.50})");
  const auto type = [](const Answer& answer) { return answer.response.find("output")->items[0].find("type")->text; };
  EXPECT_EQ(type(answer_of(form(kPatchTool), patch)), "custom_tool_call");
  EXPECT_EQ(type(answer_of(form(R"([{"type":"function","name":"apply_patch"}])"), patch)), "function_call");
  EXPECT_EQ(type(answer_of(form(kSearchTool), search)), "tool_search_call");
  EXPECT_EQ(type(answer_of(form(R"([{"type":"tool_search","execution":"client"}])"), search)), "tool_search_call");
  EXPECT_EQ(type(answer_of(form(R"([{"type":"tool_search","execution":"server"}])"), search)), "function_call");
  EXPECT_EQ(type(answer_of(form(R"([{"type":"function","name":"tool_search"}])"), search)), "function_call");
}

TEST(ResponsesWriterTest, ToolSearchShowsItsArgumentsOnlyWhenItIsWhole) {
  const auto arguments = [](const Answer& answer) {
    const Json& item = answer.response.find("output")->items[0];
    return item.find("status")->text + " " + to_string(*item.find("arguments"));
  };
  const auto whole = call("tool_search", R"({"q": 1.50})");
  EXPECT_EQ(arguments(answer_of(form(kSearchTool), whole)), R"(completed {"q":1.50})");
  EXPECT_EQ(arguments(answer_of(form(kSearchTool, Policy::strict), whole)), R"(completed {"q":1.5})");
  EXPECT_EQ(arguments(answer_of(form(kSearchTool), whole, FinishReason::length)), "incomplete {}");
  EXPECT_EQ(arguments(answer_of(form(kSearchTool), call("tool_search", "{\"q\": oops}"))), "incomplete {}");
  EXPECT_EQ(answer_of(form(kSearchTool), whole).count("response.function_call_arguments"), 0);
}

TEST(ResponsesWriterTest, NamesOfDeclaredNamespacesAreSplitAndOthersAreNot) {
  ResponsesForm with = form();
  with.namespaces["geo::get"] = {"geo", "get"};
  EXPECT_NE(answer_of(with, call("geo::get", "{}")).item(0).find(R"("name":"get","namespace":"geo")"),
            std::string::npos);
  EXPECT_NE(answer_of(with, call("geo::put", "{}")).item(0).find(R"("name":"geo::put","arguments")"),
            std::string::npos);
}

TEST(ResponsesWriterTest, AMessageBeforeACallIsCommentary) {
  std::vector<Delta> deltas = {{Delta::Kind::content, 0, "Ok.", "", {}}};
  EXPECT_NE(answer_of(form(), deltas).item(0).find(R"("phase":"final_answer")"), std::string::npos);
  for (const Delta& delta : call("f", "{}")) deltas.push_back(delta);
  EXPECT_NE(answer_of(form(), deltas).item(0).find(R"("phase":"commentary")"), std::string::npos);
}

TEST(ResponsesWriterTest, SequenceNumbersCountEveryEventWithoutGaps) {
  std::vector<Delta> deltas = {{Delta::Kind::reasoning, 0, "t", "", {}}, {Delta::Kind::content, 0, "x", "", {}}};
  for (const Delta& delta : call("f", "{}")) deltas.push_back(delta);
  const Answer answer = answer_of(form(), deltas);
  for (size_t i = 0; i < answer.events.size(); ++i) {
    EXPECT_NE(answer.events[i].find("\"sequence_number\":" + std::to_string(i)), std::string::npos) << answer.events[i];
  }
}

TEST(ResponsesWriterTest, AFailureShowsTheOutputSoFarWithTheOpenItemIncomplete) {
  ResponsesWriter writer(form());
  WireEvents out;
  writer.start({}, out);
  writer.write({Delta::Kind::reasoning, 0, "t", "", {}}, out);
  writer.write({Delta::Kind::content, 0, "hal", "", {}}, out);
  const size_t sequence = out.events.size();
  out.clear();
  writer.fail({ErrorCode::failed, "peer lost", "", ""}, out);
  ASSERT_EQ(out.events.size(), 1u);
  EXPECT_EQ(out.events[0].name, "response.failed");
  const Json event = *parse_json(out.json(out.events[0]), "event");
  const Json& response = *event.find("response");
  EXPECT_EQ(event.find("sequence_number")->as_int64(), int64_t(sequence));
  EXPECT_EQ(response.find("status")->text, "failed");
  EXPECT_EQ(to_string(*response.find("error")), R"({"code":"server_error","message":"peer lost"})");
  EXPECT_TRUE(response.find("completed_at")->is_null());
  ASSERT_EQ(response.find("output")->items.size(), 2u);
  EXPECT_EQ(response.find("output")->items[0].find("status")->text, "completed");
  EXPECT_EQ(to_string(response.find("output")->items[1]),
            R"({"type":"message","id":"msg_r\"1_1","status":"incomplete","role":"assistant","phase":"final_answer",)"
            R"("content":[{"type":"output_text","annotations":[],"logprobs":[],"text":"hal"}]})");
}

TEST(ResponsesWriterTest, ASignOfLifeRepeatsInProgressButIsACommentUnderStrictAndBeforeTheStart) {
  for (Policy policy : {Policy::lenient, Policy::strict}) {
    ResponsesWriter writer(form("[]", policy));
    WireEvents out;
    writer.keep_alive(out);
    EXPECT_TRUE(out.events[0].comment);
    writer.start({}, out);
    out.clear();
    writer.keep_alive(out);
    ASSERT_EQ(out.events.size(), 1u);
    EXPECT_EQ(out.events[0].comment, policy == Policy::strict);
    if (policy == Policy::strict) continue;
    EXPECT_EQ(out.events[0].name, "response.in_progress");
    EXPECT_TRUE(out.json(out.events[0]).ends_with(R"(,"sequence_number":2})"));
  }
}

TEST(ResponsesWriterTest, WithoutARequestTheEchoIsTheDefaults) {
  ResponsesForm none;
  none.identity = {"ID", "m", 0};
  const Answer answer = answer_of(none, {});
  EXPECT_EQ(to_string(*answer.response.find("reasoning")), R"({"effort":null,"summary":null})");
  EXPECT_EQ(to_string(*answer.response.find("text")), R"({"format":{"type":"text"},"verbosity":null})");
  EXPECT_EQ(to_string(*answer.response.find("tool_choice")), R"("auto")");
  EXPECT_EQ(to_string(*answer.response.find("tools")), "[]");
  EXPECT_EQ(answer.response.find("temperature")->text, "1.0");
}

}  // namespace
}  // namespace fathom::recipe
