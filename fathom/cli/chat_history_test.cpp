#include "fathom/cli/chat_history.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "fathom/base/mapped_file.h"

namespace fathom::cli {
namespace {

Answer with_calls() {
  Answer answer;
  answer.text = "Let me see.";
  answer.reasoning = "Two clocks.";
  answer.calls = {{"call_a", "f", R"({"x": 1})"}, {"call_b", "g", "{}"}};
  return answer;
}

TEST(ChatHistory, CallsAreAnsweredOneAfterTheOther) {
  Json messages = Json::array();
  EXPECT_FALSE(open_call(messages));
  messages.push(chat_message("user", "?"));
  EXPECT_FALSE(open_call(messages));
  messages.push(assistant_message(with_calls()));
  EXPECT_EQ(open_call(messages)->name, "f");
  messages.push(tool_message("call_a", "1"));
  EXPECT_EQ(open_call(messages)->id, "call_b");
  EXPECT_FALSE(open_call(with_all_results(messages)));
  messages.push(tool_message("call_b", ""));
  EXPECT_FALSE(open_call(messages));
  EXPECT_EQ(with_all_results(messages), messages);
  const auto request = chat_request(messages, {});
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->converted.conversation.messages[1].calls, with_calls().calls);
}

class Load : public testing::Test {
 protected:
  Result<LoadedChat> load(const std::string& text) {
    const std::string path = testing::TempDir() + "fathom-chat-history-" + std::to_string(::getpid()) + ".json";
    EXPECT_TRUE(write_file(path, text).ok());
    return load_chat(path, {});
  }
};

TEST_F(Load, WhatWasSavedIsReadAgain) {
  ChatFrame frame;
  frame.system = "Be brief.";
  frame.effort = Json::of(33);
  frame.tools = *parse_json(R"([{"type":"function","function":{"name":"f"}}])", "tools");
  Json messages = Json::array();
  messages.push(chat_message("user", "?"));
  messages.push(assistant_message(with_calls()));
  messages.push(tool_message("call_a", "1"));
  const auto read = load(to_string(chat_body(messages, frame)));
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->messages, messages);
  EXPECT_EQ(read->frame.system, frame.system);
  EXPECT_EQ(read->frame.effort, frame.effort);
  EXPECT_EQ(read->frame.tools, frame.tools);
  EXPECT_EQ(open_call(read->messages)->name, "g");
}

// Earlier versions saved calls without ids, and had no results for them.
TEST_F(Load, FilesOfEarlierVersionsAreRead) {
  const auto read = load(R"({"messages":[{"role":"system","content":"s"},{"role":"user","content":"a"},)"
                         R"({"role":"assistant","content":"","reasoning_content":"r","tool_calls":[{"type":"function",)"
                         R"("function":{"name":"f","arguments":"{\"x\": 1}"}}]},{"role":"user","content":"b"},)"
                         R"({"role":"assistant","content":"","tool_calls":[{"type":"function",)"
                         R"("function":{"name":"g","arguments":"{}"}}]}]})");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->frame.system, "s");
  ASSERT_EQ(read->messages.items.size(), 5u);
  EXPECT_EQ(to_string(read->messages.items[2]), R"({"role":"tool","content":"","tool_call_id":"call_0"})");
  EXPECT_EQ(open_call(read->messages)->id, "call_1");
}

TEST_F(Load, WhatIsNoConversationIsRefused) {
  for (const char* text : {"{}", "[]", R"({"messages":5})", R"({"messages":[5]})", R"({"messages":[{"role":"x"}]})",
                           R"({"messages":[{"role":"tool","content":"x"}]})", "{"}) {
    const auto read = load(text);
    ASSERT_FALSE(read.ok()) << text;
    EXPECT_EQ(read.error().code, ErrorCode::bad_input) << text;
  }
}

}  // namespace
}  // namespace fathom::cli
