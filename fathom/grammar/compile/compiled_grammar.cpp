#include "fathom/grammar/compile/compiled_grammar.h"

#include <algorithm>
#include <bit>
#include <exception>
#include <map>
#include <new>
#include <span>

#include "fathom/base/philox.h"
#include "fathom/grammar/compile/time_budget.h"
#include "fathom/grammar/compile/vocabulary_parts.h"
#include "fathom/grammar/constraint_grammar.h"

namespace fathom::grammar {
namespace {

// The automaton of Knuth, Morris and Pratt: state s = the text ends with the first s bytes of `pattern`.
std::vector<int32_t> automaton(std::string_view pattern) {
  std::vector<int32_t> next(pattern.size() * 256, 0);
  size_t fallback = 0;  // the state of what was read without its first byte
  for (size_t state = 0; state < pattern.size(); ++state) {
    for (size_t byte = 0; byte < 256; ++byte) next[state * 256 + byte] = next[fallback * 256 + byte];
    next[state * 256 + uint8_t(pattern[state])] = int32_t(state + 1);
    if (state > 0) fallback = size_t(next[fallback * 256 + uint8_t(pattern[state])]);
  }
  return next;
}

// Tokens whose bytes complete `starts_after` before their end and go on with what the grammar refuses.
void find_refused(CompiledGrammar::Parts& parts) {
  const std::string& pattern = parts.starts_after;
  parts.refused.resize(pattern.size());
  xgrammar::GrammarMatcher matcher(parts.grammar);
  std::map<std::string, bool, std::less<>> accepted;
  const auto accepts = [&](std::string_view rest) {
    const auto known = accepted.find(rest);
    if (known != accepted.end()) return known->second;
    const bool fits = matcher.AcceptString(std::string(rest));
    if (fits) matcher.Rollback(1);
    return accepted.emplace(rest, fits).first->second;
  };
  for (int32_t id = 0; id < parts.vocabulary.size(); ++id) {
    const std::string_view bytes = parts.vocabulary.bytes_of(id);
    if (bytes.size() < 2 || bytes.substr(0, bytes.size() - 1).find(pattern.back()) == std::string_view::npos) continue;
    for (size_t from = 0; from < pattern.size(); ++from) {
      size_t state = from;
      for (size_t i = 0; i + 1 < bytes.size(); ++i) {
        state = size_t(parts.next_state[state * 256 + uint8_t(bytes[i])]);
        if (state < pattern.size()) continue;
        if (!accepts(bytes.substr(i + 1))) parts.refused[from].push_back(id);
        break;
      }
    }
  }
}

/// Id of set bit number `which` of the mask.
int32_t set_bit(std::span<const uint32_t> words, int64_t which) {
  for (size_t word = 0; word < words.size(); ++word) {
    const int set = std::popcount(words[word]);
    if (which >= set) {
      which -= set;
      continue;
    }
    for (int bit = 0; bit < 32; ++bit) {
      if ((words[word] >> bit & 1) != 0 && which-- == 0) return int32_t(word * 32) + bit;
    }
  }
  return -1;
}

// Writes a few random answers, so that a grammar whose masks are slow from the start fails here, where nobody waits for
// the thread, and not in the engine's step. Returns whether they took no more than `most`.
bool masks_are_quick(const CompiledGrammar::Parts& parts, std::chrono::milliseconds most) {
  constexpr uint32_t kAnswers = 3, kTokens = 24;
  std::vector<uint32_t> words(parts.vocabulary.mask_words());
  const auto begun = processor_time();
  for (uint32_t answer = 0; answer < kAnswers; ++answer) {
    xgrammar::GrammarMatcher matcher(parts.grammar);
    for (uint32_t token = 0; token < kTokens && !matcher.IsTerminated(); ++token) {
      auto shape = int64_t(words.size());
      DLTensor tensor{words.data(), {kDLCPU, 0}, 1, {kDLInt, 32, 1}, &shape, nullptr, 0};
      std::fill(words.begin(), words.end(), ~uint32_t(0));
      matcher.FillNextTokenBitmask(&tensor);
      for (auto id = size_t(parts.vocabulary.size()); id < words.size() * 32; ++id) {
        words[id / 32] &= ~(uint32_t(1) << (id % 32));
      }
      int64_t left = 0;
      for (const uint32_t word : words) left += std::popcount(word);
      if (left == 0 || !matcher.AcceptToken(set_bit(words, philox(1, {answer, token, 0, 0})[0] % left))) break;
      if (processor_time() - begun > most) return false;
    }
  }
  return true;
}

}  // namespace

int64_t CompiledGrammar::bytes() const { return parts_->bytes; }

Result<CompiledGrammar> compile(const Constraint& constraint, const Vocabulary& vocabulary,
                                const CompileLimits& limits) {
  const auto grammar = grammar_of(constraint, limits.grammar);
  if (!grammar) return grammar.error();
  const bool calls =
      constraint.kind == Constraint::Kind::tool_call || constraint.kind == Constraint::Kind::tool_call_required;
  try {
    // One thread: the pool compiles several at once. No cache: ours holds finished grammars by their constraint.
    xgrammar::GrammarCompiler compiler(vocabulary.parts().info, 1, false);
    auto parts = std::make_shared<CompiledGrammar::Parts>(
        CompiledGrammar::Parts{vocabulary, compiler.CompileGrammar(*grammar), {}, {}, {}});
    if (constraint.starts_after && !constraint.starts_after->empty() && !calls) {
      parts->starts_after = *constraint.starts_after;
      parts->next_state = automaton(parts->starts_after);
      find_refused(*parts);
    }
    parts->bytes = int64_t(parts->grammar.MemorySizeBytes() + parts->next_state.size() * 4 + sizeof(*parts));
    for (const auto& ids : parts->refused) parts->bytes += int64_t(ids.size() * 4);
    if (parts->bytes > limits.bytes) {
      return Error{ErrorCode::out_of_memory, "the compiled grammar has " + std::to_string(parts->bytes) + " bytes",
                   name_of(constraint.kind), "at most " + std::to_string(limits.bytes) + " are possible"};
    }
    if (!masks_are_quick(*parts, limits.first_masks)) {
      return Error{ErrorCode::out_of_range, "the masks of the constraint take too long", name_of(constraint.kind),
                   "let fewer parts of it overlap, repeat or be left out"};
    }
    return CompiledGrammar(std::move(parts));
  } catch (const std::bad_alloc&) {
    return Error{ErrorCode::out_of_memory, "no memory is left to compile the grammar", name_of(constraint.kind), ""};
  } catch (const std::exception& failure) {
    const bool user = constraint.kind == Constraint::Kind::ebnf;
    return Error{user ? ErrorCode::bad_input : ErrorCode::failed,
                 std::string("the grammar cannot be compiled: ") + failure.what(), name_of(constraint.kind), ""};
  }
}

}  // namespace fathom::grammar
