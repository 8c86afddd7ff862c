#include "fathom/recipe/api/messages/convert_image.h"

#include <gtest/gtest.h>

namespace fathom::recipe {
namespace {

std::string settled(std::string text) { return settle_base64(text) ? text : "refused"; }

// Every row measured with deepseek-recipe 0.2.0.
TEST(Base64, NeedsPaddingAndDropsWhatIsTooMuch) {
  EXPECT_EQ(settled(""), "");
  EXPECT_EQ(settled("===="), "");
  EXPECT_EQ(settled("AAAA"), "AAAA");
  EXPECT_EQ(settled("AAAA="), "AAAA");
  EXPECT_EQ(settled("AA="), "AA==");
  EXPECT_EQ(settled("AA===="), "AA==");
  EXPECT_EQ(settled("AAA==="), "AAA=");
  EXPECT_EQ(settled("+/+/"), "+/+/");
  for (const char* wrong :
       {"A", "AA", "AAA", "A===", "AAAAA", "AA==AA", "AA AA", "AAAA\n", "-_-_", "@@@@", "AAA\xff"}) {
    EXPECT_EQ(settled(wrong), "refused") << wrong;
  }
}

TEST(Base64, BitsBehindTheLastByteMustBeZero) {
  EXPECT_EQ(settled("/w=="), "/w==");  // w is 48: its low four bits are 0
  EXPECT_EQ(settled("/x=="), "refused");
  EXPECT_EQ(settled("//8="), "//8=");
  EXPECT_EQ(settled("//9="), "refused");
}

TEST(Quoted, ShowsWhatCannotBeSeen) {
  EXPECT_EQ(quoted("x\\y\"é\n\t\r'\x7f\u2028\x01😀\u200b\u0301"),
            "\"x\\\\y\\\"é\\n\\t\\r'\\u{7f}\\u{2028}\\u{1}😀\\u{200b}\\u{301}\"");
  EXPECT_EQ(quoted(std::string_view("\0", 1)), "\"\\0\"");
  EXPECT_EQ(quoted(""), "\"\"");
}

}  // namespace
}  // namespace fathom::recipe
