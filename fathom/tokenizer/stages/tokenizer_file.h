// fathom/tokenizer/stages/tokenizer_file.h
// tokenizer.json as data, and the proof that it says what we do. We read one family of files; a file that asks for
// anything else (another split, a normalizer, another model) would give other ids, so it is refused with the key.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fathom/base/result.h"

namespace fathom {

/// Ids are below this; the published file has 129,280. A bound, because tables are as long as the largest id.
inline constexpr int32_t kMostTokenIds = (1 << 20) - 1;

struct TokenizerFile {
  enum class Kind : uint8_t { absent, base, added, special };  // special: added, and skipped by a skip-special decode
  struct Token {
    std::string bytes;  // base: the bytes it stands for; added: its spelling
    Kind kind = Kind::absent;
    bool normalized = false;  // added: looked for after normalisation, which is after the others have been found
  };
  struct Merge {
    int32_t left, right, result;
  };

  std::vector<Token> tokens;  // by id
  std::vector<Merge> merges;  // by rank
  int digits = 3;             // longest piece of stage 1: K of \p{N}{1,K}
};

/// Errors: bad_input; `where` of the error is "<where>, <JSON key>", e.g. "tokenizer.json, model.merges[17]".
/// Source: spec/tokenizer.md 1, 2, 7.
Result<TokenizerFile> read_tokenizer_file(std::string_view json, std::string_view where);

}  // namespace fathom
