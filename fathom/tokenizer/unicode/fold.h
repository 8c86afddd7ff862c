// fathom/tokenizer/unicode/fold.h
// "Looks alike" as the token compression of Engram understands it: compatibility and accents and case do not count.
#pragma once
#include <string>
#include <string_view>

namespace fathom::unicode {

/// NFKC, then NFD, then all combining marks (M) removed, then lower case (each character by itself), of valid UTF-8.
/// The tables are those of the package `tokenizers` 0.23.3, see tools/generate_unicode_tables.py.
/// Source: spec/model.md 9.1. Thread-safe.
std::string fold(std::string_view utf8);

}  // namespace fathom::unicode
