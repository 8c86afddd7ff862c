#include "fathom/tokenizer/unicode/utf8.h"

#include <gtest/gtest.h>

namespace fathom::unicode {
namespace {

std::string replaced(std::string_view bytes) {
  std::string out;
  append_replacing(out, bytes);
  return out;
}

TEST(Utf8, EveryCodePointGoesThereAndBack) {
  for (char32_t c = 0; c < 0x110000; ++c) {
    std::string bytes;
    append_utf8(bytes, c);
    int length = 0;
    ASSERT_EQ(decode_utf8(bytes.data(), length), c);
    ASSERT_EQ(size_t(length), bytes.size());
    const bool surrogate = c >= 0xD800 && c < 0xE000;
    ASSERT_EQ(valid_utf8_prefix(bytes) == bytes.size(), !surrogate) << std::hex << uint32_t(c);
  }
}

// The Unicode Standard 3.9, tables 3-8 to 3-11.
TEST(Utf8, ReplacesMaximalSubpartsAsTheStandardSays) {
  EXPECT_EQ(replaced("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"), "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFDA");
  EXPECT_EQ(replaced("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"), "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFDA");
  EXPECT_EQ(replaced("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"), "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFDA\uFFFD\uFFFDB");
  EXPECT_EQ(replaced("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), "\uFFFD\uFFFD\uFFFD\uFFFDA");
}

TEST(Utf8, ACutOffEndIsIncompleteNotInvalid) {
  const std::string text = "😀";
  for (size_t length = 1; length < 4; ++length) {
    EXPECT_EQ(step_utf8(text.substr(0, length)).kind, Utf8Step::Kind::incomplete);
    EXPECT_EQ(replaced(text.substr(0, length)), "\uFFFD");
  }
  EXPECT_EQ(step_utf8("\xE0\x80").kind, Utf8Step::Kind::invalid) << "no continuation can save it";
}

TEST(Utf8, TheValidPrefixEndsAtTheFirstFaultWhereverItLies) {
  for (size_t at = 0; at < 40; ++at) {  // across the 8 bytes that are looked at together
    std::string text(40, 'a');
    text[at] = '\xff';
    EXPECT_EQ(valid_utf8_prefix(text), at);
  }
}

}  // namespace
}  // namespace fathom::unicode
