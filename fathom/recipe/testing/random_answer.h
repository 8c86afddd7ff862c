// fathom/recipe/testing/random_answer.h
// For tests: outputs that a model might produce and many that none should, cut in any way, and what is read of them.
#pragma once
#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "fathom/base/check.h"
#include "fathom/recipe/answer_reader.h"

namespace fathom::recipe::answers {

struct ReadCall {
  std::string name, arguments;
  bool complete = false, dropped = false;

  friend bool operator==(const ReadCall&, const ReadCall&) = default;
};

/// An answer as a client puts it together.
struct ReadAnswer {
  std::string content, reasoning;
  std::vector<ReadCall> calls;
  std::vector<std::string> runs;  // content and reasoning, one a delta
  FinishReason reason = FinishReason::stop;
  std::string stop_sequence;
  Usage usage;

  void take(const AnswerReader& reader) {
    for (const Delta& delta : reader.deltas()) {
      switch (delta.kind) {
        case Delta::Kind::reasoning: reasoning += delta.text, runs.emplace_back(delta.text); break;
        case Delta::Kind::content: content += delta.text, runs.emplace_back(delta.text); break;
        case Delta::Kind::call:
          check(delta.call == int(calls.size()), "calls are announced in their order");
          calls.push_back({std::string(delta.text), "", false, false});
          break;
        case Delta::Kind::arguments: calls.at(size_t(delta.call)).arguments += delta.text; break;
        case Delta::Kind::call_end: calls.at(size_t(delta.call)).complete = true; break;
        case Delta::Kind::call_dropped: calls.at(size_t(delta.call)).dropped = true; break;
      }
    }
    if (!reader.finished()) return;
    const AnswerEnd end = reader.end();
    reason = end.reason;
    stop_sequence = end.stop_sequence.value_or("");
    usage = end.usage;
  }

  /// The same but for how it came.
  bool same_as(const ReadAnswer& other) const {
    return content == other.content && reasoning == other.reasoning && calls == other.calls && reason == other.reason &&
           stop_sequence == other.stop_sequence;
  }
};

/// Reads text chunks of one token each.
inline ReadAnswer read(const Parsing& parsing, const std::vector<std::string>& pieces,
                       BackendFinish finish = BackendFinish::stop) {
  AnswerReader reader(parsing, nullptr, 1);
  ReadAnswer answer;
  for (const std::string& piece : pieces) {
    check(reader.text(piece, 1).ok(), "text can be fed");
    answer.take(reader);
    if (reader.finished()) return answer;
  }
  check(reader.finish(finish).ok(), "an answer can be finished");
  answer.take(reader);
  return answer;
}

class RandomAnswers {
 public:
  explicit RandomAnswers(uint32_t seed) : random_(seed) {}

  size_t below(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random_); }
  bool chance(double p) { return std::bernoulli_distribution(p)(random_); }
  template <size_t n>
  std::string any(const char* const (&choices)[n]) {
    return choices[below(n)];
  }

  std::string tag(const char* what) {
    static constexpr const char* kNames[] = {R"(name="f")", R"(name="g")", R"(name = "k")",  R"(name="a"b")",
                                             "name=n",      "name",        R"(name="q k\")", R"(name="é")"};
    static constexpr const char* kOthers[] = {R"( string="true")",
                                              R"( string="false")",
                                              R"( string="false")",
                                              R"( string=false)",
                                              R"( string="maybe")",
                                              R"( id="1")",
                                              " x",
                                              "\t",
                                              "/"};
    std::string text = "<｜DSML｜" + any({"", " "}) + what;
    if (chance(0.1)) text += any(kOthers);
    if (chance(0.95)) text += " " + any(kNames);
    while (chance(0.6)) text += any(kOthers);
    return text + (chance(0.97) ? ">" : "");
  }

  std::string call() {
    std::string text = "<｜DSML｜" + any({" calls>\n", "tool_calls>\n", " toolcalls>\n", ""});
    for (size_t calls = 1 + below(3); calls > 0; --calls) {
      text += tag("invoke") + "\n";
      for (size_t parameters = below(4); parameters > 0; --parameters) {
        text += tag("parameter");
        text += any({"v", "5", "5x", "", " 7 ", R"({"a": [1, 2.50]})", "NaN", "\n", "\"", "\\", "<b>", "null", "😀",
                     "12345678901234567890123", "[1", "\x01"});
        text += "</｜DSML｜" + any({"", " "}) + "parameter>\n";
      }
      if (chance(0.95)) text += "</｜DSML｜ invoke>\n";
    }
    return text + any({"</｜DSML｜ calls>", "</｜DSML｜tool_calls>", ""});
  }

  std::string text() {
    static constexpr const char* kPieces[] = {"a",
                                              "b c",
                                              "\n",
                                              "\n\n",
                                              "</think>",
                                              "</thi",
                                              "<think>",
                                              "<｜DSML｜",
                                              "</｜DSML｜",
                                              "</｜DSML｜ calls>",
                                              "STOP",
                                              "ST",
                                              "OP",
                                              "ab",
                                              "<",
                                              "</",
                                              "｜",
                                              "，",
                                              "😀",
                                              "```json\n",
                                              "\n```",
                                              "{",
                                              "[1]",
                                              "}",
                                              "``",
                                              "\"",
                                              "\x7f",
                                              " ",
                                              "invoke name=\"x\">",
                                              "name=\"",
                                              "true>",
                                              "</｜DSML｜ invoke>"};
    std::string all;
    for (size_t n = below(9); n > 0; --n) all += chance(0.2) ? call() : any(kPieces);
    if (chance(0.3) && !all.empty()) all.erase(below(all.size()), 1 + below(4));  // also inside a character
    if (chance(0.2)) all.resize(below(all.size() + 1));
    if (chance(0.05)) all.insert(below(all.size() + 1), 1, char(0x80 + below(128)));
    return all;
  }

  /// Cuts at any byte.
  std::vector<std::string> cut(std::string_view text) {
    std::vector<std::string> pieces;
    const size_t longest = 1 + below(chance(0.5) ? 3 : 40);
    while (!text.empty()) {
      const size_t n = std::min(text.size(), 1 + below(longest));
      pieces.emplace_back(text.substr(0, n));
      text.remove_prefix(n);
    }
    while (chance(0.2)) pieces.insert(pieces.begin() + std::ptrdiff_t(below(pieces.size() + 1)), "");
    return pieces;
  }

  Parsing parsing(Policy policy) {
    Parsing parsing;
    parsing.policy = policy;
    parsing.tool_calls = chance(0.85);
    parsing.starts_in_tool_calls = chance(0.15);
    parsing.json_output = chance(0.15);
    const size_t stage = below(4);
    if (stage > 0) parsing.stage = ThinkingStage(stage - 1);
    while (chance(0.3))
      parsing.stop_sequences.push_back(any({"STOP", "ab", "\n\n", "ST", "P", "，", "</think>", "<", "é"}));
    if (chance(0.5)) parsing.required_parameters["f"] = {"k"};
    return parsing;
  }

 private:
  std::string any(std::initializer_list<const char*> choices) {
    return *(choices.begin() + std::ptrdiff_t(below(choices.size())));
  }
  std::mt19937 random_;
};

}  // namespace fathom::recipe::answers
