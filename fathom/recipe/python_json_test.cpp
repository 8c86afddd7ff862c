#include "fathom/recipe/python_json.h"

#include <gtest/gtest.h>

namespace fathom::recipe {
namespace {

std::string python(std::string_view text) {
  auto json = parse_json(text, "test");
  EXPECT_TRUE(json.ok()) << text;
  std::string out;
  append_python_json(out, *json);
  return out;
}

std::string compact(std::string_view text) {
  std::string out;
  append_compact_json(out, *parse_json(text, "test"));
  return out;
}

TEST(PythonJson, SeparatesLikePython) {
  EXPECT_EQ(python(R"({"a":1,"b":[2.5,true,null],"c":{},"d":[]})"),
            R"({"a": 1, "b": [2.5, true, null], "c": {}, "d": []})");
  EXPECT_EQ(compact(R"({"a": 1, "b": [2.50, true]})"), R"({"a":1,"b":[2.5,true]})");
}

TEST(PythonJson, SpacedJsonHasTheBlanksOfOneFormAndTheNumbersOfTheOther) {
  std::string out;
  append_spaced_json(out, *parse_json(R"({"a":1e-7,"b":[0.00001,1e30,"é"]})", "test"));
  EXPECT_EQ(out, R"({"a": 1e-7, "b": [0.00001, 1e+30, "é"]})");
}

TEST(PythonJson, EscapesControlCharactersAndNothingElse) {
  EXPECT_EQ(python(R"({"k\n":"\u0000\u001f\u007f\u2028\ud83d\ude00\/\b\f\r\t\"\\é"})"),
            "{\"k\\n\": \"\\u0000\\u001f\x7f\u2028😀/\\b\\f\\r\\t\\\"\\\\é\"}");
}

TEST(PythonJson, KeepsIntegersOfSixtyFourBitsAsGiven) {
  for (const char* number : {"0", "1", "-9223372036854775808", "9223372036854775807", "18446744073709551615"}) {
    EXPECT_EQ(python(number), number);
  }
}

// The right column is Python's repr(float(left)).
TEST(PythonJson, WritesOtherNumbersAsReprDoes) {
  const std::pair<const char*, const char*> cases[] = {
      {"18446744073709551616", "1.8446744073709552e+19"},
      {"-9223372036854775809", "-9.223372036854776e+18"},
      {"123456789012345678901234567890", "1.2345678901234568e+29"},
      {"-0", "-0.0"},
      {"-0.0", "-0.0"},
      {"0e5", "0.0"},
      {"1.0", "1.0"},
      {"1.50", "1.5"},
      {"1e2", "100.0"},
      {"1E+5", "100000.0"},
      {"1e15", "1000000000000000.0"},
      {"9999999999999998.0", "9999999999999998.0"},
      {"1e16", "1e+16"},
      {"1e21", "1e+21"},
      {"1e30", "1e+30"},
      {"12345678901234567.0", "1.2345678901234568e+16"},
      {"0.0001", "0.0001"},
      {"0.00012345", "0.00012345"},
      {"0.00001", "1e-05"},
      {"-0.00001234", "-1.234e-05"},
      {"0.1", "0.1"},
      {"0.30000000000000004", "0.30000000000000004"},
      {"9007199254740993.0", "9007199254740992.0"},
      {"5e-324", "5e-324"},
      {"1.7976931348623157e308", "1.7976931348623157e+308"},
      {"1e-400", "0.0"},
      {"-1e-400", "-0.0"},
      {"0.001e-99999999999999999999", "0.0"},
  };
  for (const auto& [given, expected] : cases) EXPECT_EQ(python(given), expected) << given;
}

TEST(PythonJson, ConstraintsSpellSmallNumbersInTheirOwnWay) {
  EXPECT_EQ(compact("[1e-5,0.00012,1e16,1e17,-0,1.0,1e-7,1.5e-10,12345678901234567890123,1e-100]"),
            "[0.00001,0.00012,1e+16,1e+17,-0.0,1.0,1e-7,1.5e-10,1.2345678901234568e+22,1e-100]");
}

// A request never brings one (parsing refuses it), but a tree made by hand may.
TEST(PythonJson, ANumberBeyondDoublesIsKeptAsSpelt) {
  EXPECT_EQ(python("1e400"), "1e400");
  EXPECT_FALSE(fits_doubles(*parse_json(R"({"a":[1,-1e400]})", "test")));
  EXPECT_TRUE(fits_doubles(*parse_json(R"({"a":[1e308,1e-400,18446744073709551616,"1e400"]})", "test")));
}

}  // namespace
}  // namespace fathom::recipe
