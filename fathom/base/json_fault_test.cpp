#include "fathom/base/json_fault.h"

#include <gtest/gtest.h>

#include "fathom/base/json.h"
#include "fathom/base/philox.h"

namespace fathom {
namespace {

std::string fault_of(std::string_view text) {
  const auto fault = find_json_fault(text);
  return fault ? describe(*fault, text) : "none";
}

TEST(JsonFault, NamesTheFirstByteThatCannotStandThere) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "the text has no value at byte 0"},
      {"  ", "the text has no value at byte 2"},
      {R"({"a":1)", "the text ends inside an object at byte 6"},
      {R"({"a":[1,2)", "the text ends inside an array at byte 9"},
      {R"({"a":)", "the text ends inside an object at byte 5"},
      {R"({"a":"b)", "the text ends inside quotes at byte 7"},
      {R"({"a":"b\)", "the text ends inside quotes at byte 8"},
      {R"({"a":-)", "the text ends inside a number at byte 6"},
      {R"({"a":tru)", "the text ends inside a word at byte 8"},
      {R"({"a":trUe})", "unexpected 'U' inside true at byte 7"},
      {R"({a:1})", "unexpected 'a' where a key in quotes or } should be at byte 1"},
      {R"({"a":1,})", "unexpected '}' where a key in quotes should be at byte 7"},
      {R"({"a" 1})", "unexpected '1' where a colon should be at byte 5"},
      {R"({"a":1 "b":2})", R"(unexpected '"' where a comma or } should be at byte 7)"},
      {"[1,]", "unexpected ']' where a value should be at byte 3"},
      {"[1}", "unexpected '}' where a comma or ] should be at byte 2"},
      {"[01]", "a number begins with 0 at byte 2"},
      {"[1.]", "unexpected ']' inside a number at byte 3"},
      {"['a']", "unexpected ''' where a value should be at byte 1"},
      {"[é]", "unexpected 'é' where a value should be at byte 1"},
      {"{} {}", "there is text after the value at byte 3"},
      {R"("\x")", R"(\'x' is no escape at byte 2)"},
      {R"("\u12g4")", R"(unexpected 'g' where a hexadecimal digit of \u should be at byte 5)"},
      {"\"a\tb\"", "byte 0x09 inside quotes must be escaped at byte 2"},
      {"[\"a\xff\"]", "byte 0xff is no UTF-8 at byte 3"},
      {"[\"\xed\xa0\x80\"]", "byte 0xed is no UTF-8 at byte 2"},
      {"{\n  \"a\": 1,\n  b\n}", "unexpected 'b' where a key in quotes should be at byte 14 (line 3, column 3)"},
      {"{\n\"a\":\"b\n\"}", "a line ends inside quotes at byte 8 (line 2, column 7)"},
      {"\n[", "the text ends inside an array at byte 2 (line 2, column 2)"},
  };
  for (const auto& [text, told] : cases) {
    EXPECT_EQ(fault_of(text), told) << text;
    EXPECT_FALSE(parse_json(text, "test").ok()) << text;
  }
}

TEST(JsonFault, EveryBeginningOfAnObjectEndsWhereItIsCut) {
  const std::string text = R"( {"a":[1.5e+3,true,null,{"é\n\u00e9":"x"}],"b":{}})";
  EXPECT_EQ(fault_of(text), "none");
  for (size_t cut = 0; cut < text.size(); ++cut) {
    const std::string_view part = std::string_view(text).substr(0, cut);
    const auto fault = find_json_fault(part);
    ASSERT_TRUE(fault) << part;
    // Half of a two-byte character is at fault itself.
    EXPECT_TRUE(fault->byte == cut || (cut > 0 && uint8_t(part.back()) == 0xc3 && fault->byte == cut - 1)) << part;
  }
}

// Two readers that know nothing of each other: what one takes the other finds no fault with. 20,000 texts of six bytes
// changed; those that only one of them refuses have an unpaired surrogate, which is a matter of text and not of JSON.
TEST(JsonFault, AgreesWithTheReader) {
  const std::string good = R"({"a":[1,-2.5e3,true,null,{"k":"v\n\u00e9 é","e":{}}],"b":"x"})";
  const std::string_view bytes = "{}[]:,\"\\u0dx 1-.e+tfn\n\t\xc3\xa9";
  int taken = 0;
  for (uint32_t round = 0; round < 20'000; ++round) {
    std::string text = good;
    for (uint32_t i = 0; i < 1 + round % 3; ++i) {
      const auto random = philox(7, {round, i, 0, 0});
      text[random[0] % text.size()] = bytes[random[1] % bytes.size()];
    }
    const auto read = parse_json(text, "test");
    if (read.ok()) {
      ++taken;
      EXPECT_EQ(fault_of(text), "none") << text;
    } else if (read.error().message.find("surrogate") == std::string::npos) {
      EXPECT_NE(fault_of(text), "none") << text << ": " << read.error().message;
    }
  }
  EXPECT_GT(taken, 100);
}

}  // namespace
}  // namespace fathom
