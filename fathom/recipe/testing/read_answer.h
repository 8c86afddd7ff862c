// fathom/recipe/testing/read_answer.h
// For tests: what a client reads of an answer, and random settings under which to read random outputs.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "fathom/base/check.h"
#include "fathom/recipe/answer_reader.h"
#include "fathom/recipe/conformance/random_answer.h"

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

/// An output of the generator, damaged now and then.
inline std::string random_output(Dice& dice) {
  std::string text = random_answer(dice.below(1u << 31));
  damage_bytes(dice, text);
  return text;
}

/// Cut at any byte; sometimes pieces are empty.
inline std::vector<std::string> random_cut(Dice& dice, const std::string& text) {
  std::vector<std::string> pieces = random_pieces(dice, text, true);
  while (dice.one_in(5)) {
    pieces.insert(pieces.begin() + std::ptrdiff_t(dice.below(uint32_t(pieces.size()) + 1)), "");
  }
  return pieces;
}

inline Parsing random_parsing(Dice& dice, Policy policy) {
  Parsing parsing;
  parsing.policy = policy;
  parsing.tool_calls = !dice.one_in(7);
  parsing.starts_in_tool_calls = dice.one_in(7);
  parsing.json_output = dice.one_in(7);
  const uint32_t stage = dice.below(4);
  if (stage > 0) parsing.stage = ThinkingStage(stage - 1);
  while (dice.one_in(3)) {
    parsing.stop_sequences.emplace_back(dice.pick_text({"STOP", "ab", "\n\n", "ST", "P", "，", "</think>", "<", "é"}));
  }
  if (dice.one_in(2)) parsing.required_parameters["f"] = {"k"};
  return parsing;
}

}  // namespace fathom::recipe::answers
