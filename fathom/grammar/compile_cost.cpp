#include "fathom/grammar/compile_cost.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace fathom::grammar {
namespace {

// Fitted to measured compilations: docs/decisions/0010.
constexpr double kWalk = 0.3, kBranch = 3.2;  // ms
constexpr double kCrowd = 20;                 // so many places behind one make each cost twice as much
constexpr double kThroughRule = 3;            // a place behind a rule's name costs so many times as much
constexpr double kOwnLoop = 0.25;             // a set that repeats itself: long tokens pass at once
constexpr double kLiteralShare = 0.01, kLiteralByte = 0.003;
constexpr double kMacroByte = 1;           // ms a character of an expression, or of a text to be avoided
constexpr double kSquaredByte = 3e-8;      // ms, of the text: what xgrammar does before any walk
constexpr int64_t kMostSteps = 5'000'000;  // of the estimate itself
constexpr int kMostDepth = 200;
constexpr double kMostCopies = 4;  // larger counts are counted, not written out

struct Node {
  enum class Kind { nothing, literal, set, rule, sequence, choice, repeat } kind = Kind::nothing;
  double share = 0;  // set, literal: of its first character
  double bytes = 0;  // literal
  int32_t rule = -1;
  bool optional = false, loops = false;  // repeat
  double times = 1;                      // repeat: written out so often
  std::vector<int32_t> parts = {};
};

// Roughly which part of all tokens begins with a character, for text and code in many languages.
double share_of(uint8_t c) {
  if (c >= 'a' && c <= 'z') return 0.6 / 26;
  if (c >= 'A' && c <= 'Z') return 0.1 / 26;
  if (c == ' ') return 0.15;
  if (c >= 0x80) return 0.1;
  return c > ' ' ? 0.05 / 42 : 0.001;
}

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  void read() {
    while (skip_blank(), at_ < text_.size()) {
      const size_t begin = at_;
      const std::string_view name = word();
      skip_blank();
      if (!name.empty() && text_.substr(at_).starts_with("::=")) {
        at_ += 3;
        const int32_t rule = rule_of(name);
        const int32_t body = choice(0);  // may add rules
        bodies[size_t(rule)] = body;
      }
      if (at_ == begin) ++at_;
    }
  }

  std::vector<Node> nodes = {Node{}};
  std::vector<int32_t> bodies;  // of rules; node 0: unknown
  double macro_bytes = 0;

 private:
  static bool is_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           c == '.';
  }
  void skip_blank() {
    while (at_ < text_.size()) {
      if (text_[at_] == '#') {
        while (at_ < text_.size() && text_[at_] != '\n') ++at_;
      } else if (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n' || text_[at_] == '\r') {
        ++at_;
      } else {
        return;
      }
    }
  }
  std::string_view word() {
    const size_t begin = at_;
    while (at_ < text_.size() && is_word(text_[at_])) ++at_;
    return text_.substr(begin, at_ - begin);
  }
  int32_t rule_of(std::string_view name) {
    const auto [at, is_new] = rules_.try_emplace(std::string(name), int32_t(bodies.size()));
    if (is_new) bodies.push_back(0);
    return at->second;
  }
  int32_t add(Node node) {
    nodes.push_back(std::move(node));
    return int32_t(nodes.size()) - 1;
  }
  bool starts_rule() const {  // a name and ::=
    size_t i = at_;
    while (i < text_.size() && is_word(text_[i])) ++i;
    while (i < text_.size() && (text_[i] == ' ' || text_[i] == '\t')) ++i;
    return text_.substr(i).starts_with("::=");
  }

  int32_t choice(int depth) {
    Node out{.kind = Node::Kind::choice};
    out.parts.push_back(sequence(depth));
    while (skip_blank(), at_ < text_.size() && text_[at_] == '|') {
      ++at_;
      out.parts.push_back(sequence(depth));
    }
    return out.parts.size() == 1 ? out.parts[0] : add(std::move(out));
  }

  int32_t sequence(int depth) {
    Node out{.kind = Node::Kind::sequence};
    while (true) {
      skip_blank();
      if (at_ >= text_.size() || text_[at_] == '|' || text_[at_] == ')') break;
      const char c = text_[at_];
      int32_t part = 0;
      if (c == '"') {
        part = literal();
      } else if (c == '[') {
        part = set();
      } else if (c == '(') {
        ++at_;
        part = depth < kMostDepth ? choice(depth + 1) : 0;
        skip_blank();
        if (at_ < text_.size() && text_[at_] == ')') ++at_;
      } else if (is_word(c)) {
        if (starts_rule()) break;
        const std::string_view name = word();
        if (at_ < text_.size() && text_[at_] == '(') {
          macro(out);
          continue;
        }
        part = add({.kind = Node::Kind::rule, .rule = rule_of(name)});
      } else {
        ++at_;
        continue;
      }
      out.parts.push_back(repeated(part));
    }
    return out.parts.size() == 1 ? out.parts[0] : add(std::move(out));
  }

  int32_t literal() {
    Node out{.kind = Node::Kind::literal};
    for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_) {
      if (text_[at_] == '\\') ++at_;
      ++out.bytes;
    }
    ++at_;
    out.share = kLiteralShare;
    return out.bytes == 0 ? 0 : add(std::move(out));
  }

  int32_t set() {
    ++at_;
    const bool negated = at_ < text_.size() && text_[at_] == '^';
    if (negated) ++at_;
    double share = 0;
    uint8_t previous = 0;
    for (; at_ < text_.size() && text_[at_] != ']'; ++at_) {
      if (text_[at_] == '\\') {  // an escape counts as one rare character, a long one too
        ++at_;
        previous = 0x1f;
        share += 0.001;
        continue;
      }
      const uint8_t c = uint8_t(text_[at_]);
      if (c == '-' && previous != 0 && at_ + 1 < text_.size() && text_[at_ + 1] != ']') {
        ++at_;
        const uint8_t last = text_[at_] == '\\' ? 0xff : uint8_t(text_[at_]);
        for (int i = previous + 1; i <= last; ++i) share += share_of(uint8_t(i));
        previous = 0;
        continue;
      }
      share += share_of(c);
      previous = c;
    }
    ++at_;
    return add({.kind = Node::Kind::set, .share = negated ? 1 : std::min(share, 1.0)});
  }

  // Name(…): Regex("…"), TagDispatch(…). Rules that it names are read where they are defined.
  void macro(Node& out) {
    int open = 0;
    for (; at_ < text_.size(); ++at_) {
      if (text_[at_] == '"') {
        const int32_t text = literal();
        macro_bytes += nodes[size_t(text)].bytes;
        --at_;
      } else if (text_[at_] == '(') {
        ++open;
      } else if (text_[at_] == ')' && --open == 0) {
        ++at_;
        break;
      }
    }
    out.parts.push_back(add({.kind = Node::Kind::set, .share = 1}));
  }

  // Signs that follow one another count as one: nothing may be nested as deep as a text is long.
  int32_t repeated(int32_t part) {
    Node out{.kind = Node::Kind::repeat};
    bool any = false;
    while (at_ < text_.size() && (text_[at_] == '*' || text_[at_] == '+' || text_[at_] == '?' || text_[at_] == '{')) {
      any = true;
      const char sign = text_[at_++];
      if (sign == '{') {
        count(out);
      } else {
        out.optional |= sign != '+';
        out.loops |= sign != '?';
      }
    }
    if (!any) return part;
    out.parts.push_back(part);
    return add(std::move(out));
  }

  void count(Node& out) {
    double numbers[2] = {0, 0};
    bool comma = false, second = false;
    for (; at_ < text_.size() && text_[at_] != '}'; ++at_) {
      if (text_[at_] == ',') comma = true;
      if (text_[at_] < '0' || text_[at_] > '9') continue;
      second |= comma;
      numbers[comma] = std::min(numbers[comma] * 10 + (text_[at_] - '0'), 1e9);
    }
    ++at_;
    const double most = comma ? (second ? numbers[1] : 2) : numbers[0];
    out.optional |= numbers[0] == 0;
    out.loops |= most > 1;
    out.times = std::clamp(most, out.times, kMostCopies);
  }

  std::string_view text_;
  size_t at_ = 0;
  std::unordered_map<std::string, int32_t> rules_;
};

class Estimate {
 public:
  explicit Estimate(Reader& reader) : nodes_(reader.nodes), bodies_(reader.bodies) {
    nullable_.assign(bodies_.size(), false);
    for (bool changed = true; changed && steps_ < kMostSteps;) {
      changed = false;
      for (size_t rule = 0; rule < bodies_.size(); ++rule) {
        if (nullable_[rule] || !nullable(bodies_[rule])) continue;
        nullable_[rule] = changed = true;
      }
    }
    first_.resize(bodies_.size());
    for (size_t rule = 0; rule < bodies_.size(); ++rule) add_first(bodies_[rule], first_[rule]);
    for (First& one : first_) {
      std::sort(one.rules.begin(), one.rules.end());
      one.rules.erase(std::unique(one.rules.begin(), one.rules.end()), one.rules.end());
    }
    reached_.assign(bodies_.size(), -1);
    behind_.resize(bodies_.size());
    for (size_t rule = 0; rule < bodies_.size() && steps_ < kMostSteps; ++rule) behind_[rule] = reach(int32_t(rule));
  }

  double milliseconds() {
    double sum = 0;
    for (const int32_t body : bodies_) sum += cost(body, 0);
    return steps_ < kMostSteps ? sum : std::numeric_limits<double>::infinity();
  }

 private:
  struct First {
    double share = 0;
    std::vector<int32_t> rules;
  };

  bool nullable(int32_t at) {
    ++steps_;
    const Node& node = nodes_[size_t(at)];
    const auto part = [&](int32_t p) { return nullable(p); };
    switch (node.kind) {
      case Node::Kind::nothing: return true;
      case Node::Kind::literal:
      case Node::Kind::set: return false;
      case Node::Kind::rule: return nullable_[size_t(node.rule)];
      case Node::Kind::sequence: return std::all_of(node.parts.begin(), node.parts.end(), part);
      case Node::Kind::choice: return std::any_of(node.parts.begin(), node.parts.end(), part);
      case Node::Kind::repeat: return node.optional || nullable(node.parts[0]);
    }
    return true;
  }

  void add_first(int32_t at, First& out) {
    ++steps_;
    const Node& node = nodes_[size_t(at)];
    switch (node.kind) {
      case Node::Kind::nothing: return;
      case Node::Kind::literal:
      case Node::Kind::set: out.share += node.share; return;
      case Node::Kind::rule: out.rules.push_back(node.rule); return;
      case Node::Kind::sequence:
        for (const int32_t part : node.parts) {
          add_first(part, out);
          if (!nullable(part)) return;
        }
        return;
      case Node::Kind::choice:
      case Node::Kind::repeat:
        for (const int32_t part : node.parts) add_first(part, out);
        return;
    }
  }

  // Shares of all places where a rule may begin, in whatever rules.
  double reach(int32_t from) {
    double sum = 0;
    std::vector<int32_t> open = {from};
    reached_[size_t(from)] = from;
    while (!open.empty()) {
      const First& first = first_[size_t(open.back())];
      open.pop_back();
      sum += first.share;
      steps_ += 1 + int64_t(first.rules.size());
      for (const int32_t rule : first.rules) {
        if (std::exchange(reached_[size_t(rule)], from) != from) open.push_back(rule);
      }
    }
    return sum;
  }

  double first_share(int32_t at) {
    First first;
    add_first(at, first);
    double sum = first.share;
    for (const int32_t rule : first.rules) sum += kThroughRule * behind_[size_t(rule)];
    return sum;
  }

  static double branches(double after) { return kBranch * after * (1 + after / kCrowd); }

  // `after`: shares of the places that may come behind this part within its rule.
  double cost(int32_t at, double after) {
    const Node& node = nodes_[size_t(at)];
    if (++steps_ >= kMostSteps) return 0;
    switch (node.kind) {
      case Node::Kind::nothing:
      case Node::Kind::rule: return 0;
      case Node::Kind::literal: return node.bytes * kLiteralByte + node.share * branches(after);
      case Node::Kind::set: return node.share * (kWalk + branches(after));
      case Node::Kind::sequence: {
        double sum = 0;
        for (size_t i = node.parts.size(); i-- > 0;) {
          sum += cost(node.parts[i], after);
          after = first_share(node.parts[i]) + (nullable(node.parts[i]) ? after : 0);
        }
        return sum;
      }
      case Node::Kind::choice: {
        double sum = 0;
        for (const int32_t part : node.parts) sum += cost(part, after);
        return sum;
      }
      case Node::Kind::repeat: {
        const bool own = nodes_[size_t(node.parts[0])].kind == Node::Kind::set;
        const double loop = node.loops ? (own ? kOwnLoop : 1) * first_share(node.parts[0]) : 0;
        return node.times * cost(node.parts[0], after + loop);
      }
    }
    return 0;
  }

  const std::vector<Node>& nodes_;
  const std::vector<int32_t>& bodies_;
  std::vector<bool> nullable_;  // by rule
  std::vector<First> first_;    // of the rule's own body
  std::vector<double> behind_;
  std::vector<int32_t> reached_;  // by which walk last
  int64_t steps_ = 0;
};

}  // namespace

double compile_milliseconds(std::string_view ebnf) {
  Reader reader(ebnf);
  reader.read();
  const auto bytes = double(ebnf.size());
  return Estimate(reader).milliseconds() + kMacroByte * reader.macro_bytes + kSquaredByte * bytes * bytes;
}

}  // namespace fathom::grammar
