// Three targets in one, chosen by the first byte: the rest is a tokenizer.json; or a text that a small tokenizer must
// take there and back in every way it can be encoded; or changes to the small tokenizer's file.
#include <cstdint>

#include "fathom/base/check.h"
#include "fathom/tokenizer/compressed_vocabulary.h"
#include "fathom/tokenizer/sample_tokenizer.h"
#include "fathom/tokenizer/tokenizer.h"
#include "fathom/tokenizer/unicode/utf8.h"
#include "fathom/tokenizer/utf8_stream.h"

namespace fathom {
namespace {

void read_file_text(std::string_view json) {
  const auto tokenizer = Tokenizer::parse(json, "fuzz");
  if (!tokenizer) {
    check(!to_string(tokenizer.error()).empty(), "an error without a text");
    return;
  }
  const auto ids = tokenizer->encode("<think>hello 12345 中文 \n\n\xff");
  for (const int32_t id : ids) check(tokenizer->is_known(id), "an id that is none");
  static_cast<void>(compress_vocabulary(*tokenizer));
}

// The sample with a few random byte changes: nearer to a file than what a fuzzer finds from nothing.
void read_altered_sample(std::string_view changes) {
  std::string json = sample::tokenizer_json();
  for (; changes.size() >= 3; changes.remove_prefix(3)) {
    const size_t at = (size_t(uint8_t(changes[0])) << 8 | uint8_t(changes[1])) % json.size();
    json[at] = changes[2];
  }
  read_file_text(json);
}

void there_and_back(std::string_view text) {
  static const Tokenizer tokenizer = *Tokenizer::parse(sample::tokenizer_json(), "sample");
  std::string valid;
  unicode::append_replacing(valid, text);
  check(unicode::valid_utf8_prefix(valid) == valid.size(), "a replaced text is ill-formed");
  const auto ids = tokenizer.encode(text), plain = tokenizer.encode_plain(text);
  check(tokenizer.decode(ids) == valid, "encode, decode");
  check(tokenizer.decode(plain) == valid, "encode_plain, decode");
  check(tokenizer.encode(valid) == ids, "ill-formed text is not as its replacement");
  check(*tokenizer.encode(text, {}) == plain, "a prompt without ranges is not plain");
  Utf8Stream stream;
  std::string streamed;
  for (const int32_t id : ids) streamed += stream.push(tokenizer.bytes_of(id));
  check(streamed == valid && stream.held().empty(), "the stream is not the text");
  Utf8Stream raw;
  streamed.clear();
  for (const char byte : text) streamed += raw.push(std::string_view(&byte, 1));
  if (!raw.held().empty()) streamed += unicode::kReplacement;
  check(streamed == valid, "the stream of raw bytes is not the text");
  check(!compression_key(valid).empty() || valid.empty(), "an empty key");
}

}  // namespace
}  // namespace fathom

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 3) {
    case 0: fathom::read_file_text(rest); break;
    case 1: fathom::there_and_back(rest); break;
    default: fathom::read_altered_sample(rest); break;
  }
  return 0;
}
