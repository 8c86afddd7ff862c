#include "fathom/recipe/schema/pattern.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "fathom/recipe/schema/check_schema.h"

namespace fathom::recipe {
namespace schema {
namespace {

// What stands before the reading position, as far as a quantifier may follow it.
enum class Last : uint8_t { nothing, atom, edge, unrepeatable, quantified };

// An open group (or the whole pattern): what its closing parenthesis makes of it.
struct Group {
  enum class Kind : uint8_t { capturing, plain, look };
  Kind kind = Kind::plain;
  int items = 0;              // atoms and edges in it, up to 2
  bool alternatives = false;  // there is a "|"
  bool only_look = false;     // its first item is a look-around
};

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

int hex_value(char c) {
  if (is_digit(c)) return c - '0';
  const char low = char(c | 0x20);
  return low >= 'a' && low <= 'f' ? low - 'a' + 10 : -1;
}

class Parser {
 public:
  Parser(std::string_view text, Dialect dialect) : text_(text), extended_(dialect == Dialect::extended) {}

  bool run() {
    groups_.push_back({});
    while (at_ < text_.size()) {
      if (!step()) return false;
    }
    return groups_.size() == 1 && largest_reference_ <= captures_;
  }

 private:
  std::string_view text_;
  bool extended_;
  size_t at_ = 0;
  Last last_ = Last::nothing;
  std::vector<Group> groups_;
  int64_t captures_ = 0, largest_reference_ = 0;
  std::unordered_set<std::string_view> names_;

  bool at_end() const { return at_ >= text_.size(); }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  std::string_view rest() const { return text_.substr(at_); }
  bool take(std::string_view expected) {
    if (!rest().starts_with(expected)) return false;
    at_ += expected.size();
    return true;
  }

  bool item(Last kind) {
    Group& group = groups_.back();
    if (group.items == 0) group.only_look = kind == Last::unrepeatable;
    group.items = std::min(group.items + 1, 2);
    last_ = kind;
    return true;
  }

  bool step() {
    const char c = text_[at_];
    switch (c) {
      case '\\': return escape();
      case '[': return character_class();
      case '(': return open();
      case ')': return close();
      case '|':
        ++at_;
        groups_.back().alternatives = true;
        last_ = Last::nothing;
        return true;
      case '^':
      case '$': ++at_; return item(Last::edge);
      case '*':
      case '+':
      case '?': ++at_; return quantify(false);
      case '{': return counts() && quantify(true);
      case '}':
      case ']':
        if (!extended_) return false;
        [[fallthrough]];
      default: ++at_; return item(Last::atom);
    }
  }

  // -- quantifiers -----------------------------------------------------------------------------------------------

  bool quantify(bool counted) {
    if (last_ == Last::nothing || last_ == Last::unrepeatable) return false;
    if (last_ == Last::edge && !extended_) return false;
    if (last_ == Last::quantified && !(counted && extended_)) return false;
    // A count behind a quantified piece repeats all of it, and what results is a piece again: a*{2}+ but not a**.
    const bool again = last_ == Last::quantified;
    last_ = again ? Last::atom : Last::quantified;
    if (!again && !at_end() && (peek() == '?' || (peek() == '+' && extended_))) ++at_;
    return true;
  }

  void skip_blanks() {
    while (extended_ && peek() == ' ' && !at_end()) ++at_;
  }

  std::optional<uint64_t> count() {
    skip_blanks();
    if (at_end() || !is_digit(peek())) return {};
    uint64_t value = 0;
    for (; !at_end() && is_digit(peek()); ++at_) {
      value = value * 10 + uint64_t(peek() - '0');
      if (value > UINT32_MAX) return {};
    }
    skip_blanks();
    return value;
  }

  bool counts() {
    ++at_;
    const auto least = count();
    if (!least) return false;
    if (take("}")) return true;
    if (!take(",")) return false;
    skip_blanks();
    if (take("}")) return true;
    const auto most = count();
    return most && *most >= *least && take("}");
  }

  // -- groups ----------------------------------------------------------------------------------------------------

  bool push(Group::Kind kind) {
    groups_.push_back({kind});
    last_ = Last::nothing;
    return true;
  }

  bool open() {
    ++at_;
    if (!take("?")) {
      ++captures_;
      return push(Group::Kind::capturing);
    }
    if (take(":")) return push(Group::Kind::plain);
    if (take("=") || take("!") || take("<=") || take("<!")) return push(Group::Kind::look);
    if (take("<") || (extended_ && take("P<"))) return name();
    return flags();
  }

  bool name() {
    const size_t begin = at_;
    for (; !at_end() && peek() != '>'; ++at_) {
      const char c = peek();
      const bool first = at_ == begin;
      const bool fits = is_letter(c) || c == '_' || uint8_t(c) >= 0x80 || (!first && is_digit(c)) ||
                        (!first && extended_ && (c == '.' || c == '[' || c == ']'));
      if (!fits) return false;
    }
    if (at_ == begin || !names_.insert(text_.substr(begin, at_ - begin)).second) return false;
    ++captures_;
    return take(">") && push(Group::Kind::capturing);
  }

  bool flags() {
    std::string seen;
    bool negated = false, wanting = true;
    for (; !at_end(); ++at_) {
      const char c = peek();
      if (c == ':' || c == ')') {
        if (wanting || (c == ')' && !extended_)) return false;
        ++at_;
        if (c == ':') return push(Group::Kind::plain);
        last_ = Last::nothing;
        return true;
      }
      if (c == '-') {
        if (negated) return false;
        negated = wanting = true;
        continue;
      }
      if (std::string_view(extended_ ? "imsuxUR" : "ims").find(c) == std::string_view::npos) return false;
      if (seen.find(c) != std::string::npos) return false;
      seen += c;
      wanting = false;
    }
    return false;
  }

  bool close() {
    if (groups_.size() == 1) return false;
    ++at_;
    const Group group = groups_.back();
    groups_.pop_back();
    if (group.kind == Group::Kind::look) return item(Last::unrepeatable);
    // A group that stands for nothing or for one look-around is as little to be repeated as those.
    const bool hollow = group.kind == Group::Kind::plain && !group.alternatives &&
                        (group.items == 0 || (group.items == 1 && group.only_look));
    return item(hollow ? Last::unrepeatable : Last::atom);
  }

  // -- escapes ---------------------------------------------------------------------------------------------------

  // One character out of hexadecimal digits; `digits` of them, or any number up to eight in braces.
  std::optional<int32_t> code_point(int digits, bool braces) {
    int64_t value = 0;
    if (braces && take("{")) {
      int read = 0;
      for (; !at_end() && hex_value(peek()) >= 0; ++at_, ++read) value = read < 8 ? value * 16 + hex_value(peek()) : -1;
      if (read == 0 || read > 8 || !take("}")) return {};
    } else {
      for (int i = 0; i < digits; ++i, ++at_) {
        if (at_end() || hex_value(peek()) < 0) return {};
        value = value * 16 + hex_value(peek());
      }
    }
    if (value > 0x10ffff || (value >= 0xd800 && value <= 0xdfff)) return {};
    return int32_t(value);
  }

  bool property() {
    if (!take("{")) {  // \pL
      return extended_ && !at_end() && known_property(text_.substr(at_++, 1));
    }
    const size_t end = text_.find('}', at_);
    if (end == std::string_view::npos) return false;
    std::string_view name = text_.substr(at_, end - at_);
    at_ = end + 1;
    if (extended_ && name.starts_with('^')) name.remove_prefix(1);
    const bool strict = std::all_of(name.begin(), name.end(),
                                    [](char c) { return is_letter(c) || is_digit(c) || c == '_' || c == '='; });
    return (extended_ || strict) && known_property(name);
  }

  static constexpr int32_t kBad = -1, kSet = -2;

  // What means the same inside and outside of a class, behind the backslash: the character; kSet for a set; kBad.
  int32_t common_escape(char c) {
    switch (c) {
      case 'd':
      case 'D':
      case 'w':
      case 'W':
      case 's':
      case 'S': return kSet;
      case 'p':
      case 'P': return property() ? kSet : kBad;
      case 'f': return '\f';
      case 'n': return '\n';
      case 'r': return '\r';
      case 't': return '\t';
      case 'v': return '\v';
      case 'c': return !at_end() && is_letter(peek()) ? text_[at_++] & 31 : kBad;
      case 'x': return code_point(2, extended_).value_or(kBad);
      case 'u': return code_point(4, true).value_or(kBad);
      case 'U': return extended_ ? code_point(8, true).value_or(kBad) : kBad;
      default: return uint8_t(c) < 0x80 && !is_letter(c) && !is_digit(c) && uint8_t(c) >= 0x20 ? c : kBad;
    }
  }

  bool escape() {
    ++at_;
    if (at_end()) return false;
    const char c = text_[at_++];
    if (c >= '1' && c <= '9') {  // a back-reference; to a later group as well
      --at_;
      const auto number = count();
      if (!number) return false;
      largest_reference_ = std::max(largest_reference_, int64_t(*number));
      return item(Last::atom);
    }
    if (c == 'b' || c == 'B') {
      if (extended_ && c == 'b' && peek() == '{') {
        for (const char* edge : {"{start}", "{end}", "{start-half}", "{end-half}"}) {
          if (take(edge)) break;
        }
      }
      return item(Last::edge);
    }
    if (c == 'A' || c == 'z') return extended_ && item(Last::edge);
    return common_escape(c) != kBad && item(Last::atom);
  }

  // -- classes ---------------------------------------------------------------------------------------------------

  int32_t character() {
    const uint8_t lead = uint8_t(text_[at_++]);
    int more = lead < 0x80 ? 0 : lead < 0xe0 ? 1 : lead < 0xf0 ? 2 : 3;
    int32_t value = more == 0 ? lead : lead & (0x3f >> more);
    for (; more > 0 && !at_end() && (uint8_t(peek()) & 0xc0) == 0x80; --more, ++at_)
      value = value << 6 | (peek() & 0x3f);
    return value;
  }

  int32_t class_member() {
    if (!take("\\")) return character();
    if (at_end()) return kBad;
    const char c = text_[at_++];
    if (c == 'a' && extended_) return '\a';
    return common_escape(c);
  }

  bool character_class() {
    ++at_;
    take("^");
    for (bool first = true;; first = false) {
      if (at_end()) return false;
      if (peek() == ']' && !(first && extended_)) {
        if (first) return false;
        ++at_;
        return item(Last::atom);
      }
      const int32_t low = class_member();
      if (low == kBad) return false;
      if (peek() != '-' || at_end() || rest().starts_with("-]")) continue;
      ++at_;
      if (at_end()) return false;
      const int32_t high = class_member();
      if (low < 0 || high < 0 || high < low) return false;
    }
  }
};

}  // namespace

bool valid_pattern(std::string_view pattern, Dialect dialect) { return Parser(pattern, dialect).run(); }

}  // namespace schema

bool valid_pattern(std::string_view pattern) { return schema::valid_pattern(pattern, schema::Dialect::extended); }

}  // namespace fathom::recipe
