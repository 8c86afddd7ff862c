// fathom/recipe/answer_parser.h
// The state machine that reads a model's output: reasoning, content, calls. Fed with bytes in any pieces; under the
// lenient policy the joined result does not depend on the cuts, under strict it is that of deepseek-recipe 0.2.0 to the
// single delta. Source: spec/recipe.md 8.1 to 8.3, spec/codec-policy.md 2 and 3.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fathom/recipe/answer.h"
#include "fathom/recipe/settings.h"

namespace fathom::recipe {

/// One for each answer; not shared by threads. Steady state allocates nothing.
class AnswerParser {
 public:
  /// A run of output: `kind` and `call` as in Delta, text in `text()`, and how many of the input bytes had been taken
  /// when its first and behind its last byte were decided (for the attribution of tokens).
  struct Run {
    Delta::Kind kind;
    int call;
    size_t begin, end;               // in text()
    int64_t input_begin, input_end;  // bytes of the whole output so far
  };

  explicit AnswerParser(const Parsing& parsing);
  AnswerParser(AnswerParser&&) noexcept;
  ~AnswerParser();

  /// Takes one chunk. The runs that it completed replace those of the call before.
  void push(std::string_view bytes);
  /// The end of the output: releases what was held and settles unfinished calls.
  void finish();

  const std::vector<Run>& runs() const;
  std::string_view text(const Run& run) const;

  /// A stop sequence was met (or the end was called): nothing will come any more.
  bool stopped() const;
  /// Which stop sequence it was; -1: none.
  int stop_sequence() const;
  int calls_announced() const;
  int calls_complete() const;
  /// Raw values that were no JSON and became strings (D-10).
  int64_t arguments_repaired() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fathom::recipe
