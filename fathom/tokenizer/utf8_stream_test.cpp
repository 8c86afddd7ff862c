#include "fathom/tokenizer/utf8_stream.h"

#include <gtest/gtest.h>

#include "fathom/tokenizer/unicode/utf8.h"

namespace fathom {
namespace {

TEST(Utf8Stream, AnyCutGivesTheSameText) {
  const std::string text = "aé中👩\u200d💻e\u0301🇩🇪\xff\xf0\x9f z\xe4\xb8";
  std::string want;
  unicode::append_replacing(want, text);
  want.resize(want.size() - 3);  // the unfinished end is held, not replaced
  for (size_t first = 0; first <= text.size(); ++first) {
    for (size_t second = first; second <= text.size(); ++second) {
      Utf8Stream stream;
      std::string got = stream.push(text.substr(0, first));
      got += stream.push(text.substr(first, second - first));
      got += stream.push(text.substr(second));
      ASSERT_EQ(got, want) << first << " " << second;
      ASSERT_EQ(stream.held(), "\xe4\xb8");
    }
  }
}

TEST(Utf8Stream, GivesACharacterWithItsLastByte) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push("a\xf0"), "a");
  EXPECT_EQ(stream.push("\x9f\x91"), "");
  EXPECT_EQ(stream.held(), "\xf0\x9f\x91");
  EXPECT_EQ(stream.push("\xa9"), "👩");
  EXPECT_EQ(stream.held(), "");
}

TEST(Utf8Stream, WaitsForNothingThatMayJoinACharacter) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push("👩"), "👩");
  EXPECT_EQ(stream.push("\u200d"), "\u200d");
  EXPECT_EQ(stream.push("e"), "e");
  EXPECT_EQ(stream.push("\u0301"), "\u0301");
}

TEST(Utf8Stream, ReplacesWhatCanNeverBeACharacterAtOnce) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push("\xff"), "\uFFFD");
  EXPECT_EQ(stream.push("\xe4"), "");
  EXPECT_EQ(stream.push("a"), "\uFFFDa");
}

}  // namespace
}  // namespace fathom
