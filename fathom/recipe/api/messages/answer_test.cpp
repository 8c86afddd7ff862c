#include "fathom/recipe/api/messages/answer.h"

#include <gtest/gtest.h>

namespace fathom::recipe {
namespace {

MessagesForm form(Policy policy = Policy::lenient) {
  MessagesForm form;
  form.identity = {"msg_1", "m", 0};
  form.thinking = false;
  form.policy = policy;
  return form;
}

std::string names(const WireEvents& out) {
  std::string joined;
  for (const auto& event : out.events) joined.append(event.comment ? "#" : event.name).append(" ");
  return joined;
}

std::string content_of(const MessagesBody& body) {
  std::string out;
  body.append_to(out);
  const size_t begin = out.find("\"content\":");
  return out.substr(begin, out.find(",\"stop_reason\"") - begin);
}

// Clients run a tool_use block when it stops: one that was cut must never stop (D-12).
TEST(MessagesWriterTest, ADroppedCallNeverStopsAndLeavesTheBody) {
  MessagesWriter writer(form());
  MessagesBody body(form());
  WireEvents out;
  writer.start({}, out);
  body.start({});
  const Delta deltas[] = {{Delta::Kind::call, 0, "f", "call_00_a", {}},
                          {Delta::Kind::arguments, 0, "{}", "", {}},
                          {Delta::Kind::call_end, 0, "", "", {}},
                          {Delta::Kind::call, 1, "g", "call_01_b", {}},
                          {Delta::Kind::call_dropped, 1, "", "", {}}};
  for (const Delta& delta : deltas) {
    writer.write(delta, out);
    body.write(delta);
  }
  AnswerEnd end;
  end.reason = FinishReason::tool_calls;
  writer.finish(end, out);
  body.finish(end);
  EXPECT_EQ(names(out),
            "message_start content_block_start ping content_block_delta content_block_stop content_block_start "
            "message_delta message_stop ");
  EXPECT_EQ(content_of(body), R"("content":[{"type":"tool_use","id":"call_00_a","name":"f","input":{}}])");
}

TEST(MessagesWriterTest, TheInputOfACallKeepsItsDigitsUnlessThePolicyIsStrict) {
  for (Policy policy : {Policy::lenient, Policy::strict}) {
    MessagesBody body(form(policy));
    body.start({});
    body.write({Delta::Kind::call, 0, "f", "c", {}});
    body.write({Delta::Kind::arguments, 0, R"({"n": 12345678901234567890123, "x": 2.50})", "", {}});
    body.finish({});
    EXPECT_EQ(content_of(body), std::string(R"("content":[{"type":"tool_use","id":"c","name":"f","input":{"n":)") +
                                    (policy == Policy::strict ? R"(1.2345678901234568e+22,"x":2.5}}])"
                                                              : R"(12345678901234567890123,"x":2.50}}])"));
  }
}

TEST(MessagesWriterTest, ASignOfLifeIsAPingOnceTheMessageBegan) {
  MessagesWriter writer(form());
  WireEvents out;
  writer.keep_alive(out);
  writer.start({}, out);
  writer.keep_alive(out);
  EXPECT_EQ(names(out), "# message_start ping ");
}

TEST(MessagesWriterTest, AFailureIsTheErrorEventAndNothingAfterIt) {
  MessagesWriter writer(form());
  WireEvents out;
  writer.start({}, out);
  writer.write({Delta::Kind::content, 0, "x", "", {}}, out);
  out.clear();
  writer.fail({ErrorCode::out_of_memory, "no room", "", ""}, out);
  std::string sse;
  append_sse(sse, out);
  EXPECT_EQ(sse,
            "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"no room\"}}"
            "\n\n");
}

}  // namespace
}  // namespace fathom::recipe
