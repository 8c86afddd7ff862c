#include "fathom/recipe/api/field.h"

#include <gtest/gtest.h>

namespace fathom::recipe {
namespace {

Json body_of(std::string_view text) {
  auto body = parse_body(text);
  EXPECT_TRUE(body.ok()) << text;
  return body ? *body : Json();
}

TEST(Field, ReadsAllKindsOfValues) {
  Json json = body_of(
      R"({"s":"text","b":true,"f":0.1,"u":4294967295,"l":18446744073709551615,"w":"high","a":[1,2],"o":{"k":"v"}})");
  BodyFailure failure(json);
  const Field body(json, failure);
  EXPECT_EQ(body["s"].peek_text(), "text");
  EXPECT_EQ(body["s"].text(), "text");
  EXPECT_EQ(body["b"].optional_flag(), true);
  EXPECT_EQ(body["f"].optional_float(), 0.1f);
  EXPECT_EQ(body["u"].optional_count(), 4294967295u);
  EXPECT_EQ(body["l"].optional_long_count(), 18446744073709551615u);
  EXPECT_EQ(body["w"].choice({"low", "high"}), 1);
  ASSERT_EQ(body["a"].list().size(), 2u);
  EXPECT_EQ(body["a"].list()[1].optional_count(), 2u);
  EXPECT_EQ(body["o"]["k"].text(), "v");
  EXPECT_FALSE(failure.noted());
}

TEST(Field, NullIsAbsenceAndAbsenceIsNoMistakeOfAnOptionalField) {
  Json json = body_of(R"({"n":null})");
  BodyFailure failure(json);
  const Field body(json, failure);
  EXPECT_TRUE(body["n"].given());
  EXPECT_FALSE(body["x"].given());
  for (const char* key : {"n", "x"}) {
    EXPECT_FALSE(body[key].present());
    EXPECT_FALSE(body[key].optional_text());
    EXPECT_FALSE(body[key].optional_flag());
    EXPECT_FALSE(body[key].optional_float());
    EXPECT_FALSE(body[key].optional_count());
    EXPECT_FALSE(body[key].optional_long_count());
    EXPECT_FALSE(body[key].optional_json());
    EXPECT_FALSE(body[key].optional_choice({"a"}));
    EXPECT_TRUE(body[key].list().empty());
    EXPECT_FALSE(body[key]["deeper"]["still"].present());
  }
  EXPECT_FALSE(failure.noted());
}

// Every accessor on every kind that it does not take, at several depths.
TEST(Field, AWrongTypeAtAnyDepthIsNotedWithItsPath) {
  const struct {
    const char* name;
    const char* accepted;  // spellings of values that it takes
    void (*read)(const Field&);
  } accessors[] = {
      {"text", "string", [](const Field& f) { (void)f.text(); }},
      {"optional_text", "string", [](const Field& f) { (void)f.optional_text(); }},
      {"flag", "boolean", [](const Field& f) { (void)f.optional_flag(); }},
      {"float", "number", [](const Field& f) { (void)f.optional_float(); }},
      {"count", "number", [](const Field& f) { (void)f.optional_count(); }},
      {"long_count", "number", [](const Field& f) { (void)f.optional_long_count(); }},
      {"list", "array", [](const Field& f) { (void)f.list(); }},
      {"member", "object", [](const Field& f) { (void)f["k"]; }},
      {"choice", "string", [](const Field& f) { (void)f.choice({"v"}); }},
      {"optional_choice", "string", [](const Field& f) { (void)f.optional_choice({"v"}); }},
  };
  const struct {
    const char* kind;
    const char* json;
    const char* words;
  } values[] = {{"boolean", "true", "a boolean"},
                {"number", "7", "7"},
                {"string", "\"v\"", "a string"},
                {"array", "[]", "an array"},
                {"object", "{}", "an object"}};
  for (const auto& accessor : accessors) {
    for (const auto& value : values) {
      const std::string leaf = value.json;
      Json json = body_of(R"({"x":)" + leaf + R"(,"m":[{},{"c":[0,)" + leaf + R"(]}],"a b":{"d":)" + leaf + "}}");
      const auto path_noted = [&](auto&& select) {
        BodyFailure failure(json);
        accessor.read(select(Field(json, failure)));
        if (!failure.noted()) return std::string("none");
        EXPECT_EQ(failure.error().code, ErrorCode::bad_input);
        EXPECT_NE(failure.error().message.find(std::string(", found ") + value.words), std::string::npos)
            << failure.error().message;
        EXPECT_EQ(failure.error().message.find("invalid request body: " + failure.error().where + ": expected "), 0u)
            << failure.error().message;
        return failure.error().where;
      };
      const bool accepted = std::string(accessor.accepted) == value.kind;
      SCOPED_TRACE(std::string(accessor.name) + " of " + value.kind);
      EXPECT_EQ(path_noted([](Field body) { return body["x"]; }), accepted ? "none" : "x");
      EXPECT_EQ(path_noted([](Field body) { return body["m"].list()[1]["c"].list()[1]; }),
                accepted ? "none" : "m[1].c[1]");
      EXPECT_EQ(path_noted([](Field body) { return body["a b"]["d"]; }), accepted ? "none" : R"(["a b"].d)");
    }
  }
}

TEST(Field, AMissingValueIsNotedUnderTheNameThatItWouldHave) {
  Json json = body_of(R"({"m":[{},{"c":null}]})");
  const auto noted = [&](auto&& read) {
    BodyFailure failure(json);
    read(Field(json, failure));
    return failure.noted() ? failure.error().message : "none";
  };
  EXPECT_EQ(noted([](Field b) { (void)b["model"].text(); }), "invalid request body: model: is required");
  EXPECT_EQ(noted([](Field b) { (void)b["m"].list()[0]["role"].choice({"x"}); }),
            "invalid request body: m[0].role: is required");
  EXPECT_EQ(noted([](Field b) { (void)b["m"].list()[1]["c"].take(); }),
            "invalid request body: m[1].c: is null, but required");
}

TEST(Field, CountsHaveNoSignFractionOrExponent) {
  for (const char* bad : {"-1", "-0", "1.0", "1e2", "4294967296", "1.5"}) {
    Json json = body_of(std::string(R"({"n":)") + bad + "}");
    BodyFailure failure(json);
    EXPECT_FALSE(Field(json, failure)["n"].optional_count()) << bad;
    ASSERT_TRUE(failure.noted()) << bad;
    EXPECT_NE(failure.error().message.find(bad), std::string::npos);
  }
  Json json = body_of(R"({"n":18446744073709551616})");
  BodyFailure failure(json);
  EXPECT_FALSE(Field(json, failure)["n"].optional_long_count());
  EXPECT_TRUE(failure.noted());
}

TEST(Field, OnlyTheFirstMistakeIsKept) {
  Json json = body_of(R"({"a":1,"b":2})");
  BodyFailure failure(json);
  const Field body(json, failure);
  (void)body["a"].text();
  (void)body["b"].text();
  EXPECT_EQ(failure.error().where, "a");
}

TEST(Field, AnUnknownWordListsTheChoices) {
  Json json = body_of(R"({"w":"up"})");
  BodyFailure failure(json);
  (void)Field(json, failure)["w"].choice({"left", "right", "down"});
  EXPECT_EQ(failure.error().message, R"(invalid request body: w: expected "left", "right" or "down", found "up")");
}

TEST(Field, ValuesAreMovedOutAndPathsStillWork) {
  Json json = body_of(R"({"t":"a text that is too long for a short string","o":{"k":1},"z":5})");
  BodyFailure failure(json);
  const Field body(json, failure);
  EXPECT_EQ(body["t"].text(), "a text that is too long for a short string");
  EXPECT_TRUE(json.find("t")->text.empty());
  EXPECT_EQ(to_string(body["o"].take()), R"({"k":1})");
  (void)body["z"].text();
  EXPECT_EQ(failure.error().where, "z");
}

TEST(ParseBody, TakesAnObjectOf127LevelsAndRefusesTheNext) {
  const auto nested = [](int levels) {
    return R"({"a":)" + std::string(size_t(levels - 1), '[') + std::string(size_t(levels - 1), ']') + "}";
  };
  EXPECT_TRUE(parse_body(nested(127)).ok());
  const auto deeper = parse_body(nested(128));
  ASSERT_FALSE(deeper.ok());
  EXPECT_NE(deeper.error().message.find("127"), std::string::npos);
}

// A prompt may be a million token ids; a body of brackets alone would be a tree of fifty times its size.
TEST(ParseBody, TakesAMillionValuesAndRefusesTwoMillion) {
  const auto list = [](int64_t values) {
    std::string text = R"({"prompt":[0)";
    for (int64_t i = 1; i < values; ++i) text += ",0";
    return text + "]}";
  };
  EXPECT_TRUE(parse_body(list(1'048'576)).ok());
  EXPECT_TRUE(parse_body(list(kMostBodyValues - 2)).ok());
  const auto more = parse_body(list(kMostBodyValues - 1));
  ASSERT_FALSE(more.ok());
  EXPECT_EQ(more.error().message, "invalid JSON request: JSON of more than 1500000 values; send fewer");
}

TEST(ParseBody, RefusesWhatIsNoObjectOrNoJson) {
  for (const char* bad :
       {"", "[]", "null", "5", "\"x\"", "{", "{} x", "{\"a\":NaN}", "{\"a\":1e400}", "\xef\xbb\xbf{}"}) {
    const auto body = parse_body(bad);
    ASSERT_FALSE(body.ok()) << bad;
    EXPECT_EQ(body.error().code, ErrorCode::bad_input) << bad;
    EXPECT_EQ(body.error().message.find("invalid "), 0u) << body.error().message;
  }
}

// A byte column in a megabyte body helps no one (case codec-04).
TEST(ParseBody, NamesThePathAndTheEscapeOfAnUnpairedSurrogate) {
  const auto body = parse_body(R"({"messages":[{"role":"user","content":"ok \ud83d tail"}]})");
  ASSERT_FALSE(body.ok());
  EXPECT_EQ(body.error().where, "messages[0].content");
  EXPECT_EQ(
      body.error().message,
      R"(invalid JSON request: messages[0].content has an unpaired surrogate (\ud83d); send valid UTF-8 or a full \u pair)");
}

}  // namespace
}  // namespace fathom::recipe
