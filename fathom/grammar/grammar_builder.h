// fathom/grammar/grammar_builder.h
// A context-free grammar over UTF-8 text, put together from expressions and written as EBNF. It knows which parts can
// produce a text at all: an alternative that cannot (an endless recursion, an empty set of characters) is left out, so
// that an answer never runs into a wall.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fathom/base/result.h"

namespace fathom::grammar {

/// Characters first to last, both included.
struct CharacterRange {
  uint32_t first;
  uint32_t last;

  friend bool operator==(const CharacterRange&, const CharacterRange&) = default;
};

/// Ascending, disjoint ranges.
using CharacterSet = std::vector<CharacterRange>;

class GrammarBuilder {
 public:
  using Expression = int32_t;  // of this builder
  using Rule = int32_t;
  static constexpr int64_t kNoLimit = -1;

  GrammarBuilder();

  Expression never();    // no text
  Expression nothing();  // the empty text
  Expression literal(std::string_view text);
  Expression characters(CharacterSet set);  // one of them
  Expression sequence(std::vector<Expression> parts);
  Expression choice(std::vector<Expression> options);
  /// `most` may be kNoLimit.
  Expression repeat(Expression part, int64_t least, int64_t most);
  Expression optional(Expression part) { return repeat(part, 0, 1); }
  Expression rule(Rule rule);
  /// Any text without `excluded` (none: any text).
  Expression text_without(std::string_view excluded);
  /// Any text without `tag`; or such a text, the tag, and what `after` is.
  Expression text_until(std::string_view tag, Rule after);
  /// A regular expression as xgrammar reads them: `(?:…)`, `|`, `[…]` with `\u{…}`, and `{m,n}` for every repetition
  /// (its `?` takes `a` for `(a*b)?`).
  Expression regular(std::string expression);

  /// A rule to be defined later; recursion goes through rules.
  Rule declare();
  void define(Rule rule, Expression body);
  Rule add(Expression body);

  int64_t rules() const { return int64_t(bodies_.size()); }
  /// Whether an expression can produce a text, as far as its rules are defined by now.
  bool productive(Expression expression) const;

  /// The grammar as EBNF, its first rule `root`. Only rules that are reached are written.
  std::string text(Rule root) const;

 private:
  enum class Kind { never, literal, characters, sequence, choice, repeat, rule, text_without, text_until, regular };
  struct Node {
    Kind kind;
    std::string text = {};
    CharacterSet set = {};
    std::vector<Expression> parts = {};
    int64_t least = 0, most = 0;
    Rule rule = -1;
  };
  Expression add_node(Node node);
  bool productive(Expression expression, const std::vector<bool>& rules) const;
  std::vector<bool> productive_rules() const;
  struct Writer;

  std::vector<Node> nodes_;
  std::map<std::string, Expression, std::less<>> texts_;  // without what, and its rule
  std::vector<Expression> bodies_;                        // of rules; -1: not defined yet
};

/// Appends one character as UTF-8.
void append_utf8(std::string& out, uint32_t character);

/// The characters of a valid UTF-8 text.
std::vector<uint32_t> characters_of(std::string_view text);

/// Unicode scalar values that are not in `set`.
CharacterSet complement(const CharacterSet& set);
/// Sorted and joined; surrogates taken out.
CharacterSet normal(CharacterSet set);
CharacterSet without(const CharacterSet& set, const CharacterSet& removed);
bool contains(const CharacterSet& set, uint32_t character);

}  // namespace fathom::grammar
