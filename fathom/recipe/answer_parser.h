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
#include "fathom/recipe/answer_patterns.h"
#include "fathom/recipe/settings.h"

namespace fathom::recipe {

/// One for each answer; not shared by threads. Steady state allocates nothing; what is held is at most the beginning of
/// a marker, newlines before one, and a raw value of a parameter (D-10). A byte costs a table look-up.
class AnswerParser {
 public:
  /// A run of output: `kind` and `call` as in Delta, its text in `text()`, and the input bytes that it stands for,
  /// counted from the first byte of the answer (for the attribution of tokens). A run
  /// stands for bytes of one push, but for a raw value that was held (D-10).
  struct Run {
    Delta::Kind kind;
    int call;
    size_t begin, end;               // in text()
    int64_t input_begin, input_end;  // equal when the run has no bytes of its own (`{`, `: `)
  };

  explicit AnswerParser(const Parsing& parsing);
  AnswerParser(AnswerParser&&) noexcept;
  ~AnswerParser();

  /// Takes one chunk, whole characters. The runs that it completed replace those of the call before. An empty chunk is
  /// an empty run where the wheel has one, and nothing under lenient (D-14).
  void push(std::string_view bytes, Spelling spelling = Spelling::text);
  /// The end of the output: releases what was held and settles unfinished calls.
  void finish();

  const std::vector<Run>& runs() const;
  std::string_view text(const Run& run) const;

  /// A stop sequence was met (or the end was called): nothing will come any more.
  bool stopped() const;
  /// Which stop sequence it was; -1: none.
  int stop_sequence() const;
  /// Input bytes whose runs are all given out: no later run stands for bytes before this.
  int64_t settled() const;
  /// Input bytes that were read: all, or those up to and with the stop sequence.
  int64_t taken() const;
  int calls_announced() const;
  int calls_complete() const;
  /// Calls that the end of the output cut off (D-12).
  int calls_dropped() const;
  /// Raw values that were no JSON and became strings (D-10).
  int64_t arguments_repaired() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fathom::recipe
