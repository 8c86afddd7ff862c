// fathom/grammar/compile/vocabulary_parts.h
// What stands behind Vocabulary and CompiledGrammar. Only this folder's sources include it, for it shows xgrammar.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include <xgrammar/xgrammar.h>

#include "fathom/grammar/compile/compiled_grammar.h"
#include "fathom/grammar/compile/vocabulary.h"

namespace fathom::grammar {

struct Vocabulary::Parts {
  xgrammar::TokenizerInfo info;
};

struct CompiledGrammar::Parts {
  Vocabulary vocabulary;
  xgrammar::CompiledGrammar grammar;
  std::string starts_after;  // empty: from the start
  // Of each number of bytes of `starts_after` that the text ends with: how many it ends with one byte later (one row of
  // 256 a number), and the tokens that would complete it and go on with what the grammar refuses.
  std::vector<int32_t> next_state;
  std::vector<std::vector<int32_t>> refused;
  int64_t bytes = 0;
};

}  // namespace fathom::grammar
