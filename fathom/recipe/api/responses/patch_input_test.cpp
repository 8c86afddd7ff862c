#include "fathom/recipe/api/responses/patch_input.h"

#include <gtest/gtest.h>

namespace fathom::recipe {
namespace {

/// The input when the arguments come in pieces of `step` bytes.
std::string input_of(std::string_view arguments, size_t step) {
  PatchInput input;
  std::string out;
  for (size_t i = 0; i < arguments.size(); i += step) input.push(arguments.substr(i, step), out);
  input.finish(out);
  return out;
}

struct Case {
  const char* arguments;
  const char* input;
};

// Measured with deepseek-recipe 0.2.0 but for the first three, which are in the vectors.
constexpr Case kCases[] = {
    {R"({"input": "*** Begin\n+\"x\"\\\n"})", "*** Begin\n+\"x\"\\\n"},
    {R"({"input": [1]})", R"({"input": [1]})"},
    {R"({"z": "q", "input": "in"})", R"({"z": "q", "input": "in"})"},
    {R"({"input": ""})", ""},
    {"{\"input\": ", "{\"input\": "},  // cut
    {R"({"inp)", R"({"inp)"},
    {R"({"input": ")", ""},
    {R"({"input": "abc)", "abc"},
    {"{\n\"input\"\t : \n\t\r \"x\"}", "x"},
    {"{\"input\": \n\t\r x}", "{\"input\": \n\t\r x}"},
    {R"({"inp\u0075t": "x"})", R"({"inp\u0075t": "x"})"},
    {R"({"input": "a", "more": "b"})", "a"},
    {R"({"input": "a\u00e9\ud83d\ude00\/x\b\f\r\t\u0041"})", "aé😀/x\b\f\r\tA"},
    {"{\"input\": \"a\tb\"}", "a\tb"},
    {R"({"input": "\ud800"})", R"(\ud800"})"},  // the broken escape takes the quote with it
    {R"({"input": "\ud800\n"})", R"(\ud800\n)"},
    {R"({"input": "\ud800\u0041"})", R"(\ud800\u0041)"},
    {R"({"input": "\ud800\ud83d\ude00"})", R"(\ud800\ud83d\ude00)"},
    {R"({"input": "\udc00z"})", R"(\udc00z)"},
    {R"({"input": "\ud83d\ude0"})", R"(\ud83d\ude0"})"},
    {R"({"input": "\u00zz"y"})", R"(\u00zz)"},
    {R"({"input": "\q"z})", R"(\q)"},
    {R"({"input": "a\u00e9\ud83d\ude00\ud800x\/\q\u12"})", R"(aé😀\ud800x/\q\u12"})"},
    {R"({"input": "ab\)", R"(ab\)"},
    {R"({"input": "\ud83d\u)", R"(\ud83d\u)"},
    {R"({"input": "\u12)", R"(\u12)"},
};

TEST(PatchInputTest, GivesTheStringOrTheRawArgumentsHoweverTheyAreCut) {
  for (const Case& one : kCases) {
    for (size_t step : {size_t(1), size_t(2), size_t(3), size_t(7), size_t(1000)}) {
      EXPECT_EQ(input_of(one.arguments, step), one.input) << one.arguments << " by " << step;
    }
  }
}

TEST(PatchInputTest, GivesTextAsSoonAsItIsCertain) {
  PatchInput input;
  std::string out;
  input.push(R"({"input": )", out);
  EXPECT_EQ(out, "");
  input.push(R"("ab\)", out);
  EXPECT_EQ(out, "ab");
  input.push("n", out);
  EXPECT_EQ(out, "ab\n");
  input.push(R"(cd"} tail)", out);
  EXPECT_EQ(out, "ab\ncd");
}

}  // namespace
}  // namespace fathom::recipe
