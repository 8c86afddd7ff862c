// Reads into a tree, resolves anchors there, writes the tree.
#include "fathom/grammar/expression.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>

#include "fathom/tokenizer/tokenizer.h"

namespace fathom::grammar {
namespace {

constexpr int64_t kNoLimit = GrammarBuilder::kNoLimit;

struct Node {
  enum class Kind { set, sequence, choice, repeat, begin, end };
  Kind kind = Kind::sequence;
  CharacterSet set = {};
  std::vector<Node> parts = {};
  int64_t least = 0, most = 0;
};

const CharacterSet kDigits = {{'0', '9'}};
const CharacterSet kWord = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
// White space and line ends of ECMA-262.
const CharacterSet kSpace = {{0x09, 0x0d},     {0x20, 0x20},     {0xa0, 0xa0},     {0x1680, 0x1680}, {0x2000, 0x200a},
                             {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000}, {0xfeff, 0xfeff}};
const CharacterSet kLineEnds = {{0x0a, 0x0a}, {0x0d, 0x0d}, {0x2028, 0x2029}};
constexpr CharacterRange kAll = {0, 0x10ffff};

std::optional<CharacterSet> class_escape(uint32_t letter) {
  switch (letter) {
    case 'd': return kDigits;
    case 'D': return complement(kDigits);
    case 'w': return kWord;
    case 'W': return complement(kWord);
    case 's': return kSpace;
    case 'S': return complement(kSpace);
    default: return {};
  }
}

class Reader {
 public:
  Reader(std::vector<uint32_t> text, std::string_view path, const GrammarLimits& limits)
      : text_(std::move(text)), path_(path), limits_(limits) {}

  Result<Node> read() {
    Node node = alternatives(0);
    if (!error_ && !done()) fail(ErrorCode::bad_input, "an unmatched ')'");
    if (error_) return std::move(*error_);
    return node;
  }

 private:
  bool done() const { return at_ >= text_.size() || error_; }
  bool ahead(uint32_t character, size_t distance = 0) const {
    return at_ + distance < text_.size() && text_[at_ + distance] == character;
  }
  bool take(uint32_t character) {
    if (!ahead(character)) return false;
    ++at_;
    return true;
  }

  void fail(ErrorCode code, const std::string& what) {
    if (error_) return;
    error_ = Error{code, "the expression has " + what + " at character " + std::to_string(at_ + 1), std::string(path_),
                   code == ErrorCode::bad_input ? "correct it" : "only what is regular can be enforced; leave it out"};
  }

  Node alternatives(int depth) {
    if (depth > limits_.depth) {
      if (!error_) {
        error_ = Error{ErrorCode::out_of_range,
                       "groups of the expression are nested deeper than " + std::to_string(limits_.depth),
                       std::string(path_), "simplify it"};
      }
      return {};
    }
    Node choice{.kind = Node::Kind::choice};
    choice.parts.push_back(sequence(depth));
    while (!done() && take('|')) choice.parts.push_back(sequence(depth));
    if (choice.parts.size() == 1) return std::move(choice.parts[0]);
    return choice;
  }

  Node sequence(int depth) {
    Node all{.kind = Node::Kind::sequence};
    while (!done() && !ahead('|') && !ahead(')')) {
      Node part = atom(depth);
      if (error_) break;
      part = quantified(std::move(part));
      all.parts.push_back(std::move(part));
    }
    return all;
  }

  Node atom(int depth) {
    const uint32_t c = text_[at_++];
    switch (c) {
      case '^': return {.kind = Node::Kind::begin};
      case '$': return {.kind = Node::Kind::end};
      case '.': return {.kind = Node::Kind::set, .set = complement(kLineEnds)};
      case '(': return group(depth);
      case '[': return {.kind = Node::Kind::set, .set = bracketed()};
      case '*':
      case '+':
      case '?':
        --at_;
        fail(ErrorCode::bad_input, "nothing to repeat");
        return {};
      case '\\': return {.kind = Node::Kind::set, .set = escape(false)};
      default: return {.kind = Node::Kind::set, .set = {{c, c}}};
    }
  }

  Node group(int depth) {
    if (take('?')) {
      if (ahead('=') || ahead('!') || (ahead('<') && (ahead('=', 1) || ahead('!', 1)))) {
        fail(ErrorCode::unsupported, "a look-around");
        return {};
      }
      if (take('<')) {  // a name: groups are not referred to
        while (!done() && !ahead('>')) ++at_;
        if (!take('>')) fail(ErrorCode::bad_input, "a group name without end");
      } else if (!take(':')) {
        fail(ErrorCode::unsupported, "a flag");
      }
    }
    Node inside = alternatives(depth + 1);
    if (!error_ && !take(')')) fail(ErrorCode::bad_input, "an unclosed '('");
    return inside;
  }

  // {2}, {2,}, {2,5}; anything else that begins with a brace is text.
  bool counts(int64_t& least, int64_t& most) {
    size_t i = at_ + 1;
    const auto number = [&]() -> std::optional<int64_t> {
      const size_t begin = i;
      int64_t value = 0;
      for (; i < text_.size() && text_[i] >= '0' && text_[i] <= '9'; ++i) {
        value = std::min<int64_t>(value * 10 + int64_t(text_[i] - '0'), kLongestAnswerBytes);
      }
      if (i == begin) return {};
      return value;
    };
    const auto first = number();
    if (!first) return false;
    least = most = *first;
    if (i < text_.size() && text_[i] == ',') {
      ++i;
      const auto second = number();
      most = second ? *second : kNoLimit;
    }
    if (i >= text_.size() || text_[i] != '}') return false;
    at_ = i + 1;
    return true;
  }

  Node quantified(Node part) {
    int64_t least = 0, most = kNoLimit;
    if (done()) return part;
    if (take('*')) {
    } else if (take('+')) {
      least = 1;
    } else if (take('?')) {
      most = 1;
    } else if (!ahead('{') || !counts(least, most)) {
      return part;
    }
    if (part.kind == Node::Kind::begin || part.kind == Node::Kind::end) {
      fail(ErrorCode::unsupported, "a repeated anchor");
    }
    if (most != kNoLimit && most < least) fail(ErrorCode::bad_input, "a repetition whose bounds are reversed");
    if (most >= kLongestAnswerBytes) most = kNoLimit;
    if (std::max(least, most) > limits_.repetitions) {
      if (!error_) {
        error_ =
            Error{ErrorCode::out_of_range, "the expression repeats " + std::to_string(std::max(least, most)) + " times",
                  std::string(path_), "at most " + std::to_string(limits_.repetitions) + " are possible"};
      }
    }
    take('?');  // lazy: the same texts match
    if (ahead('*') || ahead('+')) fail(ErrorCode::bad_input, "nothing to repeat");
    Node repeat{.kind = Node::Kind::repeat, .least = least, .most = most};
    repeat.parts.push_back(std::move(part));
    return repeat;
  }

  CharacterSet bracketed() {
    const bool negated = take('^');
    CharacterSet set;
    while (!done() && !ahead(']')) {
      CharacterSet low = class_item();
      const bool one = low.size() == 1 && low[0].first == low[0].last;
      if (ahead('-') && at_ + 1 < text_.size() && !ahead(']', 1)) {
        ++at_;
        const CharacterSet high = class_item();
        if (!one || high.size() != 1 || high[0].first != high[0].last || high[0].first < low[0].first) {
          fail(ErrorCode::bad_input, "a range without order");
          return {};
        }
        low[0].last = high[0].first;
      }
      set.insert(set.end(), low.begin(), low.end());
    }
    if (!take(']')) fail(ErrorCode::bad_input, "an unclosed '['");
    set = normal(std::move(set));
    return negated ? complement(set) : set;
  }

  CharacterSet class_item() {
    const uint32_t c = text_[at_++];
    if (c == '\\') return escape(true);
    return {{c, c}};
  }

  std::optional<uint32_t> hexadecimal(size_t digits) {
    uint32_t value = 0;
    for (size_t i = 0; i < digits; ++i, ++at_) {
      if (at_ >= text_.size()) return {};
      const uint32_t c = text_[at_] | 0x20;
      if (text_[at_] >= '0' && text_[at_] <= '9') {
        value = value * 16 + (text_[at_] - '0');
      } else if (c >= 'a' && c <= 'f') {
        value = value * 16 + (c - 'a' + 10);
      } else {
        return {};
      }
    }
    return value;
  }

  CharacterSet unicode_escape() {
    std::optional<uint32_t> value;
    if (take('{')) {
      size_t digits = 0;
      while (at_ + digits < text_.size() && text_[at_ + digits] != '}' && digits < 7) ++digits;
      value = hexadecimal(digits);
      if (!take('}')) value = {};
    } else {
      value = hexadecimal(4);
      if (value && *value >= 0xd800 && *value < 0xdc00 && ahead('\\') && ahead('u', 1)) {
        at_ += 2;
        const auto low = hexadecimal(4);
        value = low && *low >= 0xdc00 && *low < 0xe000
                    ? std::optional(0x10000 + ((*value - 0xd800) << 10) + (*low - 0xdc00))
                    : std::nullopt;
      }
    }
    if (!value || *value > kAll.last) {
      fail(ErrorCode::bad_input, "an unfinished \\u");
      return {};
    }
    return {{*value, *value}};
  }

  CharacterSet escape(bool in_class) {
    if (at_ >= text_.size()) {
      fail(ErrorCode::bad_input, "a backslash without a character");
      return {};
    }
    const uint32_t c = text_[at_++];
    if (auto set = class_escape(c)) return *set;
    const auto one = [](uint32_t character) { return CharacterSet{{character, character}}; };
    switch (c) {
      case 't': return one('\t');
      case 'n': return one('\n');
      case 'v': return one('\v');
      case 'f': return one('\f');
      case 'r': return one('\r');
      case 'b':
        if (in_class) return one('\b');
        fail(ErrorCode::unsupported, "a word boundary");
        return {};
      case '0':
        if (!done() && text_[at_] >= '0' && text_[at_] <= '9') fail(ErrorCode::unsupported, "an octal escape");
        return one(0);
      case 'c':
        if (!done() && ((text_[at_] | 0x20) >= 'a' && (text_[at_] | 0x20) <= 'z')) return one(text_[at_++] & 0x1f);
        fail(ErrorCode::bad_input, "an unfinished \\c");
        return {};
      case 'x': {
        const auto value = hexadecimal(2);
        if (!value) fail(ErrorCode::bad_input, "an unfinished \\x");
        return one(value.value_or(0));
      }
      case 'u': return unicode_escape();
      case 'p':
      case 'P': fail(ErrorCode::unsupported, "a Unicode property"); return {};
      default: break;
    }
    if (c >= '1' && c <= '9') {
      fail(ErrorCode::unsupported, "a back-reference");
    } else if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
      fail(ErrorCode::unsupported, std::string("the escape \\") + char(c));
    }
    return one(c);
  }

  std::vector<uint32_t> text_;
  std::string_view path_;
  const GrammarLimits& limits_;
  size_t at_ = 0;
  std::optional<Error> error_;
};

Node any_text() {
  Node repeat{.kind = Node::Kind::repeat, .least = 0, .most = kNoLimit};
  repeat.parts.push_back({.kind = Node::Kind::set, .set = {kAll}});
  return repeat;
}

bool is_group(const Node& node) { return node.kind == Node::Kind::sequence || node.kind == Node::Kind::choice; }

// Takes anchors away where they stand at the ends, and puts any text where there is none (`open_begin`, `open_end`).
Node anchored(Node node, bool open_begin, bool open_end) {
  if (node.kind == Node::Kind::choice) {
    for (Node& part : node.parts) part = anchored(std::move(part), open_begin, open_end);
    return node;
  }
  if (node.kind != Node::Kind::sequence) {
    Node sequence{.kind = Node::Kind::sequence};
    sequence.parts.push_back(std::move(node));
    node = std::move(sequence);
  }
  size_t begin = 0, end = node.parts.size();
  while (begin < end && node.parts[begin].kind == Node::Kind::begin) ++begin, open_begin = false;
  while (end > begin && node.parts[end - 1].kind == Node::Kind::end) --end, open_end = false;
  if (end == begin + 1 && is_group(node.parts[begin]))
    return anchored(std::move(node.parts[begin]), open_begin, open_end);
  Node all{.kind = Node::Kind::sequence};
  if (open_begin) all.parts.push_back(any_text());
  for (size_t i = begin; i < end; ++i) all.parts.push_back(std::move(node.parts[i]));
  if (open_end && !(open_begin && begin == end)) all.parts.push_back(any_text());
  return all;
}

bool has_anchor(const Node& node) {
  if (node.kind == Node::Kind::begin || node.kind == Node::Kind::end) return true;
  return std::any_of(node.parts.begin(), node.parts.end(), has_anchor);
}

struct Writer {
  const ExpressionUse& use;
  const GrammarLimits& limits;
  std::string out = {};
  bool empty_set = false;
  int64_t largest_count = 0;

  void append_character(uint32_t character) {
    const bool plain = (character >= '0' && character <= '9') || (character >= 'a' && character <= 'z') ||
                       (character >= 'A' && character <= 'Z');
    if (plain) {
      out += char(character);
      return;
    }
    std::array<char, 16> escape{};
    std::snprintf(escape.data(), escape.size(), "\\u{%x}", unsigned(character));
    out += escape.data();
  }

  void append_class(const CharacterSet& set) {
    out += '[';
    for (const CharacterRange& range : set) {
      append_character(range.first);
      if (range.last == range.first) continue;
      out += '-';
      append_character(range.last);
    }
    out += ']';
  }

  void append_set(const CharacterSet& wanted) {
    const CharacterSet set = without(normal(wanted), use.excluded);
    const CharacterSet plain = use.json_string ? without(set, {{0, 0x1f}, {'"', '"'}, {'\\', '\\'}}) : set;
    std::string letters;
    if (use.json_string) {
      constexpr std::string_view kEscaped = "\"\\\b\f\n\r\t", kLetters = "\"\\bfnrt";
      for (size_t i = 0; i < kEscaped.size(); ++i) {
        if (contains(set, uint8_t(kEscaped[i]))) letters += kLetters[i];
      }
    }
    if (plain.empty() && letters.empty()) {
      empty_set = true;
      return;
    }
    if (letters.empty()) return append_class(plain);
    out += "(?:";
    if (!plain.empty()) {
      append_class(plain);
      out += '|';
    }
    append_character('\\');
    CharacterSet set_of_letters;
    for (const char c : letters) set_of_letters.push_back({uint8_t(c), uint8_t(c)});
    append_class(normal(std::move(set_of_letters)));
    out += ')';
  }

  // Returns the size, counted repetitions multiplied out.
  int64_t append(const Node& node) {
    switch (node.kind) {
      case Node::Kind::begin:
      case Node::Kind::end: return 0;
      case Node::Kind::set: append_set(node.set); return 1;
      case Node::Kind::sequence:
      case Node::Kind::choice: {
        int64_t size = 0;
        out += "(?:";
        for (size_t i = 0; i < node.parts.size() && size <= limits.expression_size; ++i) {
          if (i > 0 && node.kind == Node::Kind::choice) out += '|';
          size += append(node.parts[i]);
        }
        out += ')';
        return size;
      }
      case Node::Kind::repeat: {
        if (node.most == 0) return 0;
        largest_count = std::max({largest_count, node.least, node.most});
        out += "(?:";
        const int64_t size = append(node.parts[0]);
        out += "){" + std::to_string(node.least) + ',' + (node.most == kNoLimit ? "" : std::to_string(node.most)) + '}';
        return std::min(limits.expression_size + 1, size * std::max<int64_t>({node.least, node.most, 1}));
      }
    }
    return 0;
  }
};

// Parts that may be left out, or repeated: an automaton may be in as many states at once. 1,000 stars in a row made a
// mask take 40 s.
int64_t options_of(const Node& node, int64_t most) {
  int64_t options = 0;
  for (const Node& part : node.parts) options = std::min(most + 1, options + options_of(part, most));
  if (node.kind != Node::Kind::repeat || node.most == 0) return options;
  const int64_t copies = std::max<int64_t>({node.least, node.most, 1});
  return std::min(most + 1, options * copies + (node.most == kNoLimit ? 1 : node.most - node.least));
}

// One set, counted often: a rule of its own can count without being written out.
const Node* counted_set(const Node& node, const GrammarLimits& limits) {
  const Node* one = &node;
  while (is_group(*one) && one->parts.size() == 1) one = &one->parts[0];
  if (one->kind != Node::Kind::repeat || one->parts[0].kind != Node::Kind::set) return nullptr;
  return std::max(one->least, one->most) > limits.expression_repetitions ? one : nullptr;
}

}  // namespace

Result<GrammarBuilder::Expression> read_expression(GrammarBuilder& builder, std::string_view expression,
                                                   std::string_view path, const ExpressionUse& use,
                                                   const GrammarLimits& limits) {
  if (int64_t(expression.size()) > limits.text_bytes) {
    return Error{ErrorCode::out_of_range, "the expression has " + std::to_string(expression.size()) + " bytes",
                 std::string(path), "at most " + std::to_string(limits.text_bytes) + " are possible"};
  }
  if (valid_utf8_prefix(expression) != expression.size()) {
    return Error{ErrorCode::bad_input, "the expression is no UTF-8", std::string(path), "correct it"};
  }
  auto tree = Reader(characters_of(expression), path, limits).read();
  if (!tree) return tree.error();
  const Node node = anchored(std::move(*tree), use.search, use.search);
  if (has_anchor(node)) {
    return Error{ErrorCode::unsupported, "the expression has an anchor in its middle", std::string(path),
                 "^ and $ can stand at its ends, or at the ends of its alternatives"};
  }
  const Error nothing_left = {ErrorCode::unsupported,
                              "the expression has a set of characters of which none can be written", std::string(path),
                              "correct it"};
  if (const Node* counted = counted_set(node, limits)) {
    // What ends the text must not be in the set, else counting is slow.
    const CharacterSet ends =
        use.json_string ? CharacterSet{{0, 0x1f}, {'"', '"'}, {'\\', '\\'}} : CharacterSet{{'<', '<'}};
    const auto set = builder.characters(without(without(normal(counted->parts[0].set), use.excluded), ends));
    if (set == builder.never()) return nothing_left;
    const auto quote = use.json_string ? builder.literal("\"") : builder.nothing();
    return builder.sequence({quote, builder.repeat(set, counted->least, counted->most), quote});
  }
  Writer writer{.use = use, .limits = limits};
  if (use.json_string) writer.append_character('"');
  const int64_t size = writer.append(node);
  if (use.json_string) writer.append_character('"');
  if (writer.largest_count > limits.expression_repetitions) {
    return Error{ErrorCode::out_of_range, "the expression repeats " + std::to_string(writer.largest_count) + " times",
                 std::string(path), "at most " + std::to_string(limits.expression_repetitions) + " are possible"};
  }
  if (size > limits.expression_size) {
    return Error{ErrorCode::out_of_range, "the expression is too large when its repetitions are written out",
                 std::string(path), "at most " + std::to_string(limits.expression_size) + " characters are possible"};
  }
  if (options_of(node, limits.expression_options) > limits.expression_options) {
    return Error{ErrorCode::out_of_range, "too many parts of the expression may be left out or repeated",
                 std::string(path),
                 "at most " + std::to_string(limits.expression_options) + ", counted repetitions multiplied out"};
  }
  if (writer.empty_set) return nothing_left;
  return builder.regular(std::move(writer.out));
}

}  // namespace fathom::grammar
