// What is refused, by which name and at which path: spec/codec-policy.md 5, cases struct-02 to struct-05.
#include "fathom/grammar/constraint_grammar.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>

namespace fathom::grammar {
namespace {

Constraint of(Constraint::Kind kind, std::string text) {
  Constraint constraint;
  constraint.kind = kind;
  constraint.text = std::move(text);
  return constraint;
}
Constraint schema(std::string text) { return of(Constraint::Kind::json, std::move(text)); }
Constraint regex(std::string text) { return of(Constraint::Kind::regex, std::move(text)); }

std::string repeated(std::string_view part, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += part;
  return out;
}

TEST(ConstraintGrammar, UnsupportedKeywordsAreNamedWithTheirPath) {
  struct Case {
    const char *schema, *where;
  };
  const Case cases[] = {
      {R"({"type":"object","patternProperties":{"^x":{"type":"integer"}},"description":"d"})", "patternProperties"},
      {R"({"properties":{"a":{"items":{"uniqueItems":true}}}})", "properties.a.items.uniqueItems"},
      {R"({"anyOf":[{"type":"string"},{"not":{}}]})", "anyOf[1].not"},
      {R"({"if":{}})", "if"},
      {R"({"contains":{}})", "contains"},
      {R"({"unevaluatedProperties":false})", "unevaluatedProperties"},
      {R"({"dependentRequired":{"a":["b"]}})", "dependentRequired"},
      {R"({"type":"string","format":"color"})", "format"},
      {R"({"type":"string","pattern":"a","maxLength":3})", "maxLength"},
      {R"({"type":"number","multipleOf":0.3})", "multipleOf"},
      {R"({"type":"integer","multipleOf":3,"minimum":1})", "multipleOf"},
      {R"({"items":[{}]})", "items"},
      {R"({"$ref":"other.json"})", R"(["$ref"])"},
      {R"({"$ref":"#/$defs/a","$defs":{}})", R"(["$ref"])"},
      {R"({"$ref":"#/$defs/a","minimum":1,"$defs":{"a":{}}})", R"(["$ref"])"},
      {R"({"oneOf":[{"type":"integer"},{"type":"number"}]})", "oneOf"},
      {R"({"enum":["a"],"minLength":1})", "minLength"},
      {R"({"properties":{"a":{},"b":{}},"maxProperties":1})", "maxProperties"},
      {R"({"properties":{"a":{}},"propertyNames":{"pattern":"a"}})", "propertyNames"},
      {R"({"properties":{"x":{"$ref":"#/$defs/p"}},"$defs":{"p":{"not":{}}}})", "#/$defs/p.not"},
      {R"({"type":"object","properties":{"x":{"$id":"y"}}})", R"(properties.x["$id"])"},
  };
  for (const Case& one : cases) {
    const auto grammar = grammar_of(schema(one.schema));
    ASSERT_FALSE(grammar.ok()) << one.schema;
    EXPECT_EQ(grammar.error().where, one.where) << one.schema;
    EXPECT_EQ(grammar.error().code, ErrorCode::unsupported) << one.schema;
    std::string keyword =
        std::string(one.where).substr(std::string(one.where).find_last_of(".\"", std::strlen(one.where) - 3) + 1);
    if (keyword.ends_with("\"]")) keyword.resize(keyword.size() - 2);
    EXPECT_NE(grammar.error().message.find(keyword), std::string::npos) << to_string(grammar.error());
  }
}

TEST(ConstraintGrammar, WhatRestrictsNothingPasses) {
  for (
      const char* text :
      {R"({"$schema":"https://json-schema.org/draft/2020-12/schema","$id":"x","title":"t","description":"d","default":1,
           "examples":[1],"deprecated":true,"x-mine":{},"nullable":true})",
       R"({"uniqueItems":false,"patternProperties":{},"unevaluatedProperties":true})",
       R"({"type":"integer","format":"int32"})", R"({"type":"array","maxItems":18446744073709551615})",
       R"({"$id":"a","anyOf":[{"type":"null"}]})", "true"}) {
    const auto grammar = grammar_of(schema(text));
    EXPECT_TRUE(grammar.ok()) << text << (grammar.ok() ? "" : to_string(grammar.error()));
  }
}

TEST(ConstraintGrammar, SchemasThatNothingFollowsAreRefused) {
  for (const char* text :
       {"false", R"({"type":[]})", R"({"enum":[]})", R"({"type":"string","enum":[1]})",
        R"({"type":"integer","minimum":2,"maximum":1})", R"({"type":"array","items":false,"minItems":1})",
        R"({"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]})",
        R"({"type":"object","additionalProperties":false,"required":["a"]})"}) {
    const auto grammar = grammar_of(schema(text));
    ASSERT_FALSE(grammar.ok()) << text;
    EXPECT_EQ(grammar.error().message, "no value follows the schema") << text;
  }
}

// An alternative that never ends would trap the answer: it is left out.
TEST(ConstraintGrammar, EndlessAlternativesAreLeftOut) {
  const auto grammar = grammar_of(schema(
      R"({"anyOf":[{"type":"null"},{"type":"object","properties":{"a":{"$ref":"#/$defs/e"}},"required":["a"]}],
          "$defs":{"e":{"type":"array","items":{"$ref":"#/$defs/e"},"minItems":1}}})"));
  ASSERT_TRUE(grammar.ok());
  EXPECT_EQ(grammar->find("\"a\""), std::string::npos) << *grammar;
}

TEST(ConstraintGrammar, MalformedSchemasAreNamed) {
  for (const char* text : {"{", "3", R"({"properties":{"foo":"bar"}})", R"({"type":"nonsense"})", R"({"minLength":-1})",
                           R"({"pattern":3})", R"({"enum":1})", R"({"required":[1]})", R"({"pattern":"("})"}) {
    const auto grammar = grammar_of(schema(text));
    ASSERT_FALSE(grammar.ok()) << text;
    EXPECT_EQ(grammar.error().code, ErrorCode::bad_input) << text << to_string(grammar.error());
  }
}

TEST(ConstraintGrammar, ExpressionsThatAreNotRegularAreRefused) {
  struct Case {
    const char *expression, *mention;
    ErrorCode code;
  };
  const Case cases[] = {
      {"(?<=x)*[", "look-around", ErrorCode::unsupported},
      {"(?!a)b", "look-around", ErrorCode::unsupported},
      {"(a)\\1", "back-reference", ErrorCode::unsupported},
      {"\\bword", "word boundary", ErrorCode::unsupported},
      {"\\p{L}", "Unicode property", ErrorCode::unsupported},
      {"(?i)a", "flag", ErrorCode::unsupported},
      {"a(^b)", "anchor", ErrorCode::unsupported},
      {"a**", "nothing to repeat", ErrorCode::bad_input},
      {"a{2,1}", "reversed", ErrorCode::bad_input},
      {"[b-a]", "order", ErrorCode::bad_input},
      {"(a", "unclosed", ErrorCode::bad_input},
      {"a)", "unmatched", ErrorCode::bad_input},
      {"[a", "unclosed", ErrorCode::bad_input},
      {"a\\", "backslash", ErrorCode::bad_input},
      {"[]", "none can be written", ErrorCode::unsupported},
  };
  for (const Case& one : cases) {
    const auto grammar = grammar_of(regex(one.expression));
    ASSERT_FALSE(grammar.ok()) << one.expression;
    EXPECT_EQ(grammar.error().code, one.code) << one.expression;
    EXPECT_NE(grammar.error().message.find(one.mention), std::string::npos) << to_string(grammar.error());
  }
}

// struct-02, struct-03 and their like: an answer within 0.1 s, whatever it is.
TEST(ConstraintGrammar, HostileConstraintsAreRefusedAtOnce) {
  std::string names, values, options;
  for (int i = 0; i < 20'000; ++i) {
    names += (i ? ",\"" : "\"") + std::to_string(i) + "\":{}";
    values += (i ? ",\"" : "\"") + std::to_string(i) + "\"";
    options += (i ? "," : "") + std::string(R"({"const":)") + std::to_string(i) + "}";
  }
  const std::string open = R"({"type":"object","properties":{"a":)";
  struct Case {
    const char* name;
    Constraint constraint;
  };
  const Case cases[] = {
      {"minItems 2^64-1", schema(R"({"type":"array","items":{"type":"integer"},"minItems":18446744073709551615})")},
      {"maxItems 1e6", schema(R"({"type":"array","maxItems":1000000})")},
      {"minLength 1e9", schema(R"({"type":"string","minLength":1e9})")},
      {"4,000 nested objects", schema(repeated(open, 4000) + "{}" + repeated("}}", 4000))},
      {"400 nested objects", schema(repeated(open, 400) + "{}" + repeated("}}", 400))},
      {"4,000 groups", regex(repeated("(", 4000) + "a" + repeated(")", 4000))},
      {"4,000 open groups", regex(repeated("(", 4000))},
      {"nested counts", regex("((((a{1000}){1000}){1000}){1000})")},
      {"count 2^64", regex("a{18446744073709551616}")},
      {"count 1,000 of a group", regex("(?:ab){0,1000}")},
      {"many stars", regex(repeated("(a*)*", 500))},
      {"20,000 properties", schema("{\"properties\":{" + names + "}}")},
      {"20,000 alternatives beside a property", schema("{\"properties\":{\"a\":{}},\"anyOf\":[" + options + "]}")},
      {"20,000 alternatives of oneOf", schema("{\"oneOf\":[" + options + "]}")},
      {"a circle of references",
       schema(R"({"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"anyOf":[{"$ref":"#/$defs/a"}]}}})")},
      {"a reference to itself", schema(R"({"$ref":"#"})")},
      {"allOf of itself", schema(R"({"allOf":[{"$ref":"#"},{"type":"object"}]})")},
      {"a schema of 300 kB", schema("{\"description\":\"" + repeated("x", 300'000) + "\"}")},
      {"one name of 200 kB", schema("{\"properties\":{\"" + repeated("x", 200'000) + "\":{}}}")},
      {"a grammar of groups", of(Constraint::Kind::ebnf, "root ::= " + repeated("(", 10'000))},
      {"a grammar of counts", of(Constraint::Kind::ebnf, "root ::= ((\"a\"{1000}){1000}){1000}")},
      {"a macro", of(Constraint::Kind::ebnf, "root ::= Regex(\"(a*)*\")")},
      {"another macro", of(Constraint::Kind::ebnf, "root ::= TagDispatch  (excludes=(\"a\",))")},
      {"a rule option", of(Constraint::Kind::ebnf, "root[max_tokens=3] ::= \"a\"")},
      {"many rules", of(Constraint::Kind::ebnf, repeated("r ::= \"a\"\n", 20'000))},
  };
  for (const Case& one : cases) {
    const auto begin = std::chrono::steady_clock::now();
    const auto grammar = grammar_of(one.constraint);
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    ASSERT_FALSE(grammar.ok()) << one.name;
    EXPECT_FALSE(grammar.error().where.empty()) << one.name;
    EXPECT_LT(taken.count(), 2.0) << one.name;  // sanitizers and a busy machine; alone it is below 0.1
  }
}

// Limits that bind nothing are not in the way.
TEST(ConstraintGrammar, LargeButPlainConstraintsPass) {
  std::string names, values;
  for (int i = 0; i < 500; ++i) {
    names += (i ? ",\"field" : "\"field") + std::to_string(i) + R"(":{"type":"string"})";
    values += (i ? ",\"" : "\"") + std::to_string(i) + "\"";
  }
  EXPECT_TRUE(grammar_of(schema("{\"type\":\"object\",\"properties\":{" + names + "}}")).ok());
  EXPECT_TRUE(grammar_of(schema("{\"enum\":[" + values + "]}")).ok());
  EXPECT_TRUE(grammar_of(schema(R"({"type":"array","maxItems":10000})")).ok());
  EXPECT_TRUE(grammar_of(regex("(a|aa)+(a*)*b")).ok());
  EXPECT_TRUE(grammar_of(regex("^[a-z0-9]{1,255}$")).ok());
  EXPECT_TRUE(
      grammar_of(of(Constraint::Kind::ebnf, "root ::= item (\",\" item){0,99} # list\nitem ::= [a-z\\]\"]+")).ok());
}

TEST(ConstraintGrammar, ToolsAreNamedInPaths) {
  Constraint constraint;
  constraint.kind = Constraint::Kind::tool_call;
  constraint.markup = {"｜DSML｜", " calls", " "};
  EXPECT_EQ(grammar_of(constraint).error().where, "tools");
  const auto parameters = [](const char* text) { return *parse_json(text, "parameters"); };
  constraint.tools = {{"f", parameters(R"({"patternProperties":{"a":{}}})"), false},
                      {"g", parameters(R"({"type":"object","properties":{"x":{"not":{}}}})"), true}};
  const auto grammar = grammar_of(constraint);
  ASSERT_FALSE(grammar.ok());
  EXPECT_EQ(grammar.error().where, "tools[1].parameters.properties.x.not");
  constraint.tools[1].strict = false;  // then its schema binds nothing
  EXPECT_TRUE(grammar_of(constraint).ok());
  constraint.tools[1].name = "a\"b";
  EXPECT_EQ(grammar_of(constraint).error().where, "tools[1].name");
}

}  // namespace
}  // namespace fathom::grammar
