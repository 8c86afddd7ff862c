#include "fathom/tokenizer/compressed_vocabulary.h"

#include <gtest/gtest.h>

#include "fathom/tokenizer/sample_tokenizer.h"
#include "fathom/tokenizer/unicode/fold.h"

namespace fathom {
namespace {

CompressedVocabulary compressed(const std::string& path) {
  const auto tokenizer = Tokenizer::open(path);
  EXPECT_TRUE(tokenizer.ok()) << to_string(tokenizer.error());
  return *compress_vocabulary(*tokenizer);
}

void expect_map(const CompressedVocabulary& got, const std::string& path) {
  const auto rows = sample::json_lines(path);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(got.map, sample::ids_of(*rows[0].find("map")));
  EXPECT_EQ(got.size, rows[0].find("size")->as_int64());
}

TEST(CompressedVocabulary, OfTheMiniatureIsTheGoldenMap) {
  const std::string golden = sample::shared("golden/mini/engram_token_map.json");
  if (!std::filesystem::exists(golden)) GTEST_SKIP() << golden << " is not there: set FATHOM_SHARED";
  expect_map(compressed(sample::mini_tokenizer()), golden);
}

TEST(CompressedVocabulary, OfTheTinyCheckpointIsTheGoldenMap) {
  const std::string golden = sample::shared("golden/tiny/engram_token_map.json");
  if (!std::filesystem::exists(golden)) GTEST_SKIP() << golden << " is not there: set FATHOM_SHARED";
  expect_map(compressed(sample::shared("golden/tiny/tokenizer.json")), golden);
}

TEST(CompressedVocabulary, OfThePublishedTokenizerHasTheSizeOfTheModelConfiguration) {
  if (!std::filesystem::exists(sample::v4_tokenizer())) {
    GTEST_SKIP() << sample::v4_tokenizer() << " is not there: run scripts/fetch-test-files";
  }
  const auto v4 = Tokenizer::open(sample::v4_tokenizer());
  ASSERT_TRUE(v4.ok()) << to_string(v4.error());
  const auto got = compress_vocabulary(*v4);
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->map.size(), 129280u);
  EXPECT_EQ(got->size, 99092);
  for (int32_t id = 0; id < 8; ++id) EXPECT_EQ(got->map[size_t(id)], id);
  int broken = 0;
  for (int32_t id = 0; id < v4->size(); ++id)
    broken += v4->decode(std::span(&id, 1)).find("\uFFFD") != std::string::npos;
  EXPECT_EQ(broken, 1484);
}

// tests/data/tokenizer/fold.jsonl: random strings through the package's normalizers.
TEST(CompressedVocabulary, KeysAreThoseOfTheOracle) {
  for (const Json& row : sample::json_lines("tests/data/tokenizer/fold.jsonl")) {
    const std::string& text = row.find("text")->text;
    EXPECT_EQ(unicode::fold(text), row.find("folded")->text) << text;
    EXPECT_EQ(compression_key(text), row.find("key")->text) << text;
  }
}

TEST(CompressedVocabulary, LookAlikesShareAKey) {
  EXPECT_EQ(compression_key(" Hello"), compression_key("hello\n"));
  EXPECT_EQ(compression_key("\u00c9"), "e");
  EXPECT_EQ(compression_key("\ufb01"), "fi");
  EXPECT_EQ(compression_key("\uff21"), "a");
  EXPECT_EQ(compression_key("\uac01"), "\u1100\u1161\u11a8");
}

TEST(CompressedVocabulary, BlankTokensStayOneSpace) {
  for (const std::string_view blank : {" ", "    ", "\n", "\r\n\t", "\u00a0", "\u3000"}) {
    EXPECT_EQ(compression_key(blank), " ") << Json::of(blank).text;
  }
  // A line separator is white space for the strip, but no blank run: nothing is left, so the text stands for itself.
  EXPECT_EQ(compression_key("\u2028"), "\u2028");
  EXPECT_EQ(compression_key("\u0301"), "\u0301");
  EXPECT_EQ(compression_key(""), "");
}

TEST(CompressedVocabulary, AnUnusedIdIsAnError) {
  std::string json = sample::tokenizer_json();
  json.replace(json.find("\"id\":265"), 8, "\"id\":300");
  const auto got = compress_vocabulary(*Tokenizer::parse(json, "sample"));
  ASSERT_FALSE(got.ok());
  EXPECT_EQ(got.error().message, "token id 265 is not used");
}

}  // namespace
}  // namespace fathom
