// fathom/grammar/limits.h
// What a constraint may cost. A compiler that has begun cannot be stopped, so all of it is decided before: what is
// within these limits compiles within seconds and a few hundred MB (figures: docs/decisions/0010).
#pragma once
#include <cstdint>

namespace fathom::grammar {

struct GrammarLimits {
  int64_t text_bytes = int64_t(256) << 10;  // of a schema, expression or grammar; of all tools together
  int depth = 64;                           // nested schemas, or groups of an expression
  int64_t repetitions = 10'000;             // largest count of items, members or characters that a schema may name
  int64_t properties = 500;                 // of one object: each that may be left out makes masks slower
  int64_t expression_repetitions = 100;     // largest count in an expression: it is written out
  int64_t expression_size = 1'000;          // characters of an expression, counted repetitions multiplied out
  int64_t expression_options = 64;          // parts of it that may be left out, multiplied out: each slows every mask
  int64_t rules = 5'000;                    // of the grammar that is made
  int64_t grammar_bytes = int64_t(1) << 20;
  double compile_milliseconds = 20'000;  // as compile_cost.h estimates them
};

/// An upper bound of the bytes of any answer: 1,048,576 tokens, none longer than 256 bytes. A larger maximum binds
/// nothing.
inline constexpr int64_t kLongestAnswerBytes = int64_t(1) << 28;

}  // namespace fathom::grammar
