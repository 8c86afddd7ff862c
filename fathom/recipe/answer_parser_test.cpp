// The reading of outputs: strict to the single delta (vectors), lenient by its rules D-10 to D-14
// (spec/codec-policy.md) and by properties over random outputs. Whole streams with events: answer_stream_vectors_test.
#include "fathom/recipe/answer_parser.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "fathom/recipe/testing/read_answer.h"

namespace fathom::recipe {
namespace {

using answers::read;
using testing::ElementsAre;

std::string call(const std::string& parameters, const char* name = "f") {
  return "<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"" + std::string(name) + "\">\n" + parameters +
         "</｜DSML｜ invoke>\n</｜DSML｜ calls>";
}
std::string parameter(const std::string& attributes, const std::string& value) {
  return "<｜DSML｜ parameter " + attributes + ">" + value + "</｜DSML｜ parameter>\n";
}
std::string arguments(const std::string& parameters, Policy policy = Policy::lenient) {
  Parsing parsing;
  parsing.policy = policy;
  const auto answer = read(parsing, {call(parameters)});
  return answer.calls.size() == 1 ? answer.calls[0].arguments : std::to_string(answer.calls.size()) + " calls";
}
std::vector<std::string> characters(const std::string& text) {
  std::vector<std::string> pieces;
  for (const char c : text) {
    if ((c & 0xC0) != 0x80) pieces.emplace_back();
    pieces.back() += c;
  }
  return pieces;
}

// -- strict -----------------------------------------------------------------------------------------------------------

std::vector<std::string> deltas(const Parsing& parsing, const std::vector<std::string>& pieces) {
  AnswerParser parser(parsing);
  std::vector<std::string> out;
  const auto note = [&] {
    for (const auto& run : parser.runs()) {
      std::string channel;
      switch (run.kind) {
        case Delta::Kind::reasoning: channel = "reasoning"; break;
        case Delta::Kind::content: channel = "content"; break;
        case Delta::Kind::call: channel = "name" + std::to_string(run.call); break;
        case Delta::Kind::arguments: channel = "args" + std::to_string(run.call); break;
        default: continue;
      }
      out.push_back(channel + " " + std::string(parser.text(run)));
    }
  };
  for (const std::string& piece : pieces) {
    parser.push(piece);
    note();
    if (parser.stopped()) break;
  }
  parser.finish();
  if (parser.stop_sequence() < 0) note();
  const bool calls = parser.calls_announced() > 0 && parser.stop_sequence() < 0;
  out.push_back(calls ? "finish tool_calls" : "finish stop");
  return out;
}

std::vector<std::string> pairs(const Json& list) {
  std::vector<std::string> out;
  for (const Json& pair : list.items) out.push_back(pair.items.at(0).text + " " + pair.items.at(1).text);
  return out;
}

TEST(AnswerParserTest, StrictGivesTheDeltasOfTheWheelForEveryCutInTwo) {
  const char* shared = std::getenv("FATHOM_SHARED");
  const std::string path = std::string(shared ? shared : "../shared") + "/vectors/recipe/stream_splits.jsonl";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there: set FATHOM_SHARED";
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const Json row = parse_json(line, path).value();
    SCOPED_TRACE(row.find("name")->text);
    const Json& request = *row.find("request");
    Parsing parsing;
    parsing.policy = Policy::strict;
    parsing.stage = ThinkingStage::reasoning_start;
    parsing.tool_calls = request.find("tools") != nullptr;
    parsing.json_output = request.find("response_format") != nullptr;
    if (const Json* stop = request.find("stop")) {
      for (const Json& one : stop->items) parsing.stop_sequences.push_back(one.text);
    }
    const std::string& text = row.find("text")->text;
    const auto pieces = characters(text);
    const Json& expect = *row.find("expect");
    EXPECT_EQ(deltas(parsing, {text}), pairs(*expect.find("whole_deltas")));
    EXPECT_EQ(deltas(parsing, pieces), pairs(*expect.find("char_deltas")));
    for (const Json& split : expect.find("per_split")->items) {
      std::string first, second;
      const auto at = size_t(*split.find("split")->as_int64());
      for (size_t i = 0; i < pieces.size(); ++i) (i < at ? first : second) += pieces[i];
      EXPECT_EQ(deltas(parsing, {first, second}), pairs(*split.find("deltas"))) << at;
    }
  }
}

TEST(AnswerParserTest, StrictPassesTheQuirksOn) {
  EXPECT_EQ(arguments(parameter(R"(name="q k" string="true")", "v"), Policy::strict), R"({"q: "v"})");
  EXPECT_EQ(arguments(parameter(R"(name="k" string="false")", "5x"), Policy::strict), R"({"k": 5x})");
  Parsing parsing;
  parsing.policy = Policy::strict;
  EXPECT_THAT(deltas(parsing, {"", "a<", "", "/", "b"}),
              ElementsAre("content ", "content a<", "content ", "content /", "content b", "finish stop"));
  EXPECT_THAT(deltas(parsing, {"<\n<｜DSML｜x"}), ElementsAre("content <\n", "finish stop"));
}

TEST(AnswerParserTest, AMarkerThatATokenizerSpeltLetterByLetterIsText) {
  Parsing parsing;
  parsing.policy = Policy::strict;
  parsing.stage = ThinkingStage::reasoning_start;
  AnswerParser parser(parsing);
  parser.push("a</think>b", Spelling::ordinary);
  ASSERT_EQ(parser.runs().size(), 1u);
  EXPECT_EQ(parser.text(parser.runs()[0]), "a</think>b");
  parser.push("</think>", Spelling::special);
  EXPECT_TRUE(parser.runs().empty());
  parser.push("c", Spelling::ordinary);
  ASSERT_EQ(parser.runs().size(), 1u);
  EXPECT_EQ(parser.runs()[0].kind, Delta::Kind::content);
}

TEST(AnswerParserTest, RunsSayWhichBytesTheyStandFor) {
  Parsing parsing;
  parsing.stage = ThinkingStage::reasoning_start;
  AnswerParser parser(parsing);
  parser.push("ab</think>\ncd");
  ASSERT_EQ(parser.runs().size(), 2u);
  EXPECT_EQ(parser.runs()[0].input_begin, 0);
  EXPECT_EQ(parser.runs()[0].input_end, 2);
  EXPECT_EQ(parser.runs()[1].input_begin, 11);
  EXPECT_EQ(parser.runs()[1].input_end, 13);
  parser.push("e<");
  EXPECT_TRUE(parser.runs().empty());
  EXPECT_EQ(parser.settled(), 13);
  parser.push("f");
  ASSERT_EQ(parser.runs().size(), 2u);
  EXPECT_EQ(parser.text(parser.runs()[0]), "e<");
  EXPECT_EQ(parser.settled(), 16);
}

// -- lenient ----------------------------------------------------------------------------------------------------------

TEST(AnswerParserTest, D10ARawValueIsJsonOrBecomesAString) {
  const auto raw = [](const std::string& value) { return arguments(parameter(R"(name="k" string="false")", value)); };
  for (const char* json : {"5", "1.0", "12345678901234567890123", R"({"a":[1]})", " null ", "\"x\"", "true"}) {
    EXPECT_EQ(raw(json), std::string(R"({"k": )") + json + "}");
  }
  for (const char* text : {"NaN", "5x", "{oops", "'a'", "01", "[1,]"}) {
    EXPECT_EQ(raw(text), std::string(R"({"k": ")") + text + "\"}");
  }
  EXPECT_EQ(raw(""), R"({"k": ""})");
  EXPECT_EQ(raw("a\n\"b\""), R"({"k": "a\n\"b\""})");
}

TEST(AnswerParserTest, D11AttributesStandInAnyOrderAndOthersAreIgnored) {
  EXPECT_EQ(arguments(parameter(R"(string="false" name="k")", "5")), R"({"k": 5})");
  EXPECT_EQ(arguments(parameter(R"(id="1"  name="k" type="s" string="true" /)", "5")), R"({"k": "5"})");
  EXPECT_EQ(arguments(parameter("name=\"k\"\n\tstring=\"false\"", "5")), R"({"k": 5})");
  EXPECT_EQ(arguments(parameter(R"(name="k")", "5")), R"({"k": "5"})");
  EXPECT_EQ(arguments(parameter(R"(name="k" string="maybe")", "5")), R"({"k": "5"})");
  EXPECT_EQ(arguments(parameter(R"(name="k" string="false" name="other" string="true")", "5")), R"({"k": 5})");
  EXPECT_EQ(arguments(parameter("name=k string=false", "5")), R"({"k": 5})");
  EXPECT_EQ(arguments(parameter(R"(x y=1 name="k")", "v")), R"({"k": "v"})");
}

TEST(AnswerParserTest, D11AQuotedValueEndsAtAQuoteThatAnEndFollows) {
  EXPECT_EQ(arguments(parameter(R"(name="a"b" string="true")", "v")), R"({"a\"b": "v"})");
  EXPECT_EQ(arguments(parameter(R"(name="q k" string="true")", "v")), R"({"q k": "v"})");
  EXPECT_EQ(arguments(parameter("name=\"q\n\" string=\"true\"", "v")), R"({"q\n": "v"})");
  EXPECT_EQ(arguments(parameter(R"(name="k\" string="true")", "v")), R"({"k\\": "v"})");
  EXPECT_EQ(arguments(parameter(R"(name="""/>)", "v")), R"({"\"": ">v"})");
}

TEST(AnswerParserTest, D11AnInvokeMayHaveOtherAttributesAndNoWrapper) {
  for (const std::string text :
       {"<｜DSML｜ invoke id=\"1\" name=\"f\" >\n</｜DSML｜ invoke>", "<｜DSML｜invoke name=\"f\">\n</｜DSML｜invoke>",
        "<｜DSML｜tool_calls>\n<｜DSML｜invoke\nname=\"f\">\n</｜DSML｜invoke>"}) {
    const auto answer = read({}, {text});
    ASSERT_EQ(answer.calls.size(), 1u) << text;
    EXPECT_EQ(answer.calls[0].name, "f");
    EXPECT_EQ(answer.calls[0].arguments, "{}");
    EXPECT_EQ(answer.content, "");
  }
}

TEST(AnswerParserTest, D11AnInvokeWithoutANameIsDroppedUpToItsClose) {
  const auto answer =
      read({}, {"<｜DSML｜ calls>\n<｜DSML｜ invoke>\n" + parameter(R"(name="k")", "v") +
                "</｜DSML｜ invoke>\n<｜DSML｜ invoke name=\"g\">\n</｜DSML｜ invoke>\n</｜DSML｜ calls>"});
  ASSERT_EQ(answer.calls.size(), 1u);
  EXPECT_EQ(answer.calls[0].name, "g");
}

TEST(AnswerParserTest, D11AParameterWithoutANameIsDroppedAndDoesNotCloseTheCall) {
  EXPECT_EQ(arguments(parameter(R"(string="true")", "v") + parameter(R"(name="k")", "w")), R"({"k": "w"})");
}

TEST(AnswerParserTest, D12ACallThatTheOutputCutsOffIsCompletedOrDropped) {
  Parsing parsing;
  parsing.required_parameters["f"] = {"k"};
  parsing.starts_in_tool_calls = true;
  const std::string k = parameter(R"(name="k" string="true")", "v"), n = parameter(R"(name="n" string="false")", "1");
  const std::string head = "<｜DSML｜ invoke name=\"f\">\n";
  const std::vector<std::pair<std::string, bool>> rows = {
      {head, false},                                // no parameter
      {head + n, false},                            // a required one is missing
      {head + k, true},                             //
      {head + n + k, true},                         //
      {head + k + "</｜DSM", true},                 // half a closing tag
      {head + k + "<｜DSML｜ parameter na", true},  // a tag without a name yet
      {head + k + "<｜DSML｜ parameter name=\"", false},
      {head + k + "<｜DSML｜ parameter name=\"n\" string=\"f", false},
      {head + k + "<｜DSML｜ parameter name=\"n\" string=\"false\">1", false},
      {head + k + "</｜DSML｜ invoke", true},  // closed
  };
  for (const auto& [text, complete] : rows) {
    for (const auto reason : {BackendFinish::stop, BackendFinish::length}) {
      const auto answer = read(parsing, {text}, reason);
      ASSERT_EQ(answer.calls.size(), 1u) << text;
      EXPECT_EQ(answer.calls[0].complete, complete) << text;
      EXPECT_EQ(answer.calls[0].dropped, !complete) << text;
      EXPECT_EQ(answer.reason, reason == BackendFinish::length ? FinishReason::length
                               : complete                      ? FinishReason::tool_calls
                                                               : FinishReason::stop);
      EXPECT_TRUE(!complete || parse_json(answer.calls[0].arguments, "").ok()) << answer.calls[0].arguments;
    }
  }
  EXPECT_EQ(read({}, {"<｜DSML｜ invoke name=\"other\">\n" + n}).calls[0].arguments, R"({"n": 1})");
}

TEST(AnswerParserTest, D14NothingIsEmittedForEmptyChunksAndAroundJson) {
  EXPECT_TRUE(read({}, {"", "", ""}).runs.empty());
  Parsing parsing;
  parsing.json_output = true;
  EXPECT_EQ(read(parsing, {"so ```json\n{\"a\":1}\n``` end"}).content, "{\"a\":1}");
  EXPECT_EQ(read(parsing, {"so ", "[1", "]"}).content, "[1]");
  EXPECT_EQ(read(parsing, {"none"}).content, "");
}

// -- properties -------------------------------------------------------------------------------------------------------

TEST(AnswerParserProperty, LenientResultsDoNotDependOnTheCuts) {
  Dice dice(1, 400);
  for (int i = 0; i < 8'000; ++i) {
    const Parsing parsing = answers::random_parsing(dice, Policy::lenient);
    const std::string text = answers::random_output(dice);
    const auto whole = read(parsing, {text});
    for (int cut = 0; cut < 3; ++cut) {
      const auto other = read(parsing, answers::random_cut(dice, text));
      ASSERT_TRUE(whole.same_as(other)) << i << ": " << text << "\ncontent " << whole.content << "\n     or "
                                        << other.content;
    }
  }
}

TEST(AnswerParserProperty, LenientArgumentsOfWholeCallsAreJsonObjectsAndMarkupIsNeverShown) {
  Dice dice(2, 400);
  int complete = 0, dropped = 0;
  for (int i = 0; i < 8'000; ++i) {
    const Parsing parsing = answers::random_parsing(dice, Policy::lenient);
    const std::string text = answers::random_output(dice);
    const auto answer = read(parsing, {text});
    for (size_t n = 0; n < answer.calls.size(); ++n) {
      const auto& call = answer.calls[n];
      ASSERT_NE(call.complete, call.dropped) << text;
      ASSERT_TRUE(call.complete || n + 1 == answer.calls.size()) << text;
      call.complete ? ++complete : ++dropped;
      if (!call.complete) continue;
      const auto parsed = parse_json(call.arguments, "");
      ASSERT_TRUE(parsed.ok() && parsed->is_object()) << text << "\n" << call.arguments;
    }
    if (parsing.tool_calls && !parsing.json_output) {
      for (const std::string& run : answer.runs) ASSERT_EQ(run.find("<｜DSML｜"), run.npos) << text;
    }
    ASSERT_LE(answer.usage.reasoning_tokens, answer.usage.completion_tokens) << text;
  }
  EXPECT_GT(complete, 1000);  // the generator still makes both
  EXPECT_GT(dropped, 100);
}

TEST(AnswerParserProperty, StrictResultsDoNotDependOnTheCutsButInJsonMode) {
  Dice dice(3, 400);
  for (int i = 0; i < 5'000; ++i) {
    Parsing parsing = answers::random_parsing(dice, Policy::strict);
    parsing.json_output = false;
    const std::string text = answers::random_output(dice);
    ASSERT_TRUE(read(parsing, {text}).same_as(read(parsing, answers::random_cut(dice, text)))) << i << ": " << text;
  }
}

TEST(AnswerParserProperty, AnAnswerOfNewlinesCostsNoMoreThanAnother) {
  AnswerParser parser({});  // each newline may belong to a marker: all are held, none is read twice
  parser.push("a");
  for (int i = 0; i < 200'000; ++i) parser.push("\n");
  parser.push("b");
  EXPECT_EQ(parser.runs().size(), 200'001u);
}

}  // namespace
}  // namespace fathom::recipe
