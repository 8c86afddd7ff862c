#include "fathom/grammar/compile/compiled_grammar.h"

#include <exception>
#include <map>
#include <new>

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
