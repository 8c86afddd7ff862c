#include "fathom/base/json_values.h"

#include <gtest/gtest.h>

namespace fathom {
namespace {

Json parsed(std::string_view text) {
  auto got = parse_json(text, "test");
  EXPECT_TRUE(got.ok()) << text << ": " << (got.ok() ? "" : to_string(got.error()));
  return got.ok() ? *got : Json{};
}

TEST(Json, KeepsTheOrderOfKeysAndTheTextOfNumbers) {
  const std::string text = R"({"z":1,"a":[1.50,-0,1e400,123456789012345678901234567890],"m":null,"t":true})";
  EXPECT_EQ(to_string(parsed(text)), text);
}

TEST(Json, ARepeatedKeyKeepsItsFirstPlaceAndItsLastValue) {
  EXPECT_EQ(to_string(parsed(R"({"a":1,"b":2,"a":3})")), R"({"a":3,"b":2})");
}

TEST(Json, ReadsScalarsAtTheRoot) {
  EXPECT_EQ(parsed("3").as_int64(), 3);
  EXPECT_EQ(parsed(" \"x\" ").text, "x");
  EXPECT_TRUE(parsed("null").is_null());
  EXPECT_EQ(parsed("true").as_bool(), true);
  EXPECT_EQ(parsed("-2.5e3").as_double(), -2500.0);
}

TEST(Json, IntegersAreExactAndFractionsAreNone) {
  EXPECT_EQ(parsed("9223372036854775807").as_int64(), INT64_MAX);
  EXPECT_EQ(parsed("3.0").as_int64(), 3);
  EXPECT_EQ(parsed("3.5").as_int64(), std::nullopt);
  EXPECT_EQ(parsed("9223372036854775808").as_int64(), std::nullopt);
}

TEST(Json, RefusesWhatIsNotOneValidValue) {
  for (const char* bad : {"",    " ",   "{",   "[1,",   "{\"a\"}", "1 2",         "{} {}",    "[1] x", "tru",
                          "01",  "1.",  "-",   "+1",    ".5",      "\"\\x\"",     "\"\xff\"", "[1,]",  "{\"a\":1,}",
                          "nul", "\"a", "'a'", "{a:1}", "[1 2]",   "\"\\ud800\"", "1e",       "[}"}) {
    EXPECT_FALSE(parse_json(bad, "test").ok()) << bad;
  }
}

// The text behind a number's digits was once dropped: [1x] read as [1].
TEST(Json, RefusesANumberThatGoesOnAsSomethingElse) {
  for (const char* bad :
       {"[1x]", "{\"a\":1x}", "[1e400x]", "[12abc,3]", "[1.5.6]", "[0x10]", "[1-]", "1x", "1 x", "1e400 2", "[-]"}) {
    EXPECT_FALSE(parse_json(bad, "test").ok()) << bad;
  }
}

TEST(Json, KeepsANumberThatNoDoubleHoldsAtTheRootToo) {
  for (const char* text : {"1e400", "-1e-400", "123456789012345678901234567890", "3", " 3 \n"}) {
    EXPECT_TRUE(parse_json(text, "test").ok()) << text;
  }
  EXPECT_EQ(to_string(parsed("1e400")), "1e400");
}

TEST(Json, RefusesNumbersBeyondADoubleWhenAsked) {
  for (const char* text : {"[1e400]", "[-1e309]", "1e400"}) {
    EXPECT_FALSE(parse_json(text, "test", {.finite = true}).ok()) << text;
  }
  for (const char* text : {"[1e-400]", "[1e308]", "[123456789012345678901234567890]"}) {
    EXPECT_TRUE(parse_json(text, "test", {.finite = true}).ok()) << text;
  }
}

TEST(Json, LimitsDepthAndLength) {
  const std::string deep(200, '['), close(200, ']');
  const auto got = parse_json(deep + close, "body");
  ASSERT_FALSE(got.ok());
  EXPECT_NE(to_string(got.error()).find("127"), std::string::npos);
  EXPECT_FALSE(parse_json("[1,2,3]", "body", {.bytes = 3}).ok());
  EXPECT_TRUE(parse_json(std::string(127, '[') + std::string(127, ']'), "body").ok());
}

TEST(Json, EscapesWhatMustBeEscapedOnly) {
  std::string out;
  append_json_string(out, "a\"\\\n\t\x01é\x7f");
  EXPECT_EQ(out, "\"a\\\"\\\\\\n\\t\\u0001é\x7f\"");
  EXPECT_EQ(parsed(out).text, "a\"\\\n\t\x01é\x7f");
}

TEST(Json, NumbersRoundTrip) {
  for (const double v : {0.1, 1e300, -5e-324, 123456.75, 3.0}) EXPECT_EQ(parsed(to_string(Json::of(v))).as_double(), v);
  EXPECT_TRUE(Json::of(1.0 / 0.0).is_null());
}

TEST(Json, NamesTheUnpairedSurrogateAndItsPath) {
  const auto fault = [](std::string_view text) {
    std::string path = "untouched";
    const auto got = parse_json(text, "body", {}, &path);
    EXPECT_FALSE(got.ok()) << text;
    return path + " | " + (got.ok() ? "" : got.error().message);
  };
  EXPECT_EQ(fault(R"({"m":[{"c":"ok"},{"c":"ok \ud83d tail"}]})"),
            R"(m[1].c | m[1].c has an unpaired surrogate (\ud83d))");
  EXPECT_EQ(fault(R"(["\ud83d\ude00","\\ud83d","\udc00"])"), R"([2] | [2] has an unpaired surrogate (\udc00))");
  EXPECT_EQ(fault(R"({"a b":{"c":"\ud83d\ud83d"}})"), R"(["a b"].c | ["a b"].c has an unpaired surrogate (\ud83d))");
  EXPECT_EQ(fault(R"({"k":{"\uDBFF":1}})"), R"(k | k has an unpaired surrogate (\uDBFF))");
  EXPECT_EQ(fault(R"("\ud83d")"), R"( | the text has an unpaired surrogate (\ud83d))");
  EXPECT_EQ(fault(R"({"a":[1,tru]})").substr(0, 7), "a[1] | ");
}

// 16 keys are compared one by one, the 17th builds a table: both sides of the border, and far beyond.
TEST(Json, ManyKeysFollowTheSameRules) {
  for (const int keys : {15, 16, 17, 18, 1000}) {
    std::string text = "{";
    for (int i = 0; i < keys; ++i) text += "\"k" + std::to_string(i) + "\":0,";
    for (int i = 0; i < keys; ++i) text += (i ? ",\"k" : "\"k") + std::to_string(i) + "\":" + std::to_string(i);
    const Json object = parsed(text + "}");
    ASSERT_EQ(object.fields.size(), size_t(keys));
    for (int i = 0; i < keys; ++i) {
      EXPECT_EQ(object.fields[size_t(i)].first, "k" + std::to_string(i));
      EXPECT_EQ(object.fields[size_t(i)].second.as_int64(), i);
    }
  }
}

TEST(Json, EscapesWhereverTheCharacterStands) {
  // Every byte at every place of a word of eight, among bytes that the search for escapes must not stumble over.
  for (int c = 0; c < 256; ++c) {
    for (size_t at = 0; at < 19; ++at) {
      std::string text = "a!#[]\x7f\xff\x80\xa2\xdc\xa0 ~a!#[]z", want = "\"";
      text[at] = char(c);
      for (const char one : text) {
        static const std::string kShort = "\b\t\n\f\r\"\\", kNames = "btnfr\"\\";
        const size_t known = kShort.find(one);
        if (known != std::string::npos) {
          want += std::string("\\") + kNames[known];
        } else if (uint8_t(one) < 0x20) {
          want += std::string("\\u00") + (uint8_t(one) < 16 ? '0' : '1') + "0123456789abcdef"[uint8_t(one) & 15];
        } else {
          want += one;
        }
      }
      std::string got;
      append_json_string(got, text);
      ASSERT_EQ(got, want + '"') << c << " at " << at;
    }
  }
}

TEST(Json, ValuesOfAllDepthsAreCounted) {
  EXPECT_TRUE(parse_json_of(5, R"([1,{"a":[2]}])", "here").ok());
  EXPECT_TRUE(parse_json_of(5, "[1,2,3,4]", "here").ok());
  for (const char* six : {"[1,2,3,4,5]", "[[[[[[]]]]]]", R"([{"a":1},{"b":2},3])"}) {
    const auto read = parse_json_of(5, six, "here");
    ASSERT_FALSE(read.ok()) << six;
    EXPECT_EQ(read.error().message, "JSON of more than 5 values") << six;
  }
}

TEST(Json, BlanksMayStandAroundAnyValue) {
  for (const char* value : {"null", "true", "false", "5", "-1.5", "\"a\"", "[1]", "{}"}) {
    for (const char* blanks : {" ", "\n", "\t\r\n "}) {
      const auto read = parse_json(std::string(blanks) + value + blanks, "here");
      ASSERT_TRUE(read) << value << ": " << read.error().message;
      EXPECT_EQ(to_string(*read), value);
    }
    EXPECT_FALSE(parse_json(std::string(" ") + value + " x", "here")) << value;
  }
}

}  // namespace
}  // namespace fathom
