// Expectations from spec/recipe.md 2 (strict:true) and, for the order of rules, from deepseek-recipe 0.2.0.
#include "fathom/recipe/schema/strict_schema.h"

#include <gtest/gtest.h>

#include "fathom/recipe/python_json.h"

namespace fathom::recipe {
namespace {

std::string normal(std::string_view schema, SchemaUse use = SchemaUse::tool_parameters,
                   Policy policy = Policy::strict) {
  const auto result = normalise_strict_schema(*parse_json(schema, "test"), use, policy);
  if (!result)
    return "! " + result.error().message + (result.error().where.empty() ? "" : " @ " + result.error().where);
  std::string out;
  append_compact_json(out, *result);
  return out;
}

std::string property(const std::string& schema, Policy policy = Policy::strict) {
  const std::string out = normal(R"({"type":"object","properties":{"a":)" + schema + "}}", SchemaUse::response, policy);
  const std::string head = R"({"type":"object","properties":{"a":)",
                    tail = R"(},"additionalProperties":false,"required":["a"]})";
  return out.starts_with(head) ? out.substr(head.size(), out.size() - head.size() - tail.size()) : out;
}

TEST(StrictSchema, ObjectsAreClosedAndRequireEverything) {
  EXPECT_EQ(
      normal(
          R"({"description":"d","properties":{"b":{"type":"null"},"a":{"type":"boolean"}},"title":"t","type":"object"})"),
      R"({"type":"object","properties":{"b":{"type":"null"},"a":{"type":"boolean"}},"additionalProperties":false,)"
      R"("required":["b","a"],"description":"d"})");
  EXPECT_EQ(normal(R"({"type":"object","required":["b","a"],"properties":{"a":{"type":"null"},"b":{"type":"null"}}})"),
            R"({"type":"object","properties":{"a":{"type":"null"},"b":{"type":"null"}},"additionalProperties":false,)"
            R"("required":["a","b"]})");
}

TEST(StrictSchema, OnlyTheRootOfAToolMayBeEmpty) {
  const char* empty = R"({"type":"object","properties":{},"additionalProperties":false,"required":[]})";
  EXPECT_EQ(normal(R"({"type":"object"})"), empty);
  EXPECT_EQ(normal("null"), empty);
  EXPECT_EQ(normal(R"({"type":"object"})", SchemaUse::response), "! An object with no properties is not allowed.");
  EXPECT_EQ(normal(R"({"type":"object","properties":{"a":{"type":"object"}}})"),
            "! An object with no properties is not allowed. @ /properties/a");
}

// Found by comparing with deepseek-recipe: docs/recipe-findings.md, strict schemas.
TEST(StrictSchema, UnknownTypesAreToldWithTheWordsThatThereAre) {
  const std::string head = "! Invalid tool parameters schema : ";
  const auto told = [](std::string_view schema) {
    const std::string text = normal(schema);
    return text.substr(0, text.find(" @ "));
  };
  EXPECT_EQ(told(R"({"type":"x"})"), head +
                                         "unknown variant `x`, expected one of `object`, `string`, `number`, "
                                         "`integer`, `boolean`, `array`, `null`");
  EXPECT_EQ(told(R"({"type":["x"]})"), head +
                                           "field `type`: unknown variant `x`, expected one of `string`, `number`, "
                                           "`integer`, `boolean`, `null`");
}

TEST(StrictSchema, KeepsWhatEachTypeMayHave) {
  EXPECT_EQ(
      property(R"({"format":"email","pattern":"a","type":"string","minLength":3,"enum":["x"],"description":"d"})"),
      R"({"type":"string","description":"d","pattern":"a","format":"email","enum":["x"]})");
  EXPECT_EQ(property(R"({"type":"integer","minimum":1,"maximum":2,"const":3,"default":4,"multipleOf":2,"enum":[1,2],)"
                     R"("exclusiveMinimum":0,"exclusiveMaximum":9,"description":"d"})"),
            R"({"type":"integer","description":"d","const":3,"default":4,"minimum":1,"maximum":2,)"
            R"("exclusiveMinimum":0,"exclusiveMaximum":9,"multipleOf":2})");
  EXPECT_EQ(property(R"({"type":"number","minimum":1.0,"default":null})"), R"({"type":"number","minimum":1.0})");
  EXPECT_EQ(property(R"({"type":"array","description":"d","minItems":3,"items":{"type":"boolean","enum":[true]}})"),
            R"({"type":"array","items":{"type":"boolean"},"description":"d"})");
  EXPECT_EQ(property(R"({"description":"d","anyOf":[{"type":"string"},{"type":"null"}]})"),
            R"({"anyOf":[{"type":"string"},{"type":"null"}],"description":"d"})");
  EXPECT_EQ(property(R"({"type":["string","null"],"description":"d","enum":["a"]})"),
            R"({"type":["string","null"],"description":"d"})");
  EXPECT_EQ(property(R"({"description":"d","$ref":"#/$defs/x"})"), R"({"$ref":"#/$defs/x"})");
}

TEST(StrictSchema, RefusesWithTheNormativeTexts) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"type":"object","additionalProperties":true})",
       "! additionalProperties should not be true @ /additionalProperties"},
      {R"({"type":"object","properties":{"a":{"type":"null"}},"required":[]})",
       "! Required properties must match all properties in the object @ /required"},
      {R"({"type":"object","properties":{"a":{"type":"null"}},"required":["b"]})",
       "! Required property 'b' not found in object @ /required"},
      {R"({"type":"object","properties":{"a":{"type":"null"},"b":{"type":"null"}},"required":["a","a"]})",
       "! Duplicate required property 'a' @ /required"},
      {R"({"type":"object","properties":{"a/b":{"type":"array"}}})",
       "! Invalid tool parameters schema : missing field `items` @ /properties/a~1b"},
      {R"({"type":"object","properties":{"a":{"enum":["x"]}}})",
       "! Invalid tool parameters schema : one of `type`, `anyOf`, `$ref` field is required @ /properties/a"},
      {R"({"type":"object","properties":{"a":{"anyOf":[{"$ref":"#"}]}}})",
       "! Invalid tool parameters schema : field `anyOf`: missing field `type` @ /properties/a/anyOf/0"},
      {R"({"type":"string"})", "! The top level of the function parameters schema must be an object."},
  };
  for (const auto& [schema, expected] : cases) EXPECT_EQ(normal(schema), expected) << schema;
  EXPECT_EQ(normal(R"({"type":"string"})", SchemaUse::response),
            "! The top level of the json schema must be an object.");
  EXPECT_EQ(property(R"({"type":"array"})"), "! Invalid json schema: missing field `items` @ /properties/a");
  for (const char* bad : {R"({"type":"string","format":"date"})", R"({"type":"string","enum":["x",1]})",
                          R"({"type":"integer","minimum":1.0})", R"({"type":["object","null"]})", "true", "5",
                          R"({"type":"number","const":"x"})", R"({"type":"zzz"})", R"({"type":null})"}) {
    EXPECT_EQ(property(bad).substr(0, 23), "! Invalid json schema: ") << bad;
  }
}

// A schema with mistakes of both kinds: the shape is judged first, then the rules, inside out.
TEST(StrictSchema, ShapeComesBeforeRules) {
  EXPECT_EQ(normal(R"({"type":"object","properties":{"a":{"type":"object"},"b":{"type":"array"}}})"),
            "! Invalid tool parameters schema : missing field `items` @ /properties/b");
  EXPECT_EQ(normal(R"({"type":"object","additionalProperties":true,"properties":{"a":{"type":"object"}}})"),
            "! An object with no properties is not allowed. @ /properties/a");
  EXPECT_EQ(normal(R"({"type":"object","additionalProperties":true,"properties":{"a":{"type":"null"}},"required":[]})"),
            "! Required properties must match all properties in the object @ /required");
}

// D-8.
TEST(StrictSchema, DefinitionsAndEnumeratedNumbersAreDroppedUnderStrictAndKeptUnderDefault) {
  const char* schema = R"({"type":"object","properties":{"a":{"$ref":"#/$defs/x"}},"$defs":{"x":{"type":"object",)"
                       R"("properties":{"n":{"type":"integer","enum":[1,2]}}}}})";
  EXPECT_EQ(normal(schema), R"({"type":"object","properties":{"a":{"$ref":"#/$defs/x"}},"additionalProperties":false,)"
                            R"("required":["a"]})");
  EXPECT_EQ(normal(schema, SchemaUse::tool_parameters, Policy::lenient),
            R"({"type":"object","properties":{"a":{"$ref":"#/$defs/x"}},"additionalProperties":false,"required":["a"],)"
            R"("$defs":{"x":{"type":"object","properties":{"n":{"type":"integer","enum":[1,2]}},)"
            R"("additionalProperties":false,"required":["n"]}}})");
}

}  // namespace
}  // namespace fathom::recipe
