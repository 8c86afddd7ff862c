// fathom/grammar/json_rules.h
// How constrained answers spell JSON. Each value has few spellings, so that a model cannot lose itself in white space
// and a key cannot be disguised: between parts stands nothing, one space, or one line break and an indent; integers
// have neither fraction nor exponent; keys and fixed strings escape only what they must.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fathom/base/json.h"
#include "fathom/grammar/grammar_builder.h"

namespace fathom::grammar {

/// Rules are made when they are first asked for. `escaped`: characters that stand in strings as \uXXXX only.
class JsonRules {
 public:
  using Expression = GrammarBuilder::Expression;
  using Rule = GrammarBuilder::Rule;

  JsonRules(GrammarBuilder& builder, CharacterSet escaped) : b_(builder), escaped_(std::move(escaped)) {}

  const CharacterSet& escaped() const { return escaped_; }

  Expression space();
  Expression comma();   // "," and space
  Expression string();  // any string, with its quotes
  /// Characters are counted; unless there are at most 4 to count, none of them is one that JSON escapes: counting both
  /// would make masks take a second.
  Expression string_of_length(int64_t least, int64_t most);
  Expression number();
  Expression any();
  Expression not_string();  // any value but a string
  Expression array();
  Expression object();

  /// One value in its canonical spelling (spaces between parts are free).
  Expression fixed(const Json& value);
  /// A key (in its quotes) that is none of `names`; never() when these are too many to be told apart in time (20 ms of
  /// compiling a character).
  Expression key_without(const std::vector<std::string>& names);

 private:
  Expression once(std::optional<Rule>& rule, Expression (JsonRules::*make)());
  Expression make_space();
  Expression make_string();
  Expression make_number();
  Expression make_any();
  Expression make_not_string();
  Expression make_array();
  Expression make_object();

  GrammarBuilder& b_;
  CharacterSet escaped_;
  std::optional<Rule> space_, string_, number_, any_, not_string_, array_, object_;
};

/// Text of a JSON string in its canonical spelling, without quotes: \" \\ \b \f \n \r \t, \u00XX for other control
/// characters and \uXXXX for `escaped`.
std::string json_spelling(std::string_view text, const CharacterSet& escaped);

/// How the characters of keys are spelt: as themselves, or (few) by an escape. Others do not occur.
struct KeyAlphabet {
  CharacterSet plain;
  std::vector<std::pair<uint32_t, std::string>> escapes;
};

/// A text of that alphabet that is none of `names`, then `end` (ASCII). never() beyond 200 bytes of names.
GrammarBuilder::Expression text_other_than(GrammarBuilder& builder, const std::vector<std::string>& names,
                                           const KeyAlphabet& alphabet, std::string_view end);

/// One member of an object, or one parameter of a call.
struct Member {
  GrammarBuilder::Expression text;
  bool required = false;
};

/// The members in their order, then `extra` ones (never(): none), with `separator` between any two. Without required
/// members it may be empty, unless `not_empty`.
GrammarBuilder::Expression members(GrammarBuilder& builder, const std::vector<Member>& list,
                                   GrammarBuilder::Expression extra, GrammarBuilder::Expression separator,
                                   bool not_empty);

}  // namespace fathom::grammar
