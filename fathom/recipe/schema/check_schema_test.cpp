// The texts are those of spec/codec-policy.md 5; that they come in this order was seen in deepseek-recipe 0.2.0.
#include "fathom/recipe/schema/check_schema.h"

#include <gtest/gtest.h>

#include <chrono>

namespace fathom::recipe {
namespace {

std::string fault(std::string_view schema) {
  auto json = parse_json(schema, "test");
  EXPECT_TRUE(json.ok()) << schema;
  const auto found = find_schema_fault(*json);
  return found ? found->message : "";
}

TEST(CheckSchema, AcceptsWhatDraft202012Allows) {
  for (const char* good :
       {"true", "false", "{}", R"({"enum":[]})", R"({"format":"no such format"})", R"({"minLength":1.0})",
        R"({"required":[]})", R"({"maxItems":18446744073709551615})", R"({"maxItems":1e30})",
        R"({"$ref":"#/$defs/a","$defs":{"a":{}}})", R"({"$ref":"#"})", R"({"nullable":5})",
        R"({"$defs":{"a":{"pattern":"["}}})", R"({"default":{"$ref":"http://example.com/x"}})"}) {
    EXPECT_EQ(fault(good), "") << good;
  }
}

TEST(CheckSchema, SaysWhatIsWrongInTheWordsOfTheTable) {
  const std::pair<const char*, const char*> cases[] = {
      {"null", "null is not of types \"boolean\", \"object\""},
      {R"({"type":"object","required":"x"})", "\"x\" is not of type \"array\""},
      {R"({"type":"zzz"})", "\"zzz\" is not valid under any of the schemas listed in the 'anyOf' keyword"},
      {R"({"type":["string","string"]})",
       "[\"string\",\"string\"] is not valid under any of the schemas listed in the 'anyOf' keyword"},
      {R"({"properties":{"foo":"bar"}})", "\"bar\" is not of types \"boolean\", \"object\""},
      {R"({"required":["a","a"]})", "[\"a\",\"a\"] has non-unique elements"},
      {R"({"minLength":-1})", "-1 is less than the minimum of 0"},
      {R"({"minLength":1.5})", "1.5 is not of type \"integer\""},
      {R"({"minimum":"x"})", "\"x\" is not of type \"number\""},
      {R"({"pattern":"(?<=x)*["})", "\"(?<=x)*[\" is not a \"regex\""},
      {R"({"patternProperties":{"[":{}}})", "{} is not a \"regex\""},
      {R"({"$ref":"#/p"})", "Pointer '/p' does not exist"},
      {R"({"allOf":[{"properties":{"a":{"$ref":"#/$defs/none"}}}],"$defs":{}})",
       "Pointer '/$defs/none' does not exist"},
  };
  for (const auto& [schema, message] : cases) EXPECT_EQ(fault(schema), message) << schema;
}

TEST(CheckSchema, TheFirstFaultIsTheFirstByVocabularyAndThenByKey) {
  EXPECT_EQ(fault(R"({"type":3,"properties":{"a":5}})"), "5 is not of types \"boolean\", \"object\"");
  EXPECT_EQ(fault(R"({"title":5,"minimum":"x"})"), "\"x\" is not of type \"number\"");
  EXPECT_EQ(fault(R"({"$defs":5,"$id":6})"), "5 is not of type \"object\"");
  EXPECT_EQ(fault(R"({"$id":6,"$defs":5})"), "6 is not of type \"string\"");
  EXPECT_EQ(fault(R"({"pattern":"[","properties":{"b":{"$ref":"#/x"}}})"), "\"[\" is not a \"regex\"");
  EXPECT_EQ(fault(R"({"properties":{"b":{"$ref":"#/x"}},"pattern":"["})"), "Pointer '/x' does not exist");
}

TEST(CheckSchema, FollowsTheDraftThatTheSchemaNames) {
  const auto in = [](const char* draft, const std::string& rest) {
    return fault("{\"$schema\":\"" + std::string(draft) + "\"," + rest + "}");
  };
  const char *d4 = "http://json-schema.org/draft-04/schema#", *d7 = "http://json-schema.org/draft-07/schema",
             *d2019 = "https://json-schema.org/draft/2019-09/schema";
  EXPECT_EQ(in(d4, R"("properties":{"a":true})"), "true is not of type \"object\"");
  EXPECT_EQ(in(d4, R"("minimum":1,"exclusiveMinimum":true)"), "");
  EXPECT_NE(in(d4, R"("exclusiveMinimum":true)"), "");
  EXPECT_EQ(in(d4, R"("minLength":1.0)"), "1.0 is not of type \"integer\"");
  EXPECT_EQ(in(d7, R"("exclusiveMinimum":true)"), "true is not of type \"number\"");
  EXPECT_EQ(in(d7, R"("items":[{}])"), "");
  EXPECT_EQ(in(d7, R"("items":[5])"), "[5] is not valid under any of the schemas listed in the 'anyOf' keyword");
  EXPECT_EQ(in(d7, R"("pattern":"(?i)a")"), "\"(?i)a\" is not a \"regex\"");
  EXPECT_EQ(in(d7, R"("$ref":"#","properties":{"b":{"$ref":"#/y"}})"), "");
  EXPECT_EQ(in(d2019, R"("items":[{}],"$recursiveRef":"#")"), "");
  EXPECT_EQ(fault(R"({"items":[{}]})"), "[{}] is not of types \"boolean\", \"object\"");
  EXPECT_NE(in("http://example.com/mine", R"("type":"object")"), "");
  EXPECT_NE(in("http://json-schema.org/draft-03/schema#", R"("type":"object")"), "");
}

TEST(CheckSchema, ReferencesResolveInsideTheSchemaOnly) {
  EXPECT_EQ(fault(R"({"$ref":"#a","$defs":{"x":{"$anchor":"a"}}})"), "");
  EXPECT_EQ(fault(R"({"$ref":"#/$defs/a~1b","$defs":{"a/b":{}}})"), "");
  EXPECT_EQ(fault(R"({"$ref":"#/$defs/a%20b","$defs":{"a b":{}}})"), "");
  EXPECT_EQ(fault(R"({"$id":"http://x/y","$defs":{"a":{"$id":"z"}},"$ref":"z"})"), "");
  EXPECT_EQ(fault(R"({"$id":"http://x/y","$defs":{"a":{"$id":"z","$ref":"#/q"}},"$ref":"z"})"),
            "Pointer '/q' does not exist");
  EXPECT_EQ(fault(R"({"$ref":"#/anyOf/1","anyOf":[{}]})"), "Pointer '/anyOf/1' does not exist");
  EXPECT_NE(fault(R"({"$ref":"http://example.com/x"})"), "");
  EXPECT_NE(fault(R"({"$defs":{"a":{"$ref":"other.json"}}})"), "");
  EXPECT_EQ(fault(R"({"$ref":"#/mine","mine":{"minLength":-1}})"), "-1 is less than the minimum of 0");
}

TEST(CheckSchema, NamesThePlace) {
  const auto found =
      find_schema_fault(*parse_json(R"({"allOf":[{},{"properties":{"a/b":{"minLength":-1}}}]})", "test"));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->path, "/allOf/1/properties/a~1b/minLength");
}

// Case struct-04.
TEST(CheckSchema, ABadPatternAndABadSchemaAreFaults) {
  for (const char* bad : {R"({"type":"string","pattern":"(?<=x)*["})",
                          R"({"type":"object","properties":{"foo":"bar"}})", R"({"type":"nonsense"})"}) {
    EXPECT_NE(fault(bad), "") << bad;
  }
}

double seconds_for(const std::string& schema) {
  const auto json = parse_json(schema, "test");
  EXPECT_TRUE(json.ok());
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_FALSE(find_schema_fault(*json)) << schema.substr(0, 200);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// What is quadratic in these takes minutes; the bound is wide, for slow machines and sanitizers.
TEST(CheckSchema, HostileSchemasTakeLinearTime) {
  std::string chain = R"({"$ref":"#/$defs/d0","$defs":{)", names = R"({"required":[)", pattern = R"({"pattern":")",
              many = R"({"properties":{)", deep, nested;
  const int n = 100000;
  for (int i = 0; i < n; ++i) {
    const std::string one = std::to_string(i);
    chain += "\"d" + one + R"(":{"$ref":"#/$defs/d)" + std::to_string((i + 1) % n) + "\"},";
    names += "\"name" + one + "\",";
    many += "\"p" + one + R"(":{"$ref":"#/properties/p)" + std::to_string(n - 1 - i) + "\"},";
  }
  chain.back() = names.back() = many.back() = '}';
  chain += '}', many += '}';
  names.back() = ']';
  names += '}';
  for (int i = 0; i < 1000000; ++i) pattern += "(";
  for (int i = 0; i < 1000000; ++i) pattern += ")";
  pattern += "\"}";
  deep = R"({"$schema":"http://json-schema.org/draft-07/schema#","items":)";
  for (int i = 0; i < 125; ++i) deep += "{\"items\":";
  deep += "{}";
  for (int i = 0; i < 126; ++i) deep += "}";
  for (const auto* schema : {&chain, &names, &many, &pattern, &deep}) EXPECT_LT(seconds_for(*schema), 10);
}

TEST(ValidPattern, TakesWhatEcmaHasAndTheExtensionsOfThePolicy) {
  for (const char* good : {"",
                           "a",
                           "^a$",
                           "(?=a)",
                           "(?<!a)",
                           "(a)\\1",
                           "\\1(a)",
                           "(?i)a",
                           "(?i:a)",
                           "(?<n>a)",
                           "(?P<n>a)",
                           "\\p{L}",
                           "\\p{Script=Greek}",
                           "\\P{Lu}",
                           "a{2}",
                           "a{2,}",
                           "a{2,3}?",
                           "[\\d-]",
                           "[a-c-e]",
                           "[[a]",
                           "a]",
                           "}",
                           "a*+",
                           "a{2}{3}",
                           "()*",
                           "\\cA",
                           "\\x41",
                           "\\u{1F600}",
                           "\\/",
                           "[\\]]",
                           "[^^]",
                           "(?<=a*)b",
                           "[😀-😎]",
                           "^(?!.*\\.\\.)a",
                           "^(?=.*[A-Z])(?=.*\\d)[A-Za-z\\d@$!%*?&]{8,}$",
                           "[a&&b]",
                           "\\b",
                           "^*"}) {
    EXPECT_TRUE(valid_pattern(good)) << good;
  }
}

TEST(ValidPattern, RefusesTheRest) {
  for (const char* bad : {"[",       "(",     ")",       "a{2,1}",  "a**",         "[a-\\d]",  "(?<n>a)\\k<n>",
                          "*",       "a|*",   "(*)",     "{",       "a{",          "a{,2}",    "[]",
                          "[^]",     "[b-a]", "[\\w-z]", "(a)\\2",  "\\0",         "\\p{zzz}", "\\pQ",
                          "(?",      "(?:",   "(?>a)",   "(?a)",    "(?=a)*",      "(?:)*",    "\\",
                          "\\c",     "\\x4",  "\\u004",  "\\uD83D", "\\u{110000}", "\\q",      "(?<n>a)(?<n>b)",
                          "(?<1>a)", "(?i",   "(?ii)",   "\\Z",     "[\\b]"}) {
    EXPECT_FALSE(valid_pattern(bad)) << bad;
  }
}

}  // namespace
}  // namespace fathom::recipe
