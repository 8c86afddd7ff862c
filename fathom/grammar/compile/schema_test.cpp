// Schemas against a checker that knows only the standard: what is valid is accepted, what is not is not.
#include <gtest/gtest.h>

#include "fathom/grammar/compile/testing/byte_vocabulary.h"
#include "fathom/grammar/compile/testing/schema_oracle.h"

namespace fathom::grammar {
namespace {

using testing::accepts;
using testing::json_constraint;

const Vocabulary& bytes() {
  static const Vocabulary vocabulary = testing::byte_vocabulary();
  return vocabulary;
}

CompiledGrammar compiled(const std::string& schema) {
  auto grammar = compile(json_constraint(schema), bytes());
  EXPECT_TRUE(grammar.ok()) << schema << "\n" << (grammar.ok() ? "" : to_string(grammar.error()));
  return *grammar;
}

// Values are spelt one way, so numbers must be too: a schema that lists 1.50 is not followed by 1.5.
bool spelt_canonically(const Json& value) {
  if (value.is_number()) return value.text.find('.') == std::string::npos || value.text.back() != '0';
  for (const Json& item : value.items) {
    if (!spelt_canonically(item)) return false;
  }
  for (const auto& field : value.fields) {
    if (!spelt_canonically(field.second)) return false;
  }
  return true;
}

// Keys in the order of the schema, and no other keys unless the schema speaks of them, is what grammars ask for and the
// standard does not: `near` keeps it for
// schemas that it follows, so a valid value that is not accepted must have keys in another order.
bool keys_in_order(const Json& schema, const Json& value, const Json& root) {
  if (!schema.is_object()) return true;
  if (const Json* name = schema.find("$ref"))
    return keys_in_order(*root.find("$defs")->find(name->text.substr(8)), value, root);
  if (const Json* list = schema.find("anyOf")) {
    for (const Json& part : list->items) {
      if (testing::valid(part, value, root) && keys_in_order(part, value, root)) return true;
    }
    return false;
  }
  if (schema.find("enum")) {
    for (const Json& item : schema.find("enum")->items) {
      if (to_string(item) == to_string(value)) return true;
    }
    return false;
  }
  if (value.is_array()) {
    const Json *items = schema.find("items"), *heads = schema.find("prefixItems");
    for (size_t i = 0; i < value.items.size(); ++i) {
      const Json* part = heads && i < heads->items.size() ? &heads->items[i] : items;
      if (part && !keys_in_order(*part, value.items[i], root)) return false;
    }
  }
  if (!value.is_object()) return true;
  const Json *properties = schema.find("properties"), *extra = schema.find("additionalProperties");
  int64_t last = -1;
  for (const auto& [key, member] : value.fields) {
    int64_t place =
        properties && !extra ? -2 : 1000;  // names that are not declared are written where they are asked for
    const Json* part = extra;
    for (size_t i = 0; properties && i < properties->fields.size(); ++i) {
      if (properties->fields[i].first != key) continue;
      place = int64_t(i);
      part = &properties->fields[i].second;
    }
    if (place < last || (part && !keys_in_order(*part, member, root))) return false;
    last = place;
  }
  return true;
}

TEST(Schema, WhatIsValidIsAcceptedAndNothingElse) {
  int accepted = 0, refused = 0, schemas = 0, reordered = 0;
  for (uint32_t seed = 0; seed < 600; ++seed) {
    testing::Draw draw(seed);
    Json root = draw.schema(3, true);
    if (!root.is_object()) continue;
    Json defs = Json::object();
    defs.set("d", draw.schema(2));
    root.set("$defs", defs);
    const auto grammar = compile(json_constraint(to_string(root)), bytes());
    if (!grammar) {  // nothing can follow it: no value that we draw may be valid, then
      ASSERT_EQ(grammar.error().message, "no value follows the schema")
          << to_string(root) << to_string(grammar.error());
    }
    ++schemas;
    for (int i = 0; i < 30; ++i) {
      const Json value = draw.near(root, root, 4);
      if (!spelt_canonically(value)) continue;
      const bool is_valid = testing::valid(root, value, root);
      const bool is_accepted = grammar.ok() && accepts(*grammar, to_string(value));
      if (is_valid && !keys_in_order(root, value, root)) {
        ++reordered;
        continue;
      }
      ASSERT_EQ(is_valid, is_accepted) << to_string(root) << "\n" << to_string(value) << " seed " << seed;
      ++(is_valid ? accepted : refused);
    }
  }
  // Both sides of the law are exercised.
  EXPECT_GT(schemas, 400);
  EXPECT_GT(accepted, 2000);
  EXPECT_GT(refused, 2000);
  RecordProperty("accepted", accepted);
  RecordProperty("refused", refused);
  RecordProperty("reordered", reordered);
}

TEST(Schema, SpacesStandOnlyWhereWritersPutThem) {
  const auto grammar = compiled(R"({"type":"object","properties":{"a":{"type":"array"}},"required":["a"]})");
  EXPECT_TRUE(accepts(grammar, R"({"a":[1,2]})"));
  EXPECT_TRUE(accepts(grammar, R"({"a": [1, 2]})"));
  EXPECT_TRUE(accepts(grammar, "{\n  \"a\": [\n    1,\n    2\n  ]\n}"));
  EXPECT_FALSE(accepts(grammar, "{\n\n\"a\":[]}"));
  EXPECT_FALSE(accepts(grammar, R"({  "a":[]})"));
  EXPECT_FALSE(accepts(grammar, R"({"a":[]} )"));
}

TEST(Schema, AKeyCannotBeDisguised) {
  const auto grammar =
      compiled(R"({"properties":{"a":{"type":"integer"},"é\"":{"const":1}},"additionalProperties":true})");
  EXPECT_TRUE(accepts(grammar, R"({"a":1,"b":"x","":null,"aa":true})"));
  EXPECT_TRUE(accepts(grammar, R"({"a":1,"é\"":1,"é":2})"));
  EXPECT_FALSE(accepts(grammar, R"({"a":"x"})"));
  EXPECT_FALSE(accepts(grammar, R"({"\u0061":"x"})"));
  EXPECT_FALSE(accepts(grammar, R"({"é\"":2})"));
}

TEST(Schema, StringsAreTextThatReadersTake) {
  const auto grammar = compiled(R"({"type":"string"})");
  EXPECT_TRUE(accepts(grammar, R"("\u00e9\ud83d\ude00 \/ é")"));
  EXPECT_FALSE(accepts(grammar, R"("\ud83d")"));
  EXPECT_FALSE(accepts(grammar, R"("\ude00")"));
  EXPECT_FALSE(accepts(grammar, "\"\n\""));
  EXPECT_FALSE(accepts(grammar, "\"\xff\""));
  const auto three = compiled(R"({"type":"string","minLength":3,"maxLength":3})");
  EXPECT_TRUE(accepts(three, R"("é\n\ud83d\ude00")"));
  EXPECT_FALSE(accepts(three, R"("é\n\ud83d\ude00x")"));
}

TEST(Schema, NumbersBetweenBoundsAreExact) {
  struct Case {
    const char* schema;
    std::vector<const char*> in, out;
  };
  const Case cases[] = {
      {R"({"type":"number","minimum":-0.5,"exclusiveMaximum":1.25})",
       {"-0.5", "-0.4999", "0", "-0.1", "1.2499", "1", "0.7", "1.0", "-0.50"},
       {"-0.51", "-1", "1.25", "1.3", "2", "-0.5001", "1e0", "1.2500", "00", "-0"}},
      {R"({"type":"integer","minimum":-9223372036854775808,"maximum":18446744073709551615})",
       {"-9223372036854775808", "18446744073709551615", "0", "-1", "10000000000000000000"},
       {"-9223372036854775809", "18446744073709551616", "99999999999999999999", "-0", "01"}},
      {R"({"type":"integer","exclusiveMinimum":0})", {"1", "9", "10", "123456789"}, {"0", "-1"}},
      {R"({"type":"integer","minimum":1.5,"maximum":1e2})", {"2", "100", "99"}, {"1", "101"}},
      {R"({"type":"number","minimum":0,"maximum":0})", {"0", "0.0", "0.00"}, {"0.01", "1", "-0.1"}},
      {R"({"type":"number","exclusiveMinimum":0,"maximum":0.05})",
       {"0.05", "0.01", "0.0001", "0.050"},
       {"0", "0.0", "0.051", "0.06"}},
      {R"({"type":"number","multipleOf":0.01})", {"1.25", "1", "-3.1"}, {"1.255", "1e1"}},
      {R"({"type":"integer","multipleOf":7})", {"0", "7", "-14", "100000000000005"}, {"1", "8", "-0", "07"}},
      {R"({"type":"number"})", {"0", "-1.5e+30", "12E-5", "3"}, {"1e400", ".5", "1.", "+1", "NaN"}},
  };
  for (const Case& one : cases) {
    const auto grammar = compiled(one.schema);
    for (const char* text : one.in) EXPECT_TRUE(accepts(grammar, text)) << one.schema << " " << text;
    for (const char* text : one.out) EXPECT_FALSE(accepts(grammar, text)) << one.schema << " " << text;
  }
}

TEST(Schema, AllIntegersAroundTheirBounds) {
  for (int low = -112; low <= 112; low += 7) {
    for (int high = low; high <= low + 130; high += 13) {
      const auto grammar = compiled(R"({"type":"integer","minimum":)" + std::to_string(low) + R"(,"maximum":)" +
                                    std::to_string(high) + "}");
      for (int i = low - 11; i <= high + 11; ++i) {
        ASSERT_EQ(accepts(grammar, std::to_string(i)), low <= i && i <= high) << low << ".." << high << " " << i;
      }
    }
  }
}

TEST(Schema, FormatsAreChecked) {
  struct Case {
    const char* format;
    std::vector<const char*> in, out;
  };
  const Case cases[] = {
      {"date", {"2024-02-28", "1999-12-31"}, {"2023-02-29", "2024-04-31", "2024-13-01", "24-01-01"}},
      {"time", {"23:59:59Z", "00:00:00.123+02:00"}, {"24:00:00Z", "12:00", "12:60:00Z"}},
      {"date-time", {"2024-02-28T23:59:59Z"}, {"2024-02-28 23:59:59Z", "2024-02-28"}},
      {"duration", {"P3W", "P1Y2M3DT4H", "PT5M6S"}, {"P", "PT", "3D", "P1D2Y"}},
      {"email", {"a.b@example.org", "x@y"}, {"@y", "a..b@y", "a@-y", "a b@c"}},
      {"hostname", {"example.org", "a-b"}, {"-a", "a-", "a..b", ""}},
      {"ipv4", {"255.0.10.199", "0.0.0.0"}, {"256.0.0.1", "1.2.3", "01.2.3.4"}},
      {"ipv6",
       {"::", "1::", "::1", "1:2:3:4:5:6:7:8", "fe80::1:2", "1::8", "1:2:3:4:5:6:7::"},
       {"1:2", ":::", "1::2::3", "12345::", "1:2:3:4:5:6:7:8:9"}},
      {"uuid", {"123e4567-e89b-12d3-a456-426614174000"}, {"123e4567e89b12d3a456426614174000"}},
      {"uri", {"https://example.org/a?b=c#d", "mailto:a@b"}, {"example.org", "http://a b", "a:#b#c", "http:///x"}},
  };
  for (const Case& one : cases) {
    const auto grammar = compiled(std::string(R"({"type":"string","format":")") + one.format + R"("})");
    for (const char* text : one.in)
      EXPECT_TRUE(accepts(grammar, '"' + std::string(text) + '"')) << one.format << " " << text;
    for (const char* text : one.out)
      EXPECT_FALSE(accepts(grammar, '"' + std::string(text) + '"')) << one.format << " " << text;
  }
}

TEST(Schema, RecursionWithContentIsFollowed) {
  const auto grammar = compiled(R"({"$ref":"#/$defs/node","$defs":{"node":{"type":"object","properties":
      {"value":{"type":"integer"},"next":{"anyOf":[{"$ref":"#/$defs/node"},{"type":"null"}]}},
      "required":["value","next"],"additionalProperties":false}}})");
  EXPECT_TRUE(accepts(grammar, R"({"value":1,"next":{"value":2,"next":null}})"));
  EXPECT_FALSE(accepts(grammar, R"({"value":1,"next":{"value":2}})"));
}

TEST(Schema, OneOfAndAllOfAreFollowedWhereTheyAreCertain) {
  const auto one = compiled(R"({"oneOf":[{"type":"object","properties":{"k":{"const":"a"},"v":{"type":"integer"}},
      "required":["k"],"additionalProperties":false},{"type":"object","properties":{"k":{"const":"b"}},
      "required":["k"],"additionalProperties":false},{"type":"string"}]})");
  EXPECT_TRUE(accepts(one, R"({"k":"a","v":1})"));
  EXPECT_TRUE(accepts(one, R"("x")"));
  EXPECT_FALSE(accepts(one, R"({"k":"b","v":1})"));
  const auto all = compiled(R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"}},
      "allOf":[{"required":["a"]},{"required":["b"]}]})");
  EXPECT_TRUE(accepts(all, R"({"a":1,"b":""})"));
  EXPECT_FALSE(accepts(all, R"({"a":1})"));
}

TEST(Schema, JsonModeIsAnArrayOrAnObject) {
  const auto grammar = compiled("");
  EXPECT_TRUE(accepts(grammar, R"({"a": [1, null, {"b": "c"}]})"));
  EXPECT_TRUE(accepts(grammar, "[]"));
  EXPECT_FALSE(accepts(grammar, "3"));
  EXPECT_FALSE(accepts(grammar, "[1,]"));
}

}  // namespace
}  // namespace fathom::grammar
