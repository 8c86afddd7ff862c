#include "fathom/recipe/conformance/json_difference.h"

#include <gtest/gtest.h>

namespace fathom::recipe {
namespace {

Json json(std::string_view text) {
  auto value = parse_json(text, "a test");
  EXPECT_TRUE(value) << text;
  return std::move(*value);
}

std::string pointer(std::string_view a, std::string_view b, KeyOrder order = KeyOrder::matters) {
  const auto found = first_difference(json(a), json(b), order);
  return found ? found->pointer : "same";
}

TEST(JsonDifference, NamesTheFirstPlaceThatDiffers) {
  EXPECT_EQ(pointer(R"({"a":[1,{"b":"x"}]})", R"({"a":[1,{"b":"y"}]})"), "/a/1/b");
  EXPECT_EQ(pointer(R"({"a/b":1,"c~":2})", R"({"a/b":1,"c~":3})"), "/c~0");
  EXPECT_EQ(pointer(R"({"a/b":1})", R"({"a/b":2})"), "/a~1b");
  EXPECT_EQ(pointer("[1,2]", "[1]"), "/1");
  EXPECT_EQ(pointer("[1]", "[1,2]"), "/1");
  EXPECT_EQ(pointer(R"({"a":1})", R"({"b":1})"), "/a");
  EXPECT_EQ(pointer(R"({"a":1})", R"({"a":1,"b":null})"), "/b");
  EXPECT_EQ(pointer("1", "\"1\""), "");
  EXPECT_EQ(pointer("null", "null"), "same");
}

TEST(JsonDifference, TakesNumbersByValueAndKeysByOrderIfAsked) {
  EXPECT_EQ(pointer("[1.0,1e2]", "[1,100]"), "same");
  EXPECT_EQ(pointer("1.5", "1.25"), "");
  EXPECT_EQ(pointer(R"({"a":1,"b":2})", R"({"b":2,"a":1})"), " (order of keys)");
  EXPECT_EQ(pointer(R"({"a":1,"b":2})", R"({"b":2,"a":1})", KeyOrder::ignored), "same");
}

TEST(JsonDifference, ShowsTextAroundThePlace) {
  const std::string long_text(200, 'x');
  const auto found = first_difference(Json::of(long_text + "é1"), Json::of(long_text + "é2"), KeyOrder::matters);
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->expected.starts_with("…xxx")) << found->expected;
  EXPECT_TRUE(found->expected.ends_with("é1\"")) << found->expected;
  EXPECT_TRUE(found->found.ends_with("é2\"")) << found->found;
}

TEST(JsonDifference, ChangesLeadFromOneValueToTheOther) {
  const std::vector<std::pair<const char*, const char*>> pairs = {
      {R"({"a":[1,2],"b":{"c/d":"x"}})", R"({"a":[1,3],"b":{"c/d":"y"}})"},
      {R"({"a":[1,2]})", R"({"a":[1]})"},
      {R"({"a":1})", R"({"b":1})"},
      {"1", "[]"},
      {"{}", "{}"}};
  for (const auto& [a, b] : pairs) {
    Json value = json(a);
    EXPECT_TRUE(apply_changes(value, changes_between(value, json(b))));
    EXPECT_EQ(value, json(b)) << a << " -> " << b;
  }
  EXPECT_EQ(changes_between(json("[1,[2,3]]"), json("[1,[2,4]]"))[0].pointer, "/1/1");
}

TEST(JsonDifference, RefusesAPointerThatLeadsNowhere) {
  for (const char* pointer : {"/b", "/a/2", "/a/x", "/a/", "/a/0/0"}) {
    Json value = json(R"({"a":[1,2]})");
    EXPECT_FALSE(apply_changes(value, {{pointer, Json()}})) << pointer;
  }
}

}  // namespace
}  // namespace fathom::recipe
