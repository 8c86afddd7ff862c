#include "fathom/grammar/json_rules.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>

#include "fathom/grammar/number_range.h"

namespace fathom::grammar {
namespace {

using Expression = GrammarBuilder::Expression;
constexpr int64_t kNoLimit = GrammarBuilder::kNoLimit;
constexpr std::string_view kEscaped = "\"\\\b\f\n\r\t", kLetters = "\"\\bfnrt";
const CharacterSet kNotPlain = {{0, 0x1f}, {'"', '"'}, {'\\', '\\'}};

void append_unicode_escape(std::string& out, uint32_t character) {
  std::array<char, 16> escape{};
  if (character >= 0x10000) {
    std::snprintf(escape.data(), escape.size(), "\\u%04x", unsigned(0xd800 + ((character - 0x10000) >> 10)));
    out += escape.data();
    character = 0xdc00 + ((character - 0x10000) & 0x3ff);
  }
  std::snprintf(escape.data(), escape.size(), "\\u%04x", unsigned(character));
  out += escape.data();
}

}  // namespace

std::string json_spelling(std::string_view text, const CharacterSet& escaped) {
  std::string out;
  for (const uint32_t c : characters_of(text)) {
    const size_t letter = c < 0x80 ? kEscaped.find(char(c)) : std::string_view::npos;
    if (letter != std::string_view::npos) {
      out += '\\';
      out += kLetters[letter];
    } else if (c < 0x20 || contains(escaped, c)) {
      append_unicode_escape(out, c);
    } else {
      append_utf8(out, c);
    }
  }
  return out;
}

Expression JsonRules::once(std::optional<Rule>& rule, Expression (JsonRules::*make)()) {
  if (!rule) {
    rule = b_.declare();  // before its body: values contain values
    b_.define(*rule, (this->*make)());
  }
  return b_.rule(*rule);
}

Expression JsonRules::space() { return once(space_, &JsonRules::make_space); }
Expression JsonRules::string() { return once(string_, &JsonRules::make_string); }
Expression JsonRules::number() { return once(number_, &JsonRules::make_number); }
Expression JsonRules::any() { return once(any_, &JsonRules::make_any); }
Expression JsonRules::not_string() { return once(not_string_, &JsonRules::make_not_string); }
Expression JsonRules::array() { return once(array_, &JsonRules::make_array); }
Expression JsonRules::object() { return once(object_, &JsonRules::make_object); }
Expression JsonRules::comma() { return b_.sequence({b_.literal(","), space()}); }

Expression JsonRules::make_space() {
  const Expression indent = b_.repeat(b_.characters({{'\t', '\t'}, {' ', ' '}}), 0, kNoLimit);
  return b_.choice({b_.nothing(), b_.literal(" "), b_.sequence({b_.literal("\n"), indent})});
}

namespace {

void append_class(std::string& out, const CharacterSet& set) {
  std::array<char, 32> range{};
  out += '[';
  for (const CharacterRange& part : set) {
    std::snprintf(range.data(), range.size(), "\\u{%x}-\\u{%x}", unsigned(part.first), unsigned(part.last));
    out += range.data();
  }
  out += ']';
}

// ASCII text as an expression.
std::string spelt(std::string_view text) {
  std::array<char, 16> character{};
  std::string out;
  for (const char c : text) {
    std::snprintf(character.data(), character.size(), "\\u{%x}", unsigned(uint8_t(c)));
    out += character.data();
  }
  return out;
}

// One character of a string. One that is written by two \u escapes is one, half of such a pair is none. As a regular
// expression the whole string is one automaton, for whose states masks are known beforehand: 3 us, where rules took
// 100 ms.
std::string character_expression(const CharacterSet& escaped) {
  std::string out = "(?:";
  append_class(out, without(complement(kNotPlain), escaped));
  out += R"re(|\u{5c}(?:[\u{22}\u{5c}\u{2f}bfnrt]|u(?:[0-9A-CE-Fa-ce-f][0-9A-Fa-f]{3}|[Dd][0-7][0-9A-Fa-f]{2}|)re"
         R"re([Dd][89ABab][0-9A-Fa-f]{2}\u{5c}u[Dd][C-Fc-f][0-9A-Fa-f]{2}))))re";
  return out;
}

}  // namespace

Expression JsonRules::make_string() { return b_.regular("\\u{22}" + character_expression(escaped_) + "{0,}\\u{22}"); }

Expression JsonRules::string_of_length(int64_t least, int64_t most) {
  constexpr int64_t kWrittenOut = 4;
  if (std::max(least, most) <= kWrittenOut) {
    const std::string count = '{' + std::to_string(least) + (most == least ? "" : ",") +
                              (most == least || most == kNoLimit ? "" : std::to_string(most)) + '}';
    if (most == 0) return b_.literal("\"\"");
    return b_.regular("\\u{22}" + character_expression(escaped_) + count + "\\u{22}");
  }
  const Expression plain = b_.characters(without(complement(kNotPlain), escaped_));
  return b_.sequence({b_.literal("\""), b_.repeat(plain, least, most), b_.literal("\"")});
}

Expression JsonRules::make_number() { return numbers(b_, {}); }
Expression JsonRules::make_any() { return b_.choice({string(), not_string()}); }

Expression JsonRules::make_not_string() {
  return b_.choice({object(), array(), number(), b_.literal("true"), b_.literal("false"), b_.literal("null")});
}

Expression JsonRules::make_array() {
  const Expression more = b_.repeat(b_.sequence({comma(), any()}), 0, kNoLimit);
  return b_.sequence({b_.literal("["), space(), b_.optional(b_.sequence({any(), more, space()})), b_.literal("]")});
}

Expression JsonRules::make_object() {
  const Expression member = b_.sequence({string(), b_.literal(":"), space(), any()});
  const Expression more = b_.repeat(b_.sequence({comma(), member}), 0, kNoLimit);
  return b_.sequence({b_.literal("{"), space(), b_.optional(b_.sequence({member, more, space()})), b_.literal("}")});
}

Expression JsonRules::fixed(const Json& value) {
  switch (value.kind) {
    case Json::Kind::null: return b_.literal("null");
    case Json::Kind::boolean: return b_.literal(value.boolean ? "true" : "false");
    case Json::Kind::number: return b_.literal(value.text);
    case Json::Kind::string: return b_.literal('"' + json_spelling(value.text, escaped_) + '"');
    case Json::Kind::array:
    case Json::Kind::object: break;
  }
  const bool object = value.is_object();
  std::vector<Expression> parts = {b_.literal(object ? "{" : "["), space()};
  const size_t count = object ? value.fields.size() : value.items.size();
  for (size_t i = 0; i < count; ++i) {
    if (i > 0) parts.push_back(comma());
    if (object) parts.push_back(b_.literal('"' + json_spelling(value.fields[i].first, escaped_) + "\":"));
    if (object) parts.push_back(space());
    parts.push_back(fixed(object ? value.fields[i].second : value.items[i]));
  }
  if (count > 0) parts.push_back(space());
  parts.push_back(b_.literal(object ? "}" : "]"));
  return b_.sequence(std::move(parts));
}

Expression JsonRules::key_without(const std::vector<std::string>& names) {
  if (names.empty()) return string();
  KeyAlphabet alphabet;
  alphabet.plain = without(complement(kNotPlain), escaped_);
  for (size_t i = 0; i < kEscaped.size(); ++i) {
    alphabet.escapes.emplace_back(uint8_t(kEscaped[i]), std::string("\\") + kLetters[i]);
  }
  return b_.sequence({b_.literal("\""), text_other_than(b_, names, alphabet, "\"")});
}

namespace {

struct NameTree {
  bool whole = false;
  std::map<uint32_t, NameTree> next;
};

struct OtherText {
  GrammarBuilder& builder;
  const KeyAlphabet& alphabet;
  Expression end;
  Expression any_rest;

  Expression any_but(const CharacterSet& taken) {
    std::vector<Expression> options = {builder.characters(without(alphabet.plain, taken))};
    for (const auto& [character, spelling] : alphabet.escapes) {
      if (!contains(taken, character)) options.push_back(builder.literal(spelling));
    }
    return builder.choice(std::move(options));
  }

  Expression after(const NameTree& tree) {
    CharacterSet taken;
    std::vector<Expression> options;
    for (const auto& [character, next] : tree.next) {
      taken.push_back({character, character});
      std::string spelling;
      if (contains(alphabet.plain, character)) {
        append_utf8(spelling, character);
      } else {
        for (const auto& [escaped, text] : alphabet.escapes) {
          if (escaped == character) spelling = text;
        }
      }
      if (spelling.empty()) continue;  // it does not occur
      options.push_back(builder.sequence({builder.literal(spelling), after(next)}));
    }
    options.push_back(builder.sequence({any_but(taken), any_rest}));
    if (!tree.whole) options.push_back(end);
    return builder.choice(std::move(options));
  }
};

}  // namespace

Expression text_other_than(GrammarBuilder& builder, const std::vector<std::string>& names, const KeyAlphabet& alphabet,
                           std::string_view end) {
  constexpr size_t kMostCharacters = 200;  // of all names
  size_t characters = 0;
  for (const std::string& name : names) characters += name.size();
  if (characters > kMostCharacters) return builder.never();
  NameTree tree;
  for (const std::string& name : names) {
    NameTree* node = &tree;
    for (const uint32_t c : characters_of(name)) node = &node->next[c];
    node->whole = true;
  }
  std::string rest = "(?:";
  append_class(rest, alphabet.plain);
  for (const auto& escape : alphabet.escapes) rest += '|' + spelt(escape.second);
  rest += "){0,}" + spelt(end);
  OtherText other{builder, alphabet, builder.literal(end), builder.rule(builder.add(builder.regular(rest)))};
  return other.after(tree);
}

// `first[i]` and `after[i]`: what may follow when the members before i have been passed over, or written.
Expression members(GrammarBuilder& builder, const std::vector<Member>& list, Expression extra, Expression separator,
                   bool not_empty) {
  const Expression separated = extra == builder.never() ? builder.never() : builder.sequence({separator, extra});
  Expression after = builder.repeat(separated, 0, kNoLimit);
  Expression first = extra == builder.never() ? builder.never() : builder.sequence({extra, after});
  if (!not_empty) first = builder.choice({first, builder.nothing()});
  for (size_t i = list.size(); i-- > 0;) {
    const Member& member = list[i];
    const Expression rest = builder.rule(builder.add(after));
    const Expression written = builder.sequence({member.text, rest});
    std::vector<Expression> follow = {builder.sequence({separator, written})};
    std::vector<Expression> begin = {written};
    if (!member.required) follow.push_back(rest);
    if (!member.required) begin.push_back(builder.rule(builder.add(first)));
    after = builder.choice(std::move(follow));
    first = builder.choice(std::move(begin));
  }
  return first;
}

}  // namespace fathom::grammar
