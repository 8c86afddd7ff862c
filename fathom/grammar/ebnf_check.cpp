#include "fathom/grammar/ebnf_check.h"

#include <algorithm>
#include <string>
#include <vector>

#include "fathom/tokenizer/tokenizer.h"

namespace fathom::grammar {
namespace {

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

// One pass over the text; what it does not know it passes by.
struct Scanner {
  std::string_view text;
  const GrammarLimits& limits;
  size_t at = 0;
  int64_t rules = 0;
  std::vector<int64_t> sizes = {1};  // of open groups: their largest part, counted repetitions multiplied out
  int64_t part = 1;                  // size of the part just read

  Error error(ErrorCode code, const std::string& what, const std::string& remedy) const {
    return Error{code, "the grammar has " + what, "ebnf, character " + std::to_string(at + 1), remedy};
  }
  char next_visible(size_t from) const {
    while (from < text.size() && is_space(text[from])) ++from;
    return from < text.size() ? text[from] : '\0';
  }

  // Passes over "…" or […]; false: it does not end.
  bool pass(char end) {
    for (++at; at < text.size() && text[at] != end; ++at) {
      if (text[at] == '\\') ++at;
    }
    return at < text.size();
  }

  Result<void> count() {
    int64_t largest = 0, number = 0;
    for (++at; at < text.size() && text[at] != '}'; ++at) {
      number = is_digit(text[at]) ? std::min<int64_t>(number * 10 + (text[at] - '0'), kLongestAnswerBytes) : 0;
      largest = std::max(largest, number);
    }
    part *= std::max<int64_t>(largest, 1);
    if (largest > limits.repetitions || part > limits.expression_size) {
      return error(ErrorCode::out_of_range, "a repetition that is too large",
                   "at most " + std::to_string(limits.repetitions) + " times, nested ones multiplied at most " +
                       std::to_string(limits.expression_size));
    }
    sizes.back() = std::max(sizes.back(), part);
    return {};
  }

  Result<void> run() {
    for (; at < text.size(); ++at) {
      const char c = text[at];
      if (c == '#') {
        while (at < text.size() && text[at] != '\n') ++at;
      } else if (c == '"' || c == '[') {
        part = 1;
        if (!pass(c == '"' ? '"' : ']')) return error(ErrorCode::bad_input, "an unclosed quote or class", "correct it");
        if (c == '[' && next_visible(at + 1) == ':')
          return error(ErrorCode::unsupported, "rule options", "leave them out");
      } else if (is_letter(c)) {
        part = 1;
        while (at + 1 < text.size() &&
               (is_letter(text[at + 1]) || is_digit(text[at + 1]) || text[at + 1] == '-' || text[at + 1] == '.'))
          ++at;
        if (at + 1 < text.size() && text[at + 1] == '(') {
          return error(ErrorCode::unsupported, "a macro", "write it as rules, or put a space before the group");
        }
      } else if (c == '(') {
        if (next_visible(at + 1) == '=') return error(ErrorCode::unsupported, "a look-ahead", "leave it out");
        sizes.push_back(1);
        if (int64_t(sizes.size()) > limits.depth) {
          return error(ErrorCode::out_of_range, "groups nested deeper than " + std::to_string(limits.depth),
                       "use rules");
        }
      } else if (c == ')') {
        if (sizes.size() < 2) return error(ErrorCode::bad_input, "an unmatched ')'", "correct it");
        part = sizes.back();
        sizes.pop_back();
        sizes.back() = std::max(sizes.back(), part);
      } else if (c == '{') {
        if (auto fits = count(); !fits) return fits;
      } else if (c == ':' && ++rules > 2 * limits.rules) {  // "::=" has two
        return error(ErrorCode::out_of_range, "too many rules", "at most " + std::to_string(limits.rules));
      }
    }
    return {};
  }
};

constexpr std::string_view kMacros[] = {"Regex",        "TagDispatch",      "Token",
                                        "ExcludeToken", "TokenTagDispatch", "Substring"};

}  // namespace

Result<void> check_ebnf(std::string_view text, const GrammarLimits& limits) {
  if (int64_t(text.size()) > limits.text_bytes) {
    return Error{ErrorCode::out_of_range, "the grammar has " + std::to_string(text.size()) + " bytes", "ebnf",
                 "at most " + std::to_string(limits.text_bytes) + " are possible"};
  }
  if (valid_utf8_prefix(text) != text.size() || text.find('\0') != std::string_view::npos) {
    return Error{ErrorCode::bad_input, "the grammar is no text in UTF-8", "ebnf", "correct it"};
  }
  // Words that would be macros in any place, spaced or not.
  for (const std::string_view macro : kMacros) {
    for (size_t at = text.find(macro); at != std::string_view::npos; at = text.find(macro, at + 1)) {
      size_t end = at + macro.size();
      while (end < text.size() && is_space(text[end])) ++end;
      if (end < text.size() && text[end] == '(') {
        return Error{ErrorCode::unsupported, "the grammar has the macro " + std::string(macro),
                     "ebnf, character " + std::to_string(at + 1), "write it as rules"};
      }
    }
  }
  return Scanner{.text = text, .limits = limits}.run();
}

}  // namespace fathom::grammar
