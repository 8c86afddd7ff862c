#include "fathom/net/http_message.h"

#include <gtest/gtest.h>

namespace fathom::net {
namespace {

TEST(HttpMessageTest, AFieldIsFoundWhateverItsCaseAndTheFirstCounts) {
  const HttpFields fields = {{"Content-Type", "a"}, {"content-type", "b"}};
  ASSERT_NE(fields.find("CONTENT-TYPE"), nullptr);
  EXPECT_EQ(*fields.find("CONTENT-TYPE"), "a");
  EXPECT_EQ(fields.find("Content"), nullptr);
}

TEST(HttpMessageTest, AQueryValueIsDecoded) {
  HttpRequest request;
  request.query = "after=a%20b+c&empty=&flag&%6cimit=3&after=second&bad=%zz%4";
  EXPECT_EQ(request.query_value("after"), "a b c");
  EXPECT_EQ(request.query_value("empty"), "");
  EXPECT_EQ(request.query_value("flag"), "");
  EXPECT_EQ(request.query_value("limit"), "3");
  EXPECT_EQ(request.query_value("bad"), "%zz%4");
  EXPECT_EQ(request.query_value("none"), std::nullopt);
}

TEST(HttpMessageTest, ATokenOfAListIsFoundWhateverItsCaseAndSpace) {
  EXPECT_TRUE(has_token("keep-alive, Upgrade", "upgrade"));
  EXPECT_TRUE(has_token("close", "Close"));
  EXPECT_FALSE(has_token("closed", "close"));
  EXPECT_FALSE(has_token("", "close"));
}

TEST(HttpMessageTest, APlusIsASpaceOnlyWhereAsked) {
  EXPECT_EQ(percent_decoded("%41+b", true), "A b");
  EXPECT_EQ(percent_decoded("%41+b", false), "A+b");
}

}  // namespace
}  // namespace fathom::net
