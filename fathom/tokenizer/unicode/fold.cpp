#include "fathom/tokenizer/unicode/fold.h"

#include <algorithm>

#include "fathom/tokenizer/unicode/fold_table.h"
#include "fathom/tokenizer/unicode/utf8.h"

namespace fathom::unicode {
namespace {

// Hangul syllables decompose by arithmetic (The Unicode Standard, 3.12).
constexpr char32_t kHangul = 0xAC00, kHangulCount = 11172, kLead = 0x1100, kVowel = 0x1161, kTail = 0x11A7;
constexpr char32_t kVowels = 21, kTails = 28;

void append_hangul(std::string& out, char32_t index) {
  append_utf8(out, kLead + index / (kVowels * kTails));
  append_utf8(out, kVowel + index % (kVowels * kTails) / kTails);
  if (index % kTails != 0) append_utf8(out, kTail + index % kTails);
}

void append_folded(std::string& out, char32_t c) {
  if (c - kHangul < kHangulCount) return append_hangul(out, c - kHangul);
  const auto runs = fold_runs();
  const auto after =
      std::upper_bound(runs.begin(), runs.end(), c, [](char32_t x, const FoldRun& r) { return x < r.first; });
  if (after == runs.begin()) return append_utf8(out, c);
  const FoldRun& run = *(after - 1);
  if (c > run.last || (run.step == 2 && (c - run.first) % 2 != 0)) return append_utf8(out, c);
  if (run.length == 0) return;
  if (run.step != 0) return append_utf8(out, char32_t(int32_t(c) + run.value));
  for (const char32_t x : fold_strings().subspan(size_t(run.value) + (c - run.first) * run.length, run.length)) {
    append_utf8(out, x);
  }
}

}  // namespace

std::string fold(std::string_view utf8) {
  std::string out;
  out.reserve(utf8.size());
  for (size_t i = 0; i < utf8.size();) {
    if (const auto byte = uint8_t(utf8[i]); byte < 0x80) {
      out += byte >= 'A' && byte <= 'Z' ? char(byte + 32) : char(byte);
      ++i;
      continue;
    }
    int length = 0;
    append_folded(out, decode_utf8(utf8.data() + i, length));
    i += size_t(length);
  }
  return out;
}

}  // namespace fathom::unicode
