#include "fathom/grammar/grammar_builder.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "fathom/base/check.h"

namespace fathom::grammar {
namespace {

// Inside "…": all but printable ASCII and whole characters beyond it is escaped.
void append_quoted(std::string& out, std::string_view text) {
  out += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (uint8_t(c) < 0x20 || c == 0x7f) {
      std::array<char, 8> escape{};
      std::snprintf(escape.data(), escape.size(), "\\u%04x", unsigned(c));
      out += escape.data();
    } else {
      out += c;
    }
  }
  out += '"';
}

void append_class(std::string& out, const CharacterSet& set) {
  const auto append = [&](uint32_t character) {
    std::array<char, 12> escape{};
    std::snprintf(escape.data(), escape.size(), "\\U%08x", unsigned(character));
    if ((character >= '0' && character <= '9') || (character >= 'A' && character <= 'Z') ||
        (character >= 'a' && character <= 'z')) {
      out += char(character);
    } else {
      out += escape.data();
    }
  };
  // Sets that reach to the end are written by what they lack: xgrammar counts repetitions of those without writing them
  // out (5 ms instead of 7 s), if what follows is not in the set.
  const bool negated = !set.empty() && set.back().last == 0x10ffff;
  out += negated ? "[^" : "[";
  for (const CharacterRange& range : negated ? complement(set) : set) {
    append(range.first);
    if (range.last == range.first) continue;
    out += '-';
    append(range.last);
  }
  out += ']';
}

}  // namespace

GrammarBuilder::GrammarBuilder() {
  add_node({.kind = Kind::never});
  add_node({.kind = Kind::literal});
}

GrammarBuilder::Expression GrammarBuilder::add_node(Node node) {
  nodes_.push_back(std::move(node));
  return Expression(nodes_.size() - 1);
}

GrammarBuilder::Expression GrammarBuilder::never() { return 0; }
GrammarBuilder::Expression GrammarBuilder::nothing() { return 1; }

GrammarBuilder::Expression GrammarBuilder::literal(std::string_view text) {
  return text.empty() ? nothing() : add_node({.kind = Kind::literal, .text = std::string(text)});
}

GrammarBuilder::Expression GrammarBuilder::characters(CharacterSet set) {
  set = normal(std::move(set));
  return set.empty() ? never() : add_node({.kind = Kind::characters, .set = std::move(set)});
}

GrammarBuilder::Expression GrammarBuilder::sequence(std::vector<Expression> parts) {
  std::erase(parts, nothing());
  if (parts.empty()) return nothing();
  if (parts.size() == 1) return parts[0];
  return add_node({.kind = Kind::sequence, .parts = std::move(parts)});
}

GrammarBuilder::Expression GrammarBuilder::choice(std::vector<Expression> options) {
  std::erase(options, never());
  if (options.empty()) return never();
  if (options.size() == 1) return options[0];
  return add_node({.kind = Kind::choice, .parts = std::move(options)});
}

GrammarBuilder::Expression GrammarBuilder::repeat(Expression part, int64_t least, int64_t most) {
  check(least >= 0 && (most == kNoLimit || most >= least), "GrammarBuilder::repeat: bounds");
  if (most == 0 || part == nothing()) return nothing();
  if (part == never()) return least == 0 ? nothing() : never();
  if (least == 1 && most == 1) return part;
  return add_node({.kind = Kind::repeat, .parts = {part}, .least = least, .most = most});
}

GrammarBuilder::Expression GrammarBuilder::rule(Rule rule) { return add_node({.kind = Kind::rule, .rule = rule}); }

// One rule for each: what it takes to compile one is paid once, not for every parameter of every tool.
GrammarBuilder::Expression GrammarBuilder::text_without(std::string_view excluded) {
  const auto [at, is_new] = texts_.try_emplace(std::string(excluded), never());
  if (is_new) at->second = rule(add(add_node({.kind = Kind::text_without, .text = std::string(excluded)})));
  return at->second;
}

GrammarBuilder::Expression GrammarBuilder::text_until(std::string_view tag, Rule after) {
  return add_node({.kind = Kind::text_until, .text = std::string(tag), .rule = after});
}

GrammarBuilder::Expression GrammarBuilder::regular(std::string expression) {
  return add_node({.kind = Kind::regular, .text = std::move(expression)});
}

GrammarBuilder::Rule GrammarBuilder::declare() {
  bodies_.push_back(-1);
  return Rule(bodies_.size() - 1);
}

void GrammarBuilder::define(Rule rule, Expression body) {
  check(bodies_[size_t(rule)] == -1, "GrammarBuilder::define: a rule is defined once");
  bodies_[size_t(rule)] = body;
}

GrammarBuilder::Rule GrammarBuilder::add(Expression body) {
  const Rule rule = declare();
  define(rule, body);
  return rule;
}

bool GrammarBuilder::productive(Expression expression, const std::vector<bool>& rules) const {
  const Node& node = nodes_[size_t(expression)];
  const auto part_is = [&](Expression part) { return productive(part, rules); };
  switch (node.kind) {
    case Kind::never: return false;
    case Kind::literal:
    case Kind::characters:
    case Kind::text_without:
    case Kind::text_until:
    case Kind::regular: return true;
    case Kind::sequence: return std::all_of(node.parts.begin(), node.parts.end(), part_is);
    case Kind::choice: return std::any_of(node.parts.begin(), node.parts.end(), part_is);
    case Kind::repeat: return node.least == 0 || part_is(node.parts[0]);
    case Kind::rule: return rules[size_t(node.rule)];
  }
  return false;
}

// Rules only ever become productive, so the rounds end. Callees are mostly defined before callers: two or three rounds.
std::vector<bool> GrammarBuilder::productive_rules() const {
  std::vector<bool> rules(bodies_.size(), false);
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t i = 0; i < bodies_.size(); ++i) {
      if (rules[i] || bodies_[i] < 0 || !productive(bodies_[i], rules)) continue;
      rules[i] = changed = true;
    }
  }
  return rules;
}

bool GrammarBuilder::productive(Expression expression) const { return productive(expression, productive_rules()); }

struct GrammarBuilder::Writer {
  const GrammarBuilder& builder;
  std::vector<bool> productive;
  std::vector<Rule> waiting;
  std::vector<bool> seen;
  std::string out;

  void write_rule_name(Rule rule) {
    if (!seen[size_t(rule)]) {
      seen[size_t(rule)] = true;
      waiting.push_back(rule);
    }
    out += 'r' + std::to_string(rule);
  }

  void write(Expression expression, bool inside) {
    const Node& node = builder.nodes_[size_t(expression)];
    switch (node.kind) {
      case Kind::never: check(false, "GrammarBuilder::text: no text can be written"); return;
      case Kind::literal: append_quoted(out, node.text); return;
      case Kind::characters: append_class(out, node.set); return;
      case Kind::regular:
        out += "Regex(";
        append_quoted(out, node.text);
        out += ')';
        return;
      case Kind::rule: write_rule_name(node.rule); return;
      case Kind::text_without:
        out += "TagDispatch(excludes=(";
        append_quoted(out, node.text);
        out += ",))";
        return;
      case Kind::text_until:
        out += "TagDispatch((";
        append_quoted(out, node.text);
        out += ", ";
        write_rule_name(node.rule);
        out += "), loop_after_dispatch=false)";
        return;
      case Kind::sequence:
      case Kind::choice: {
        const bool alternatives = node.kind == Kind::choice;
        if (inside) out += '(';
        bool first = true;
        for (const Expression part : node.parts) {
          if (alternatives && !builder.productive(part, productive)) continue;
          if (!first) out += alternatives ? " | " : " ";
          first = false;
          write(part, true);
        }
        if (inside) out += ')';
        return;
      }
      case Kind::repeat: {
        if (!builder.productive(node.parts[0], productive)) {
          out += "\"\"";
          return;
        }
        // Brackets but for sets: two signs of repetition may not follow one another.
        const bool bare = builder.nodes_[size_t(node.parts[0])].kind == Kind::characters;
        if (!bare) out += '(';
        write(node.parts[0], false);
        if (!bare) out += ')';
        if (node.least == 0 && node.most == 1) {
          out += '?';
        } else if (node.least <= 1 && node.most == kNoLimit) {
          out += node.least == 0 ? '*' : '+';
        } else {
          out += '{' + std::to_string(node.least);
          if (node.most != node.least) out += ',' + (node.most == kNoLimit ? "" : std::to_string(node.most));
          out += '}';
        }
        return;
      }
    }
  }
};

std::string GrammarBuilder::text(Rule root) const {
  Writer writer{*this, productive_rules(), {root}, std::vector<bool>(bodies_.size(), false), {}};
  check(writer.productive[size_t(root)], "GrammarBuilder::text: the root produces no text");
  writer.seen[size_t(root)] = true;
  writer.out = "root ::= r" + std::to_string(root) + "\n";
  while (!writer.waiting.empty()) {
    const Rule rule = writer.waiting.back();
    writer.waiting.pop_back();
    writer.out += 'r' + std::to_string(rule) + " ::= ";
    writer.write(bodies_[size_t(rule)], false);
    writer.out += '\n';
  }
  return std::move(writer.out);
}

}  // namespace fathom::grammar
