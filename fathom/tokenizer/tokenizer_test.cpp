#include "fathom/tokenizer/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <set>
#include <thread>

#include "fathom/tokenizer/sample_tokenizer.h"
#include "fathom/tokenizer/utf8_stream.h"

namespace fathom {
namespace {

using testing::ElementsAre;
using Ids = std::vector<int32_t>;

Tokenizer opened(const std::string& path) {
  auto tokenizer = Tokenizer::open(path);
  EXPECT_TRUE(tokenizer.ok()) << to_string(tokenizer.error());
  return std::move(*tokenizer);
}

const Tokenizer& small() {
  static const Tokenizer tokenizer = *Tokenizer::parse(sample::tokenizer_json(), "sample");
  return tokenizer;
}

int32_t byte_id(char byte) { return uint8_t(byte) + 3; }

// ---- the published tokenizer -------------------------------------------------------------------------------------

class PublishedTokenizer : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(sample::v4_tokenizer())) {
      GTEST_SKIP() << sample::v4_tokenizer() << " is not there: run scripts/fetch-test-files";
    }
  }
  static const Tokenizer& v4() {
    static const Tokenizer tokenizer = opened(sample::v4_tokenizer());
    return tokenizer;
  }
  // The inputs of the case that tests/../cases name, or nothing where `shared` is absent.
  static Json case_named(std::string_view id) {
    const std::string path = sample::shared("cases/cases.jsonl");
    if (!std::filesystem::exists(path)) return {};
    for (Json& row : sample::json_lines(path)) {
      if (row.find("id")->text == id) return row;
    }
    return {};
  }
};

TEST_F(PublishedTokenizer, AgreesWithAllVectorsOfTheSpecification) {
  const std::string path = sample::shared("vectors/tokenizer.jsonl");
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there: set FATHOM_SHARED";
  int rows = 0;
  for (const Json& row : sample::json_lines(path)) {
    const Json* text = row.find("text");
    if (!text) continue;  // the first line describes the file
    ++rows;
    const Ids ids = sample::ids_of(*row.find("ids"));
    const Json* plain = row.find("ids_without_added_vocabulary");
    EXPECT_EQ(v4().encode(text->text), ids) << row.find("name")->text;
    EXPECT_EQ(v4().encode_plain(text->text), plain ? sample::ids_of(*plain) : ids) << row.find("name")->text;
    EXPECT_EQ(v4().decode(ids), text->text) << row.find("name")->text;
  }
  EXPECT_EQ(rows, 220);
}

TEST_F(PublishedTokenizer, AgreesOnRandomMixedScripts) {
  for (const Json& row : sample::json_lines("tests/data/tokenizer/v4.jsonl")) {
    const std::string& text = row.find("text")->text;
    const Json* plain = row.find("plain");
    EXPECT_EQ(v4().encode(text), sample::ids_of(*row.find("ids"))) << text;
    EXPECT_EQ(v4().encode_plain(text), sample::ids_of(*(plain ? plain : row.find("ids")))) << text;
    EXPECT_EQ(v4().decode(v4().encode(text)), text);
  }
}

TEST_F(PublishedTokenizer, HasTheIdsThatTheSpecificationLists) {
  EXPECT_EQ(v4().size(), 129280);
  EXPECT_EQ(v4().id_of("<｜User｜>"), 128803);
  EXPECT_EQ(v4().id_of("<｜Assistant｜>"), 128804);
  EXPECT_EQ(v4().id_of("<think>"), 128821);
  EXPECT_EQ(v4().id_of("｜DSML｜"), 128825);
  EXPECT_EQ(v4().id_of("<｜image｜>"), 129279);
  EXPECT_EQ(v4().id_of("Ġt"), 259);
  EXPECT_EQ(v4().id_of("<｜System｜>"), std::nullopt);
  EXPECT_EQ(v4().added_id_of("Ġt"), std::nullopt);
  EXPECT_EQ(v4().id_of("<dsml:"), 128840);
  EXPECT_EQ(v4().id_of("<｜/table>｜"), 129265);
  std::set<int32_t> special;
  for (int32_t id = 0; id < v4().size(); ++id) {
    EXPECT_TRUE(v4().is_known(id)) << id;
    if (v4().is_special(id)) special.insert(id);
  }
  // Besides these the file flags 1,215 place holders, which no model emits.
  for (const int32_t id :
       {0, 1, 2, 128846, 129262, 129263, 129271, 129272, 129273, 129274, 129275, 129276, 129277, 129278, 129279}) {
    EXPECT_EQ(special.erase(id), 1u) << id;
  }
  EXPECT_EQ(special.size(), 1215u);
  for (const int32_t id : special) EXPECT_THAT(v4().spelling_of(id), testing::ContainsRegex("place.*holder"));
}

TEST_F(PublishedTokenizer, Tok01DigitsAreGroupedByThree) {
  EXPECT_THAT(v4().encode("rfid501.go"), ElementsAre(35305, 329, 19097, 68082));
  EXPECT_THAT(v4().encode("1234567"), ElementsAre(6895, 18009, 25));
}

TEST_F(PublishedTokenizer, Tok02RunsOfBlanksAndLineBreaks) {
  EXPECT_THAT(v4().encode("a  b   c\n\n  d"), ElementsAre(67, 223, 291, 262, 274, 271, 223, 283));
  EXPECT_THAT(v4().encode("  \t\n"), ElementsAre(262, 7028));
}

TEST_F(PublishedTokenizer, Tok03BytesOfPartialTokensInLogprobs) {
  EXPECT_EQ(v4().bytes_of(25730), "\xf0\x9f\x91");
  EXPECT_EQ(v4().token_text(25730), "\\xf0\\x9f\\x91");
  EXPECT_EQ(v4().bytes_of(105), "\xa9");
  EXPECT_EQ(v4().token_text(105), "\\xa9");
  EXPECT_EQ(v4().token_text(90), "x");
  Utf8Stream stream;
  EXPECT_EQ(stream.push(v4().bytes_of(25730)), "");
  EXPECT_EQ(stream.push(v4().bytes_of(105)), "👩");
}

TEST_F(PublishedTokenizer, Tok04AlternativesWithTheSameTextAreNotMerged) {
  // Decoded alone, 25730, 105 and 225 are all U+FFFD; as tokens of a list of alternatives they differ.
  EXPECT_EQ(v4().decode(Ids{25730}), v4().decode(Ids{105}));
  for (const Ids& alternatives : {Ids{25730, 52780, 90}, Ids{105, 225, 90}}) {
    std::set<std::string> texts;
    for (const int32_t id : alternatives) texts.insert(v4().token_text(id));
    EXPECT_EQ(texts.size(), alternatives.size());
  }
}

TEST_F(PublishedTokenizer, TheCasesAreThoseOfTheCollection) {
  const Json tok01 = case_named("tok-01"), tok02 = case_named("tok-02");
  if (tok01.is_null()) GTEST_SKIP() << sample::shared("cases/cases.jsonl") << " is not there: set FATHOM_SHARED";
  for (const Json& row : {tok01, tok02}) {
    const auto& texts = row.find("input")->find("texts")->items;
    const auto& ids = row.find("expected")->find("token_ids")->items;
    for (size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(v4().encode(texts[i].text), sample::ids_of(ids[i]));
  }
}

TEST_F(PublishedTokenizer, EveryTokenHasItsOwnSpellingAndIsFoundByIt) {
  for (int32_t id = 0; id < v4().size(); ++id) EXPECT_EQ(v4().id_of(v4().spelling_of(id)), id);
}

TEST_F(PublishedTokenizer, SegmentBordersOfAPromptArePieceBorders) {
  // "\n\n<" in front of a DSML marker is encoded as its own segment (spec/tokenizer.md 5).
  const std::string text = "x\n\n<｜DSML｜ calls>";
  const int64_t at = int64_t(text.find("｜DSML｜"));
  const std::vector<SpecialRange> ranges{{at, at + int64_t(std::string_view("｜DSML｜").size())}};
  Ids want = v4().encode_plain("x\n\n<");
  want.push_back(128825);
  for (const int32_t id : v4().encode_plain(" calls>")) want.push_back(id);
  EXPECT_EQ(*v4().encode(text, ranges), want);
}

// ---- the miniature -----------------------------------------------------------------------------------------------

TEST(MiniTokenizer, AgreesWithItsVectors) {
  if (!std::filesystem::exists(sample::mini_tokenizer())) GTEST_SKIP() << sample::mini_tokenizer() << " is not there";
  const Tokenizer mini = opened(sample::mini_tokenizer());
  EXPECT_EQ(mini.size(), 2880);
  for (const Json& row : sample::json_lines("tests/data/tokenizer/mini.jsonl")) {
    const std::string& text = row.find("text")->text;
    const Json* plain = row.find("plain");
    EXPECT_EQ(mini.encode(text), sample::ids_of(*row.find("ids"))) << text;
    EXPECT_EQ(mini.encode_plain(text), sample::ids_of(*(plain ? plain : row.find("ids")))) << text;
    EXPECT_EQ(mini.decode(mini.encode(text)), text);
  }
}

TEST(MiniTokenizer, AgreesWithThePromptIdsOfItsEvaluation) {
  const std::string path = sample::shared("mini/eval.jsonl");
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there: set FATHOM_SHARED";
  const Tokenizer mini = opened(sample::mini_tokenizer());
  for (const Json& row : sample::json_lines(path)) {
    EXPECT_EQ(mini.encode(row.find("prompt")->text), sample::ids_of(*row.find("prompt_ids")));
  }
}

// ---- what needs no file ------------------------------------------------------------------------------------------

TEST(Tokenizer, JoinsByRankNotByLength) {
  EXPECT_THAT(small().encode("hello"), ElementsAre(261, byte_id('o')));
  EXPECT_THAT(small().encode("aaaaaaa"), ElementsAre(263, 262, byte_id('a')));
  EXPECT_THAT(small().encode(""), ElementsAre());
}

TEST(Tokenizer, TakesTheLongestAddedTokenAnywhere) {
  EXPECT_THAT(small().encode("he<think>>he<think>"), ElementsAre(259, 265, 259, 264));
  EXPECT_THAT(small().encode("a<think"), testing::SizeIs(7));
  EXPECT_THAT(small().encode("<think>").size(), 1u);
  EXPECT_THAT(small().encode_plain("<think>").size(), 7u);
}

TEST(Tokenizer, TokensFlaggedNormalizedAreSoughtInWhatTheOthersLeave) {
  std::string json = sample::tokenizer_json();
  const std::string_view flag = R"("normalized":false)";
  json.replace(json.find(flag, json.find("<think>>")), flag.size(), R"("normalized":true)");
  const Tokenizer tokenizer = *Tokenizer::parse(json, "sample");
  EXPECT_THAT(tokenizer.encode("<think>>"), ElementsAre(264, byte_id('>')));  // as tokenizers 0.23.3 does
}

TEST(Tokenizer, APromptHoldsOnlyTheSpecialTokensOfItsRanges) {
  const std::string text = "<think>he<think>";
  const std::vector<SpecialRange> ranges{{0, 7}};
  Ids want{264, 259};
  for (const int32_t id : small().encode_plain("<think>")) want.push_back(id);
  EXPECT_EQ(*small().encode(text, ranges), want);
  EXPECT_EQ(*small().encode(text, {}), small().encode_plain(text));
}

TEST(Tokenizer, APromptRangeMustBeAnAddedToken) {
  const auto got = small().encode("<｜System｜>x", std::vector<SpecialRange>{{0, 14}});
  ASSERT_FALSE(got.ok());
  EXPECT_EQ(got.error().message, "special token \"<｜System｜>\" is not in the added vocabulary");
  EXPECT_FALSE(small().encode("he", std::vector<SpecialRange>{{0, 2}}).ok()) << "a base token is none";
  EXPECT_FALSE(small().encode("he", std::vector<SpecialRange>{{1, 1}}).ok()) << "an empty range is none";
}

TEST(Tokenizer, PromptRangesMustFitTheText) {
  const std::string text = "<think><think>";
  for (const std::vector<SpecialRange>& ranges : std::vector<std::vector<SpecialRange>>{
           {{0, 15}}, {{-1, 7}}, {{7, 0}}, {{7, 14}, {0, 7}}, {{0, 7}, {6, 14}}, {{INT64_MAX, INT64_MAX}}}) {
    const auto got = small().encode(text, ranges);
    ASSERT_FALSE(got.ok());
    EXPECT_EQ(got.error().code, ErrorCode::out_of_range);
  }
  EXPECT_THAT(*small().encode(text, std::vector<SpecialRange>{{0, 7}, {7, 14}}), ElementsAre(264, 264));
}

TEST(Tokenizer, IllFormedInputIsReadAsReplacementCharacters) {
  EXPECT_EQ(small().encode("a\xff"
                           "b"),
            small().encode("a\uFFFDb"));
  // A cut-off character is one replacement, an over-long form one a byte, a surrogate one a byte.
  EXPECT_EQ(small().encode("\xf0\x9f\x91"), small().encode("\uFFFD"));
  EXPECT_EQ(small().encode("\xc0\xaf"), small().encode("\uFFFD\uFFFD"));
  EXPECT_EQ(small().encode_plain("\xed\xa0\x80"), small().encode_plain("\uFFFD\uFFFD\uFFFD"));
  EXPECT_EQ(*small().encode("\xff<think>", std::vector<SpecialRange>{{1, 8}}),
            *small().encode("\uFFFD<think>", std::vector<SpecialRange>{{3, 10}}));
  EXPECT_EQ(valid_utf8_prefix("a\xff"), 1u);
}

TEST(Tokenizer, DecodingReplacesWhatIsNoText) {
  EXPECT_EQ(small().decode(Ids{byte_id('\xff'), byte_id('a'), byte_id('\xe4'), byte_id('\xb8')}), "\uFFFDa\uFFFD");
  EXPECT_EQ(small().decode(Ids{byte_id('\xe4'), byte_id('\xb8'), byte_id('\xad')}), "中");
}

TEST(Tokenizer, UnknownIdsDecodeToNothing) {
  EXPECT_EQ(small().decode(Ids{-1, 259, 266, INT32_MAX, INT32_MIN}), "he");
  EXPECT_EQ(small().bytes_of(266), "");
  EXPECT_EQ(small().token_text(-1), "");
  EXPECT_EQ(small().spelling_of(266), "");
  EXPECT_FALSE(small().is_known(-1));
  EXPECT_FALSE(small().is_special(INT32_MAX));
}

TEST(Tokenizer, ASkipSpecialDecodeKeepsThinkingTokens) {
  const Ids ids{Tokenizer::kBegin, 264, 259, Tokenizer::kEnd};
  EXPECT_EQ(small().decode(ids), "<｜begin▁of▁sentence｜><think>he<｜end▁of▁sentence｜>");
  EXPECT_EQ(small().decode(ids, SpecialTokens::skip), "<think>he");
}

TEST(Tokenizer, SpellingsAreThoseOfTheFile) {
  EXPECT_EQ(small().spelling_of(byte_id(' ')), "Ġ");
  EXPECT_EQ(small().id_of("Ġ"), byte_id(' '));
  EXPECT_EQ(small().id_of("hell"), 261);
  EXPECT_EQ(small().id_of("<think>"), 264);
  EXPECT_EQ(small().id_of("nowhere"), std::nullopt);
  EXPECT_EQ(small().id_of("\xff"), std::nullopt);
  EXPECT_EQ(small().id_of("中"), std::nullopt);
}

TEST(Tokenizer, MovesWithItsTables) {
  Tokenizer first = *Tokenizer::parse(sample::tokenizer_json(), "sample");
  const std::string_view bytes = first.bytes_of(261);
  const Tokenizer second = std::move(first);
  EXPECT_EQ(second.bytes_of(261).data(), bytes.data());
  EXPECT_THAT(second.encode("hell"), ElementsAre(261));
}

TEST(Tokenizer, OpeningNamesTheFileThatIsMissing) {
  const auto none = Tokenizer::open("no/such/tokenizer.json");
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, ErrorCode::not_found);
  EXPECT_THAT(to_string(none.error()), testing::HasSubstr("no/such/tokenizer.json"));
}

TEST(Tokenizer, ThreadsShareOne) {
  // Few distinct words in every thread, so that all of them meet in the same places of the piece cache.
  std::vector<std::string> texts;
  std::vector<Ids> want;
  const Tokenizer alone = *Tokenizer::parse(sample::tokenizer_json(), "sample");
  for (int t = 0; t < 50; ++t) {
    std::string text;
    for (int i = 0; i < 40; ++i) text += " he" + std::string(size_t(i * t % 17), 'a') + std::to_string(t);
    want.push_back(alone.encode(text));
    texts.push_back(std::move(text));
  }
  const Tokenizer shared = *Tokenizer::parse(sample::tokenizer_json(), "sample");
  std::vector<std::thread> threads;
  for (size_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (size_t i = 0; i < 200; ++i) {
        const size_t at = (i * 7 + thread * 13) % texts.size();
        EXPECT_EQ(shared.encode(texts[at]), want[at]);
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

// ---- time --------------------------------------------------------------------------------------------------------

double seconds_of_this_thread() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return double(now.tv_sec) + 1e-9 * double(now.tv_nsec);
}

double seconds_to_encode(const Tokenizer& tokenizer, std::string_view text) {
  const double begin = seconds_of_this_thread();
  EXPECT_FALSE(tokenizer.encode(text).empty());
  return seconds_of_this_thread() - begin;
}

// 1 MB of one unit must not take much more than 16 times as long as 64 KB. A quadratic step would take 256 times as
// long; the bound of 64 leaves a factor of 4 for caches, the queue's logarithm and a busy machine. The work itself is
// counted in byte_pair_encoder_test.
class HostileText : public testing::TestWithParam<std::string_view> {};

TEST_P(HostileText, TakesLinearTime) {
  static const std::string path =
      std::filesystem::exists(sample::v4_tokenizer()) ? sample::v4_tokenizer() : sample::mini_tokenizer();
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there";
  static const Tokenizer tokenizer = opened(path);
  std::string text;
  while (text.size() < 65536) text += GetParam();
  // 50 us: less is within what a cold cache adds.
  double few = std::max(50e-6, seconds_to_encode(tokenizer, text));
  std::string longer;
  for (int i = 0; i < 16; ++i) longer += text;
  EXPECT_LT(seconds_to_encode(tokenizer, longer), 64 * few);
}

// One letter, blanks, breaks, marks, digits, CJK, symbols, unassigned characters; beginnings of added tokens; what
// leaves a character to the next piece; ill-formed bytes.
INSTANTIATE_TEST_SUITE_P(Units, HostileText,
                         testing::Values("a", " ", "\n", "\t", "\u0301", "1", "=", "哈", "・", "\u3040", "\u0378", "<",
                                         "<think", "<｜place▁holder▁no▁", " \n", "a1", " a", "  =", "e\u0301\u0378",
                                         "aab", "\u00a0", "=\n", "中a", "👩", "\xff", "\xf0\x9f"),
                         [](const auto& info) { return std::to_string(info.index); });

}  // namespace
}  // namespace fathom
