#include "fathom/recipe/json_text.h"

#include <gtest/gtest.h>

#include <limits>

namespace fathom::recipe {
namespace {

std::string json_string(std::string_view text) {
  std::string out;
  append_quoted(out, text);
  return out;
}

template <class Number>
std::string number(Number value) {
  std::string out;
  append_number(out, value);
  return out;
}

std::string object(std::string_view arguments, Policy policy) {
  std::string out;
  return append_argument_object(out, arguments, policy) ? out : "none" + out;
}

TEST(JsonTextTest, EscapesControlCharactersQuoteAndBackslashOnly) {
  const std::string text = std::string("\0\x01\x1f\"\\/\x7f", 7) + "\u2028é😀\b\f\n\r\t";
  EXPECT_EQ(json_string(text), "\"\\u0000\\u0001\\u001f\\\"\\\\/\x7f\u2028é😀\\b\\f\\n\\r\\t\"");
}

// The scan takes eight bytes at a time: an escape must be found at every place of a word, beside every kind of byte.
TEST(JsonTextTest, FindsAnEscapeAtEveryPlace) {
  for (const char neighbour : {'a', ' ', '!', '#', '[', ']', '\x7f', '\x80', '\xff'}) {
    for (int byte = 0; byte < 256; ++byte) {
      for (size_t size : {1u, 7u, 8u, 9u, 24u}) {
        for (size_t at = 0; at < size; ++at) {
          std::string text(size, neighbour);
          text[at] = char(byte);
          std::string want;
          append_json_string(want, text);
          ASSERT_EQ(json_string(text), want) << byte << " at " << at << " of " << size;
        }
      }
    }
  }
}

// Measured: log-probabilities of deepseek-recipe 0.2.0.
TEST(JsonTextTest, SpellsFloatsAsTheWheelDoes) {
  EXPECT_EQ(number(-0.1f), "-0.1");
  EXPECT_EQ(number(-1e-7f), "-1e-7");
  EXPECT_EQ(number(-1.1920928955078125e-07f), "-1.1920929e-7");
  EXPECT_EQ(number(0.0f), "0.0");
  EXPECT_EQ(number(-0.0f), "-0.0");
  EXPECT_EQ(number(-1e-6f), "-0.000001");
  EXPECT_EQ(number(-0.0000015f), "-0.0000015");
  EXPECT_EQ(number(-0.00012345f), "-0.00012345");
  EXPECT_EQ(number(1e12f), "1000000000000.0");
  EXPECT_EQ(number(1e13f), "1e+13");
  EXPECT_EQ(number(123456789.0f), "123456790.0");
  EXPECT_EQ(number(-9999.0f), "-9999.0");
  EXPECT_EQ(number(-3.4e38f), "-3.4e+38");
  EXPECT_EQ(number(-1e-45f), "-1e-45");
  EXPECT_EQ(number(16777216.0f), "16777216.0");
  EXPECT_EQ(number(-std::numeric_limits<float>::infinity()), "null");
  EXPECT_EQ(number(std::numeric_limits<float>::quiet_NaN()), "null");
}

// Measured: the input of a tool_use block of deepseek-recipe 0.2.0. Lenient: ids of 64 bits and more are common in
// tools, so digits stay.
TEST(JsonTextTest, ArgumentsKeepTheirDigitsOrAreSpeltAnewByPolicy) {
  const std::string given =
      R"({"a": [2.50,1e2,1E+2,-0,-0.0,0.0,12345678901234567890,12345678901234567890123,18446744073709551615,)"
      R"(18446744073709551616,-9223372036854775808,-9223372036854775809,1e16,1e15,123456789012345680.0,1e-5,1e-6,)"
      R"(0.0001,1e21,1.5e300,1e-7]})";
  EXPECT_EQ(object(given, Policy::strict),
            R"({"a":[2.5,100.0,100.0,-0.0,-0.0,0.0,12345678901234567890,1.2345678901234568e+22,18446744073709551615,)"
            R"(1.8446744073709552e+19,-9223372036854775808,-9.223372036854776e+18,1e+16,1000000000000000.0,)"
            R"(1.2345678901234568e+17,0.00001,1e-6,0.0001,1e+21,1.5e+300,1e-7]})");
  EXPECT_EQ(object(given, Policy::lenient), R"({"a":)" + given.substr(6));
  EXPECT_EQ(object(R"({"a": 1e400})", Policy::strict), "none");
  EXPECT_EQ(object(R"({"a": 1e400})", Policy::lenient), R"({"a":1e400})");
  EXPECT_EQ(object(R"({"a": -1e400, "a": 1})", Policy::strict), "none");
  EXPECT_EQ(
      object(R"({"1e400": "\"1e400", "a": [1e-400,-1e-400,4e-324,0e400,1.7976931348623157e308]})", Policy::strict),
      R"({"1e400":"\"1e400","a":[0.0,-0.0,5e-324,0.0,1.7976931348623157e+308]})");
}

TEST(JsonTextTest, ArgumentsThatAreNoObjectAreNone) {
  for (const char* text : {"", "{", "[1]", "1", R"({"a": )", R"({"a": oops})", R"({"a": 1} x)", R"({"a": [1,]})",
                           R"({"a": "\ud800"})", R"({"a": NaN})"}) {
    EXPECT_EQ(object(text, Policy::strict), "none") << text;
    EXPECT_EQ(object(text, Policy::lenient), "none") << text;
  }
  const auto nested = [](size_t levels) {
    return R"({"a":)" + std::string(levels - 1, '[') + std::string(levels - 1, ']') + "}";
  };
  EXPECT_EQ(object(nested(127), Policy::strict), nested(127));
  EXPECT_EQ(object(nested(128), Policy::strict), "none");
}

TEST(JsonTextTest, RepeatedKeysTakeTheLastValueAtTheFirstPlace) {
  EXPECT_EQ(object(R"( {"b": 1, "a": "\u0041\/\u007f\u2028\b\u0001", "b": 3} )", Policy::strict),
            "{\"b\":3,\"a\":\"A/\x7f\u2028\\b\\u0001\"}");
}

}  // namespace
}  // namespace fathom::recipe
