// fathom/tokenizer/stages/pre_tokenizer.h
// Cuts text into the pieces within which bytes may merge. tokenizer.json describes three regular expressions that split
// one after the other: digits, CJK runs, then words, punctuation and white space. Here they are one pass without a
// regex engine: a number or a change of CJK-ness ends a piece of the first two stages, and the character classes are
// made so that no run of the third stage can cross such an end. Every character is looked at a bounded number of times.
// Source: spec/tokenizer.md 3; checked on a<c>a for every code point c.
#pragma once
#include <cstdint>
#include <string_view>

#include "fathom/tokenizer/unicode/character_class.h"
#include "fathom/tokenizer/unicode/utf8.h"

namespace fathom {

class PreTokenizer {
 public:
  /// `digits`: the longest number piece in characters (K of \p{N}{1,K}).
  explicit PreTokenizer(int digits) : digits_(digits), classes_(&unicode::CharacterClasses::get()) {}

  /// Calls `emit(std::string_view)` for each piece from left to right; together they are `text`, which must be valid
  /// UTF-8. No piece is empty.
  template <class Emit>
  void split(std::string_view text, Emit&& emit) const;

 private:
  using Class = unicode::CharacterClass;

  struct Character {
    Class kind;
    int length;  // bytes
  };

  Character at(const char* p) const {
    if (uint8_t(*p) < 0x80) return {classes_->of(uint8_t(*p)), 1};
    int length = 0;
    const char32_t c = unicode::decode_utf8(p, length);
    return {classes_->of(c), length};
  }

  bool is(const char* p, const char* end, Class kind) const { return p < end && at(p).kind == kind; }

  const char* skip(const char* p, const char* end, Class kind) const {
    while (p < end) {
      const Character c = at(p);
      if (c.kind != kind) break;
      p += c.length;
    }
    return p;
  }

  const char* number_end(const char* p, const char* end) const {
    for (int i = 0; i < digits_ && is(p, end, Class::number); ++i) p += at(p).length;
    return p;
  }

  // Alternatives 1 and 3 at a symbol.
  const char* symbol_end(const char* p, const char* end, Class kind) const {
    if (uint8_t(*p) < 0x80 && p + 1 < end && is_ascii_letter(p[1])) {
      for (++p; p < end && is_ascii_letter(*p);) ++p;
      return p;
    }
    p = skip(p, end, kind);
    return kind == Class::symbol ? skip(p, end, Class::line_break) : p;  // a CJK run holds no line break
  }

  // Alternatives 2 to 5 at white space.
  const char* white_space_end(const char* p, const char* end, Character first) const {
    if (first.kind == Class::blank) {
      const char* next = p + first.length;
      if (is(next, end, Class::letter)) return skip(next, end, Class::letter);
      if (*p == ' ' && is(next, end, Class::symbol)) {
        return skip(skip(next, end, Class::symbol), end, Class::line_break);
      }
    }
    const char *last_break = nullptr, *last = p, *q = p;
    Class after = Class::number;  // the end of the text ends a piece as a number does
    while (q < end) {
      const Character c = at(q);
      after = c.kind;
      if (c.kind != Class::blank && c.kind != Class::line_break) break;
      after = Class::number;
      last = q;
      q += c.length;
      if (c.kind == Class::line_break) last_break = q;
    }
    if (last_break) return last_break;
    const bool piece_ends = after == Class::number || is_cjk(after);
    return piece_ends || last == p ? q : last;  // else the last blank is left for the next match
  }

  static bool is_ascii_letter(char c) { return uint8_t((c | 0x20) - 'a') < 26; }

  int digits_;
  const unicode::CharacterClasses* classes_;
};

template <class Emit>
void PreTokenizer::split(std::string_view text, Emit&& emit) const {
  const char* const end = text.data() + text.size();
  const char* gap = text.data();  // characters that no alternative takes form a piece together
  Class gap_kind = Class::other;
  const char* p = gap;
  const auto piece = [&](const char* to) {
    emit(std::string_view(p, size_t(to - p)));
    p = gap = to;
  };
  const auto close_gap = [&] {
    if (gap < p) emit(std::string_view(gap, size_t(p - gap)));
    gap = p;
  };
  while (p < end) {
    const Character c = at(p);
    if (c.kind != gap_kind && gap < p) close_gap();
    switch (c.kind) {
      case Class::letter:
      case Class::cjk_letter: piece(skip(p + c.length, end, c.kind)); break;
      case Class::symbol:
      case Class::cjk_symbol: piece(symbol_end(p, end, c.kind)); break;
      case Class::number: piece(number_end(p, end)); break;
      case Class::blank:
      case Class::line_break: piece(white_space_end(p, end, c)); break;
      case Class::other:
      case Class::cjk_other: {
        // Alternative 2 takes one such character in front of letters, so it leaves the gap.
        const Class letters = c.kind == Class::other ? Class::letter : Class::cjk_letter;
        const char* next = p + c.length;
        if (is(next, end, letters)) {
          close_gap();
          piece(skip(next, end, letters));
        } else {
          p = next;
          gap_kind = c.kind;
        }
        break;
      }
    }
  }
  close_gap();
}

}  // namespace fathom
