// From tokens to deltas: the cases stream-* and tool-*, counting, attribution, call ids, errors.
#include "fathom/recipe/answer_reader.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "fathom/recipe/testing/read_answer.h"
#include "fathom/tokenizer/sample_tokenizer.h"

namespace fathom::recipe {
namespace {

using answers::ReadAnswer;
using testing::ElementsAre;
using testing::MatchesRegex;

/// Ids of the smallest tokenizer: every byte is a token, no special token of a prompt is one.
std::vector<int32_t> bytes(std::string_view text) {
  std::vector<int32_t> ids;
  for (const char c : text) ids.push_back(uint8_t(c) + 3);
  return ids;
}

const Tokenizer& tokenizer() {
  static const Tokenizer tokenizer = Tokenizer::parse(sample::tokenizer_json(), "sample").value();
  return tokenizer;
}

ReadAnswer read_tokens(const Parsing& parsing, const std::vector<std::vector<int32_t>>& chunks) {
  AnswerReader reader(parsing, &tokenizer(), 1);
  ReadAnswer answer;
  for (const auto& ids : chunks) {
    EXPECT_TRUE(reader.tokens(ids, {}).ok());
    answer.take(reader);
    if (reader.finished()) return answer;
  }
  EXPECT_TRUE(reader.finish(BackendFinish::stop).ok());
  answer.take(reader);
  return answer;
}

Parsing thinking(Policy policy = Policy::lenient) {
  Parsing parsing;
  parsing.policy = policy;
  parsing.stage = ThinkingStage::reasoning_start;
  return parsing;
}

// -- cases ------------------------------------------------------------------------------------------------------------

std::vector<std::string> cut(const std::string& text, const std::string& how) {
  size_t every = how == "whole" ? text.size() : 1;
  if (how.starts_with("every_")) every = size_t(std::stoi(how.substr(6)));
  std::vector<std::string> pieces;
  size_t in_piece = every;
  for (const char c : text) {
    const bool begins = (c & 0xC0) != 0x80;
    if (begins && (how == "at_each_angle_bracket" ? pieces.empty() || c == '<' || c == '>' : in_piece == every)) {
      pieces.emplace_back();
      in_piece = 0;
    }
    in_piece += begins ? 1 : 0;
    pieces.back() += c;
  }
  return pieces;
}

const char* word(FinishReason reason) {
  switch (reason) {
    case FinishReason::stop: return "stop";
    case FinishReason::length: return "length";
    case FinishReason::content_filter: return "content_filter";
    case FinishReason::tool_calls: return "tool_calls";
  }
  return "";
}

void expect_answer(const Json& expected, const ReadAnswer& answer, const std::string& text) {
  for (const auto& [key, want] : expected.fields) {
    SCOPED_TRACE(key);
    if (key == "content") {
      EXPECT_EQ(answer.content, want.text);
    } else if (key == "reasoning_content") {
      EXPECT_EQ(answer.reasoning, want.text);
    } else if (key == "finish_reason") {
      EXPECT_EQ(word(answer.reason), want.text);
    } else if (key == "content_equals_input") {
      EXPECT_EQ(answer.content, text);
    } else if (key == "arguments_text") {
      ASSERT_EQ(answer.calls.size(), 1u);
      EXPECT_EQ(answer.calls[0].arguments, want.text);
    } else if (key == "streamed_arguments_prefix") {
      ASSERT_EQ(answer.calls.size(), 1u);
      EXPECT_TRUE(answer.calls[0].arguments.starts_with(want.text)) << answer.calls[0].arguments;
    } else if (key == "tool_calls") {
      ASSERT_EQ(answer.calls.size(), want.items.size());
      for (size_t i = 0; i < answer.calls.size(); ++i) {
        EXPECT_EQ(answer.calls[i].name, want.items[i].find("name")->text);
        EXPECT_TRUE(answer.calls[i].complete);
        EXPECT_EQ(parse_json(answer.calls[i].arguments, "arguments").value(), *want.items[i].find("arguments"));
      }
    } else {
      ADD_FAILURE() << "nobody checks this";
    }
  }
}

/// One output, cut in all the ways that it names.
void run_output(const Json& input, const Json& expected) {
  Parsing parsing;
  parsing.tool_calls = !input.find("tools")->items.empty();
  if (input.find("thinking")->boolean) parsing.stage = ThinkingStage::reasoning_start;
  if (const Json* request = input.find("request")) {
    if (const Json* stop = request->find("stop")) {
      for (const Json& one : stop->items) parsing.stop_sequences.push_back(one.text);
    }
  }
  const auto finish = input.find("finish")->text == "length" ? BackendFinish::length : BackendFinish::stop;
  if (const Json* chunks = input.find("chunks")) {
    std::vector<std::string> pieces;
    for (const Json& chunk : chunks->items) pieces.push_back(chunk.text);
    return expect_answer(expected, answers::read(parsing, pieces, finish), "");
  }
  const std::string& text = input.find("text")->text;
  for (const Json& how : input.find("splits")->items) {
    SCOPED_TRACE(how.text);
    expect_answer(expected, answers::read(parsing, cut(text, how.text), finish), text);
  }
}

TEST(AnswerReaderCases, TheCasesOfStreamsAndToolCallsHold) {
  const std::string path = sample::shared("cases/cases.jsonl");
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there: set FATHOM_SHARED";
  std::set<std::string> ran;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const Json row = parse_json(line, path).value();
    const std::string id = row.find("id")->text;
    if (!id.starts_with("stream-") && !id.starts_with("tool-")) continue;
    if (id == "stream-01" || id == "stream-06" || id == "tool-09") continue;  // below; stream-06 is about events
    SCOPED_TRACE(id);
    const Json &input = *row.find("input"), &expected = *row.find("expected");
    if (const Json* outputs = input.find("outputs")) {
      for (size_t i = 0; i < outputs->items.size(); ++i) run_output(outputs->items[i], expected.items[i]);
    } else {
      run_output(input, expected);
    }
    ran.insert(id);
  }
  EXPECT_EQ(ran.size(), 13u);
}

TEST(AnswerReaderCases, Stream01ACharacterOfSeveralTokensIsNeverShownInParts) {
  const auto tokenizer = Tokenizer::open(sample::v4_tokenizer());
  if (!tokenizer) GTEST_SKIP() << sample::v4_tokenizer() << " is not there: run scripts/fetch-test-files";
  for (const Policy policy : {Policy::lenient, Policy::strict}) {
    Parsing parsing;
    parsing.policy = policy;
    AnswerReader reader(parsing, &*tokenizer, 1);
    ReadAnswer answer;
    for (const int32_t id : {633, 52780, 105, 46088, 74287, 225, 14452}) {
      ASSERT_TRUE(reader.tokens({{id}}, {}).ok());
      answer.take(reader);
    }
    ASSERT_TRUE(reader.finish(BackendFinish::stop).ok());
    answer.take(reader);
    EXPECT_EQ(answer.content, "ok 👩‍🚀 yes");
    for (const std::string& run : answer.runs) EXPECT_EQ(run.find("\uFFFD"), run.npos) << run;
    EXPECT_EQ(answer.usage.completion_tokens, 7);
  }
}

TEST(AnswerReaderCases, Tool09LongArgumentsArriveWhileTheyAreGenerated) {
  const std::string head =
      "<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n<｜DSML｜ parameter name=\"cmd\" string=\"true\">";
  AnswerReader reader({}, nullptr, 1);
  ASSERT_TRUE(reader.text(head, 20).ok());
  size_t sent = 0, arrived = 0, deltas = 0;
  for (; sent < 2000; sent += 4) {
    ASSERT_TRUE(reader.text("xxxx", 1).ok());
    for (const Delta& delta : reader.deltas()) arrived += delta.text.size(), ++deltas;
    EXPECT_LE(sent + 4 - arrived, 40u);
  }
  EXPECT_GE(deltas, 400u);
}

// -- tokens -----------------------------------------------------------------------------------------------------------

TEST(AnswerReaderTest, AnUnfinishedCharacterAtTheEndIsDroppedAndLenientKeepsWhatStoodBeforeIt) {
  auto ids = bytes("a\xF0\x9F");
  const auto lenient = read_tokens({}, {ids});
  EXPECT_EQ(lenient.content, "a");
  EXPECT_EQ(lenient.usage.completion_tokens, 3);  // D-13: every generated id
  Parsing strict;
  strict.policy = Policy::strict;
  const auto wheel = read_tokens(strict, {ids});
  EXPECT_EQ(wheel.content, "");  // the wheel withholds the chunk
  EXPECT_EQ(wheel.usage.completion_tokens, 0);
}

TEST(AnswerReaderTest, InvalidBytesAreReplacedAndUnknownIdsCountButSayNothing) {
  const auto answer =
      read_tokens({}, {bytes("a\xFF"), {1'000'000}, bytes("\xE4\xBD"), bytes("b\xF0\x9F\x98"), bytes("\x80")});
  EXPECT_EQ(answer.content, "a\uFFFD\uFFFDb😀");
  EXPECT_EQ(answer.usage.completion_tokens, 10);
}

TEST(AnswerReaderTest, TextThatIsCutInsideACharacterIsJoined) {
  for (const Policy policy : {Policy::lenient, Policy::strict}) {
    Parsing parsing;
    parsing.policy = policy;
    const auto answer = answers::read(parsing, {"a\xF0\x9F", "\x98",
                                                "\x80"
                                                "b",
                                                "\xE4"});
    EXPECT_EQ(answer.content, "a😀b");
  }
}

TEST(AnswerReaderTest, ReasoningTokensAreThoseWithAByteOfReasoning) {
  auto answer = read_tokens(thinking(), {bytes("\n\nab\n</think>\n\ncd")});
  EXPECT_EQ(answer.reasoning, "ab");
  EXPECT_EQ(answer.usage.reasoning_tokens, 2);
  EXPECT_EQ(answer.usage.completion_tokens, 17);
  EXPECT_TRUE(answer.usage.count_reasoning);
  answer = answers::read(thinking(), {"a", "b</think>", "</", "c"});  // D-13: text chunks too, one token each
  EXPECT_EQ(answer.usage.reasoning_tokens, 2);
  EXPECT_EQ(answer.usage.completion_tokens, 4);
  answer = answers::read(thinking(Policy::strict), {"ab"});
  EXPECT_FALSE(answer.usage.count_reasoning);
}

TEST(AnswerReaderTest, StrictCountsReasoningByEncodingItAgain) {
  // "hell" as four tokens; encoded again it is one (the smallest tokenizer merges it).
  const auto answer = read_tokens(thinking(Policy::strict), {bytes("h"), bytes("e"), bytes("l"), bytes("l")});
  EXPECT_EQ(answer.usage.reasoning_tokens, 1);
  EXPECT_EQ(answer.usage.completion_tokens, 4);
}

TEST(AnswerReaderTest, TokensBehindAStopSequenceAreNotCounted) {
  Parsing parsing;
  parsing.stop_sequences = {"never", "END"};
  AnswerReader reader(parsing, &tokenizer(), 1);
  ASSERT_TRUE(reader.tokens(bytes("a END of it"), {}).ok());
  ASSERT_TRUE(reader.finished());
  EXPECT_EQ(reader.end().stop_sequence, "END");
  EXPECT_EQ(reader.end().reason, FinishReason::stop);
  EXPECT_EQ(reader.usage().completion_tokens, 5);
}

std::vector<TokenLogprob> logprobs(const std::vector<int32_t>& ids) {
  std::vector<TokenLogprob> list;
  for (const int32_t id : ids) list.push_back({id, -float(id), {}});
  return list;
}
std::vector<int32_t> ids_of(const Delta& delta) {
  std::vector<int32_t> ids;
  for (const TokenLogprob& one : delta.logprobs) ids.push_back(one.id);
  return ids;
}

TEST(AnswerReaderTest, LogprobsStandAtTheDeltaThatHasTheirText) {
  AnswerReader reader(thinking(), &tokenizer(), 1);
  const auto ids = bytes("a</think>b<");
  ASSERT_TRUE(reader.tokens(ids, logprobs(ids)).ok());
  ASSERT_EQ(reader.deltas().size(), 1u);
  EXPECT_EQ(ids_of(reader.deltas()[0]), bytes("a"));
  const auto more = bytes("c");
  ASSERT_TRUE(reader.tokens(more, logprobs(more)).ok());
  ASSERT_EQ(reader.deltas().size(), 2u);
  EXPECT_EQ(ids_of(reader.deltas()[0]), bytes("b<"));
  EXPECT_EQ(ids_of(reader.deltas()[1]), bytes("c"));
}

// Found by comparing with deepseek-recipe: docs/recipe-findings.md, answers, log-probabilities.
TEST(AnswerReaderTest, StrictGivesAGroupWithSomeLogprobsNone) {
  const auto ids = bytes("\U0001F98A");
  ASSERT_GT(ids.size(), 1u);
  const std::vector<int32_t> first(ids.begin(), ids.begin() + 1), rest(ids.begin() + 1, ids.end());
  for (bool first_has_them : {true, false}) {
    AnswerReader reader(thinking(Policy::strict), &tokenizer(), 1);
    ASSERT_TRUE(reader.tokens(first, first_has_them ? logprobs(first) : logprobs({})).ok());
    EXPECT_FALSE(reader.fed());
    ASSERT_TRUE(reader.tokens(rest, first_has_them ? logprobs({}) : logprobs(rest)).ok());
    EXPECT_TRUE(reader.fed());
    ASSERT_EQ(reader.deltas().size(), 1u);
    EXPECT_EQ(ids_of(reader.deltas()[0]), std::vector<int32_t>{});
  }
}

TEST(AnswerReaderTest, CallIdsCountTellEmptyThinkingAndDifferBySeed) {
  const std::string text = "<｜DSML｜ calls><｜DSML｜ invoke name=\"f\"></｜DSML｜ invoke><｜DSML｜ invoke name=\"f\">";
  const auto ids = [&](const Parsing& parsing, const std::string& before, uint64_t seed) {
    AnswerReader reader(parsing, nullptr, seed);
    std::vector<std::string> found;
    EXPECT_TRUE(reader.text(before + text, 1).ok());
    for (const Delta& delta : reader.deltas()) {
      if (delta.kind == Delta::Kind::call) found.emplace_back(delta.id);
    }
    return found;
  };
  const auto plain = ids({}, "", 1);
  EXPECT_THAT(plain, ElementsAre(MatchesRegex("call_00_[A-Za-z0-9]{20}[0-9]{4}"),
                                 MatchesRegex("call_01_[A-Za-z0-9]{20}[0-9]{4}")));
  EXPECT_NE(plain[0].substr(8), plain[1].substr(8));
  EXPECT_NE(plain, ids({}, "", 2));
  EXPECT_THAT(ids(thinking(), "", 1)[0], MatchesRegex("call_00_ET_[A-Za-z0-9]{20}[0-9]{4}"));
  EXPECT_THAT(ids(thinking(), "hm</think>", 1)[0], MatchesRegex("call_00_[A-Za-z0-9]{24}"));
}

TEST(AnswerReaderTest, MistakesCloseTheReader) {
  AnswerReader without({}, nullptr, 1);
  EXPECT_EQ(without.tokens(bytes("a"), {}).error().message, "token chunk received without a tokenizer");
  EXPECT_EQ(without.text("a", 1).error().message, "stream processor is closed");
  AnswerReader mismatch({}, &tokenizer(), 1);
  EXPECT_EQ(mismatch.tokens(bytes("abcd"), logprobs(bytes("a"))).error().message,
            "invalid log probabilities: 1 log probabilities for 4 token IDs");
  EXPECT_EQ(mismatch.finish(BackendFinish::stop).error().message, "stream processor is closed");
  AnswerReader done({}, nullptr, 1);
  ASSERT_TRUE(done.finish(BackendFinish::length).ok());
  EXPECT_EQ(done.end().reason, FinishReason::length);
  EXPECT_EQ(done.text("a", 1).error().message, "stream processor has finished");
  done.close();
  EXPECT_FALSE(done.finished());
  EXPECT_EQ(done.finish(BackendFinish::stop).error().message, "stream processor is closed");
}

TEST(AnswerReaderProperty, LenientResultsAndCountsOfTokensDoNotDependOnTheCuts) {
  Dice dice(4, 400);
  for (int i = 0; i < 4'000; ++i) {
    const Parsing parsing = answers::random_parsing(dice, Policy::lenient);
    const std::string text = answers::random_output(dice);
    std::vector<std::vector<int32_t>> chunks;
    for (const std::string& piece : answers::random_cut(dice, text)) chunks.push_back(bytes(piece));
    const auto answer = read_tokens(parsing, chunks), whole = read_tokens(parsing, {bytes(text)});
    ASSERT_TRUE(answer.same_as(whole)) << text;
    ASSERT_TRUE(answer.same_as(answers::read(parsing, {text}))) << text;
    ASSERT_EQ(answer.usage.completion_tokens, whole.usage.completion_tokens) << text;
    ASSERT_EQ(answer.usage.reasoning_tokens, whole.usage.reasoning_tokens) << text;
    ASSERT_LE(answer.usage.reasoning_tokens, answer.usage.completion_tokens) << text;
    ASSERT_LE(answer.usage.completion_tokens, int64_t(text.size())) << text;
  }
}

}  // namespace
}  // namespace fathom::recipe
