#include "fathom/tokenizer/compressed_vocabulary.h"

#include <unordered_map>

#include "fathom/tokenizer/unicode/character_class.h"
#include "fathom/tokenizer/unicode/fold.h"
#include "fathom/tokenizer/unicode/utf8.h"

namespace fathom {
namespace {

bool is_white_space(char32_t c) {
  const auto kind = unicode::CharacterClasses::get().of(c);
  return kind == unicode::CharacterClass::blank || kind == unicode::CharacterClass::line_break;
}

std::string_view strip(std::string_view text) {
  int length = 0;
  while (!text.empty() && is_white_space(unicode::decode_utf8(text.data(), length))) text.remove_prefix(size_t(length));
  while (!text.empty()) {
    size_t last = text.size() - 1;
    while ((uint8_t(text[last]) & 0xC0) == 0x80) --last;
    if (!is_white_space(unicode::decode_utf8(text.data() + last, length))) break;
    text = text.substr(0, last);
  }
  return text;
}

}  // namespace

std::string compression_key(std::string_view text) {
  std::string spaced;
  for (const char c : unicode::fold(text)) {
    const bool space = c == ' ' || c == '\t' || c == '\r' || c == '\n';
    if (!space) spaced += c;
    if (space && (spaced.empty() || spaced.back() != ' ')) spaced += ' ';
  }
  if (spaced == " ") return spaced;
  // The definition lets one space survive the strip by calling it U+E000 meanwhile; a U+E000 of the text itself
  // becomes a space by that.
  std::string key;
  for (std::string_view rest = strip(spaced); !rest.empty();) {
    constexpr std::string_view kSentinel = "\uE000";
    const bool sentinel = rest.starts_with(kSentinel);
    key += sentinel ? ' ' : rest[0];
    rest.remove_prefix(sentinel ? kSentinel.size() : 1);
  }
  return key.empty() ? std::string(text) : key;
}

Result<CompressedVocabulary> compress_vocabulary(const Tokenizer& tokenizer) {
  CompressedVocabulary out;
  out.map.reserve(size_t(tokenizer.size()));
  std::unordered_map<std::string, int32_t> seen;
  seen.reserve(size_t(tokenizer.size()));
  for (int32_t id = 0; id < tokenizer.size(); ++id) {
    if (!tokenizer.is_known(id)) {
      return Error{ErrorCode::bad_input, "token id " + std::to_string(id) + " is not used", "tokenizer.json",
                   "Engram needs a token for every id below " + std::to_string(tokenizer.size())};
    }
    // Part of a character, or U+FFFD itself, which a decoder cannot tell from it.
    const std::string text = tokenizer.decode(std::span(&id, 1));
    const bool broken = text.find(unicode::kReplacement) != std::string::npos;
    std::string key = broken ? tokenizer.spelling_of(id) : compression_key(text);
    out.map.push_back(seen.emplace(std::move(key), int32_t(seen.size())).first->second);
  }
  out.size = int32_t(seen.size());
  return out;
}

}  // namespace fathom
