#include "fathom/cli/answer_text.h"

#include <gtest/gtest.h>

namespace fathom::cli {
namespace {

TEST(CallBlock, HasALineForEachParameter) {
  EXPECT_EQ(call_block({"id", "set_alarm", R"({"hour": 4, "minute": 37.0})"}),
            "┌ set_alarm\n│ hour: 4\n│ minute: 37.0\n└\n");
  EXPECT_EQ(call_block({"id", "now", "{}"}), "┌ now\n└\n");
}

TEST(CallBlock, TellsTextsFromOtherValues) {
  EXPECT_EQ(call_block({"id", "f", R"({"a": "4", "b": null, "c": [1, "x"]})"}),
            "┌ f\n│ a: \"4\"\n│ b: null\n│ c: [1,\"x\"]\n└\n");
}

TEST(CallBlock, ALongerTextStandsBelowItsName) {
  EXPECT_EQ(call_block({"id", "write", R"({"text": "one\n  \"two\"\n\nfour\n"})"}),
            "┌ write\n│ text:\n│   one\n│     \"two\"\n│   \n│   four\n└\n");
}

TEST(CallBlock, NothingInItSteersTheTerminal) {
  const std::string block = call_block({"id", "f\x1b[2J", R"({"a\u001b": "\u001b[2J\n\u001b]0;x\u0007"})"});
  EXPECT_EQ(block, "┌ f\\e[2J\n│ a\\e:\n│   \\e[2J\n│   \\e]0;x?\n└\n");
}

}  // namespace
}  // namespace fathom::cli
