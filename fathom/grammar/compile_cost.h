// How long a grammar takes to compile, told from its text before anything is compiled: a compilation cannot be stopped,
// and fifty small rules can take hours. Pure; linear in the text for all that passes. Source: spec/engine.md 10, R-38.
//
// xgrammar walks the vocabulary once for every place in a rule that reads characters. What a walk costs grows with the
// share of the vocabulary that begins as the place wants, and with the places that may come behind it at once: by far
// the most where alternatives, or parts that may be left out, overlap. So the estimate is the sum over places of
//
//   share * (0.3 ms + 3.2 ms * b * (1 + b / 20)),   b the sum of the shares of the places that may come behind it
//
// and the square of the text's length; which was right within a factor of three, mostly too high, for what
// docs/decisions/0010 lists.
#pragma once
#include <string_view>

namespace fathom::grammar {

/// Milliseconds of one core for a vocabulary of 129,280 tokens (AMD EPYC). Infinity when even the estimate would take
/// long. `ebnf`: what grammar_of makes, or a user's grammar in the same dialect; what it does not know it passes by.
double compile_milliseconds(std::string_view ebnf);

}  // namespace fathom::grammar
