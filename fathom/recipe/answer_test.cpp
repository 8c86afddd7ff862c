#include "fathom/recipe/answer.h"

#include <gtest/gtest.h>

namespace fathom::recipe {
namespace {

TEST(WireEventsTest, FramesNameTheEventWhenItHasAName) {
  WireEvents events;
  events.text = R"({"a":1})";
  events.add("", 0);
  events.add_comment();
  const size_t begin = events.text.size();
  events.text += R"({"type":"ping"})";
  events.add("ping", begin);
  std::string out = "before ";
  append_sse(out, events);
  EXPECT_EQ(out, "before data: {\"a\":1}\n\n: keep-alive\n\nevent: ping\ndata: {\"type\":\"ping\"}\n\n");
  events.clear();
  append_sse(out, events);
  EXPECT_TRUE(out.ends_with("ping\"}\n\n"));
}

TEST(FailureTypeTest, TellsTheRequestsFaultFromOurs) {
  for (Api api : {Api::chat_completions, Api::responses, Api::messages}) {
    EXPECT_EQ(failure_type(ErrorCode::usage, api), "invalid_request_error");
    EXPECT_EQ(failure_type(ErrorCode::bad_input, api), "invalid_request_error");
  }
  EXPECT_EQ(failure_type(ErrorCode::failed, Api::chat_completions), "server_error");
  EXPECT_EQ(failure_type(ErrorCode::out_of_memory, Api::responses), "server_error");
  EXPECT_EQ(failure_type(ErrorCode::failed, Api::messages), "api_error");
  EXPECT_EQ(failure_type(ErrorCode::out_of_memory, Api::messages), "overloaded_error");
}

}  // namespace
}  // namespace fathom::recipe
