#include "fathom/tokenizer/stages/pre_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <charconv>
#include <string>
#include <vector>

#include "fathom/base/mapped_file.h"

namespace fathom {
namespace {

using testing::ElementsAre;

std::vector<std::string> pieces(std::string_view text, int digits = 3) {
  std::vector<std::string> out;
  PreTokenizer(digits).split(text, [&](std::string_view piece) { out.emplace_back(piece); });
  return out;
}

TEST(PreTokenizer, GroupsDigitsFromTheLeft) {
  EXPECT_THAT(pieces("12345"), ElementsAre("123", "45"));
  EXPECT_THAT(pieces("12345", 1), ElementsAre("1", "2", "3", "4", "5"));
  EXPECT_THAT(pieces("²½Ⅷ४1"), ElementsAre("²½Ⅷ", "४1"));
}

TEST(PreTokenizer, KeepsCjkRunsApart) {
  EXPECT_THAT(pieces("a中文b"), ElementsAre("a", "中文", "b"));
  EXPECT_THAT(pieces("龥龦"), ElementsAre("龥", "龦"));  // U+9FA6 is outside the range
  EXPECT_THAT(pieces("々ー"), ElementsAre("々", "ー"));
  // Within a CJK run the third stage still cuts.
  EXPECT_THAT(pieces("ア・イ゠"), ElementsAre("ア", "・", "イ", "゠"));
}

TEST(PreTokenizer, AGapEndsWhereTheCjkRunEnds) {
  // U+3040 is unassigned within the CJK ranges, U+0378 outside.
  EXPECT_THAT(pieces("\u0378\u0379\u3040\u3040"), ElementsAre("\u0378\u0379", "\u3040\u3040"));
  EXPECT_THAT(pieces("\u0378中"), ElementsAre("\u0378", "中"));
  EXPECT_THAT(pieces("\u0378\u3040中"), ElementsAre("\u0378", "\u3040中"));
}

TEST(PreTokenizer, TakesOnePunctuationMarkWithAsciiLetters) {
  EXPECT_THAT(pieces(".Hello"), ElementsAre(".Hello"));
  EXPECT_THAT(pieces("_under's"), ElementsAre("_under", "'s"));
  EXPECT_THAT(pieces(".hé"), ElementsAre(".h", "é"));
  EXPECT_THAT(pieces("..a"), ElementsAre("..", "a"));
}

TEST(PreTokenizer, TakesOneOtherCharacterInFrontOfLetters) {
  EXPECT_THAT(pieces("a world"), ElementsAre("a", " world"));
  EXPECT_THAT(pieces("\tint"), ElementsAre("\tint"));
  EXPECT_THAT(pieces("e\u0301\u0301x"), ElementsAre("e\u0301\u0301x"));
  EXPECT_THAT(pieces(" \u0301x"), ElementsAre(" \u0301x"));
  EXPECT_THAT(pieces("\u200b\u200bx"), ElementsAre("\u200b", "\u200bx"));
}

TEST(PreTokenizer, TakesSymbolsWithABlankBeforeAndLineBreaksAfter) {
  EXPECT_THAT(pieces("a ==\n\nb"), ElementsAre("a", " ==\n\n", "b"));
  EXPECT_THAT(pieces(";\r\n x"), ElementsAre(";\r\n", " x"));
  EXPECT_THAT(pieces("\t="), ElementsAre("\t", "="));
}

TEST(PreTokenizer, LeavesTheLastBlankOfARunToTheNextPiece) {
  EXPECT_THAT(pieces("   x"), ElementsAre("  ", " x"));
  EXPECT_THAT(pieces("   1"), ElementsAre("   ", "1"));
  EXPECT_THAT(pieces("   中"), ElementsAre("   ", "中"));
  EXPECT_THAT(pieces("x   "), ElementsAre("x", "   "));
  EXPECT_THAT(pieces(" \n  x"), ElementsAre(" \n", " ", " x"));
  EXPECT_THAT(pieces("\u3000\u3000\u0378"), ElementsAre("\u3000", "\u3000", "\u0378"));
}

// tests/data/tokenizer/splits.txt: runs "first shape" of the oracle's pieces of a<c>a, see
// tools/generate_tokenizer_vectors.py.
TEST(PreTokenizer, CutsAroundEveryCodePointAsTheOracleDoes) {
  const auto file = read_file("tests/data/tokenizer/splits.txt");
  ASSERT_TRUE(file.ok()) << to_string(file.error());
  std::vector<std::pair<uint32_t, std::string>> runs;
  for (size_t begin = 0; begin < file->size();) {
    const size_t end = file->find('\n', begin), space = file->find(' ', begin);
    uint32_t first = 0;
    std::from_chars(file->data() + begin, file->data() + space, first, 16);
    runs.emplace_back(first, file->substr(space + 1, end - space - 1));
    begin = end + 1;
  }
  const PreTokenizer splitter(3);
  size_t run = 0;
  int64_t checked = 0;
  std::string text, shape;
  for (uint32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;  // no characters
    while (run + 1 < runs.size() && runs[run + 1].first <= c) ++run;
    text.assign(1, 'a');
    unicode::append_utf8(text, c);
    text += 'a';
    shape.clear();
    splitter.split(text, [&](std::string_view piece) {
      shape += char('0' + std::count_if(piece.begin(), piece.end(), [](char b) { return (b & 0xC0) != 0x80; }));
    });
    ASSERT_EQ(shape, runs[run].second) << std::hex << c;
    ++checked;
  }
  EXPECT_EQ(checked, 1'112'064);
}

}  // namespace
}  // namespace fathom
