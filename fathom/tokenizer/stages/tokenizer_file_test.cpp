#include "fathom/tokenizer/stages/tokenizer_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fathom/base/json.h"
#include "fathom/tokenizer/sample_tokenizer.h"

namespace fathom {
namespace {

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

TEST(TokenizerFile, ReadsTokensMergesAndTheDigitLimit) {
  const auto file = read_tokenizer_file(sample::tokenizer_json(), "sample");
  ASSERT_TRUE(file.ok()) << to_string(file.error());
  EXPECT_EQ(file->tokens.size(), 266u);
  EXPECT_EQ(file->merges.size(), 5u);
  EXPECT_EQ(file->merges[2].left, 259);
  EXPECT_EQ(file->merges[2].right, 260);
  EXPECT_EQ(file->merges[2].result, 261);
  EXPECT_EQ(file->digits, 3);
  EXPECT_EQ(file->tokens[3].bytes, std::string(1, '\0'));
  EXPECT_EQ(file->tokens[264].kind, TokenizerFile::Kind::added);
  EXPECT_EQ(file->tokens[2].kind, TokenizerFile::Kind::special);
  EXPECT_EQ(file->tokens[0].bytes, "<｜begin▁of▁sentence｜>");
}

// What spec/tokenizer.md 7 lets vary.
TEST(TokenizerFile, AcceptsWhatVariesBetweenTheFilesOfTheFamily) {
  const std::string json = sample::tokenizer_json();
  const std::pair<std::string_view, std::string_view> changes[] = {
      {R"(["h","e"])", R"("h e")"},                                                      // merges as strings
      {R"("normalizer":null)", R"("normalizer":{"type":"Sequence","normalizers":[]})"},  // an empty normalizer
      {R"("normalizer":null,)", ""},                                                     //
      {R"(\\p{N}{1,3})", R"(\\p{N}{1,1})"},                                              // single digits
      {R"("ignore_merges":false,)", ""},                                                 // an older writer
      {R"("post_processor":null)",
       R"("post_processor":{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":false,"use_regex":true})"},
      {R"("id":265)", R"("id":300)"},  // ids between may be unused
  };
  for (const auto& [from, to] : changes) {
    const auto file = read_tokenizer_file(replaced(json, from, to), "sample");
    EXPECT_TRUE(file.ok()) << to << ": " << to_string(file.error());
  }
  EXPECT_EQ(read_tokenizer_file(replaced(json, R"(\\p{N}{1,3})", R"(\\p{N}{1,1})"), "sample")->digits, 1);
}

struct Refusal {
  std::string_view from, to, key;
};

class RefusedTokenizerFile : public testing::TestWithParam<Refusal> {};

TEST_P(RefusedTokenizerFile, NamesTheKeyThatDiffers) {
  const auto& [from, to, key] = GetParam();
  const auto file = read_tokenizer_file(replaced(sample::tokenizer_json(), from, to), "sample.json");
  ASSERT_FALSE(file.ok()) << to;
  EXPECT_EQ(file.error().code, ErrorCode::bad_input);
  EXPECT_EQ(file.error().where, "sample.json, " + std::string(key)) << to_string(file.error());
  EXPECT_FALSE(file.error().message.empty());
  EXPECT_FALSE(file.error().remedy.empty());
  EXPECT_EQ(to_string(file.error()).find('\n'), std::string::npos);
}

constexpr Refusal kRefusals[] = {
    {R"("version":"1.0")", R"("version":"2.0")", "version"},
    {R"("version":"1.0",)", "", "version"},
    {R"("truncation":null)", R"("truncation":{"max_length":512})", "truncation"},
    {R"("padding":null)", R"("padding":{})", "padding"},
    {R"("padding":null)", R"("padding":null,"surprise":1)", "surprise"},
    {R"("normalizer":null)", R"("normalizer":{"type":"NFC"})", "normalizer.type"},
    {R"("normalizer":null)", R"("normalizer":"NFC")", "normalizer"},
    {R"("normalizer":null)", R"("normalizer":{"type":"Sequence","normalizers":[{"type":"NFC"}]})",
     "normalizer.normalizers"},
    {R"("pre_tokenizer":{"type":"Sequence")", R"("pre_tokenizer":{"type":"Whitespace")", "pre_tokenizer.type"},
    {R"("pre_tokenizer")", R"("pre_tokeniser")", "pre_tokeniser"},
    {R"("pretokenizers":[)", R"("pretokenizers":[{},)", "pre_tokenizer.pretokenizers"},
    {R"(\\p{N}{1,3})", R"(\\p{N}+)", "pre_tokenizer.pretokenizers[0].pattern.Regex"},
    {R"(\\p{N}{1,3})", R"(\\p{N}{1,0})", "pre_tokenizer.pretokenizers[0].pattern.Regex"},
    {R"(\\p{N}{1,3})", R"(\\p{N}{1,999})", "pre_tokenizer.pretokenizers[0].pattern.Regex"},
    {R"({"Regex":"\\p{N}{1,3}"})", R"({"String":" "})", "pre_tokenizer.pretokenizers[0].pattern.String"},
    {R"({"Regex":"\\p{N}{1,3}"})", R"({"Regex":3})", "pre_tokenizer.pretokenizers[0].pattern.Regex"},
    {R"("pattern":{"Regex":"\\p{N}{1,3}"})", R"("pattern":[])", "pre_tokenizer.pretokenizers[0].pattern"},
    {"[一-龥", "[一-龦", "pre_tokenizer.pretokenizers[1].pattern.Regex"},
    {R"(\\p{M}]+)", R"(\\p{M}]*)", "pre_tokenizer.pretokenizers[2].pattern.Regex"},
    {R"("behavior":"Isolated")", R"("behavior":"Removed")", "pre_tokenizer.pretokenizers[0].behavior"},
    {R"("invert":false)", R"("invert":true)", "pre_tokenizer.pretokenizers[0].invert"},
    {R"("add_prefix_space":false)", R"("add_prefix_space":true)", "pre_tokenizer.pretokenizers[3].add_prefix_space"},
    {R"("use_regex":false)", R"("use_regex":true)", "pre_tokenizer.pretokenizers[3].use_regex"},
    {R"("post_processor":null)", R"("post_processor":{"type":"TemplateProcessing"})", "post_processor.type"},
    {R"("decoder":{"type":"ByteLevel")", R"("decoder":{"type":"Metaspace")", "decoder.type"},
    {R"("post_processor":null,"decoder":)", R"("post_processor":)", "decoder"},
    {R"("model":{"type":"BPE")", R"("model":{"type":"Unigram")", "model.type"},
    {R"("dropout":null)", R"("dropout":0.1)", "model.dropout"},
    {R"("unk_token":null)", R"("unk_token":"<unk>")", "model.unk_token"},
    {R"("continuing_subword_prefix":null)", R"("continuing_subword_prefix":"##")", "model.continuing_subword_prefix"},
    {R"("end_of_word_suffix":null)", R"("end_of_word_suffix":"</w>")", "model.end_of_word_suffix"},
    {R"("fuse_unk":false)", R"("fuse_unk":true)", "model.fuse_unk"},
    {R"("byte_fallback":false)", R"("byte_fallback":true)", "model.byte_fallback"},
    {R"("ignore_merges":false)", R"("ignore_merges":true)", "model.ignore_merges"},
    {R"("ignore_merges":false)", R"("ignore_merges":false,"novelty":0)", "model.novelty"},
    {R"("vocab":{)", R"("vocab":[],"was":{)", "model.was"},
    {R"("he":259)", R"("he":258)", R"(model.vocab["he"])"},
    {R"("he":259)", R"("he":-1)", "model.vocab"},
    {R"("he":259)", R"("he":2147483647)", "model.vocab"},
    {R"("he":259)", R"("he":"x")", R"(model.vocab["he"])"},
    {R"("he":259)", R"("":259)", R"(model.vocab[""])"},
    {R"("he":259)", R"("h e":259)", R"(model.vocab["h e"])"},
    {R"(,"he":259)", "", "model.merges[0]"},
    {R"("Z":93)", R"("ZZ":93)", R"(model.vocab["Z"])"},
    {R"(["h","e"])", R"("h  e")", "model.merges[0]"},
    {R"(["h","e"])", R"(["h","e","l"])", "model.merges[0]"},
    {R"(["h","e"])", R"(7)", "model.merges[0]"},
    {R"(["he","ll"])", R"(["hx","ll"])", "model.merges[2]"},
    {R"(["he","ll"])", R"(["h","h"])", "model.merges[2]"},
    {R"(["aa","aa"])", R"(["a","a"])", "model.merges[4]"},
    {R"("merges":[)", R"("merges":{},"more":[)", "model.more"},
    {R"("added_tokens":[)", R"("added_tokens":{},"others":[)", "others"},
    {R"("added_tokens":[)", R"("added_tokens":[1,)", "added_tokens[0]"},
    {R"("id":264)", R"("id":1e99)", "added_tokens[3].id"},
    {R"("id":264)", R"("id":261)", "added_tokens"},
    {R"("id":265)", R"("id":264)", "added_tokens"},
    {R"("id":2,)", R"("id":3,)", R"(model.vocab["<｜▁pad▁｜>"])"},
    {R"("content":"<think>>")", R"("content":"<think>")", "added_tokens[4].content"},
    {R"("content":"<think>>")", R"("content":"")", "added_tokens[4].content"},
    {R"("content":"<think>>",)", "", "added_tokens[4].content"},
    {R"("single_word":false)", R"("single_word":true)", "added_tokens[0].single_word"},
    {R"("lstrip":false)", R"("lstrip":true)", "added_tokens[0].lstrip"},
    {R"("rstrip":false)", R"("rstrip":true)", "added_tokens[0].rstrip"},
    {R"("normalized":false)", R"("normalized":0)", "added_tokens[0].normalized"},
    {R"("special":true)", R"("special":1)", "added_tokens[0].special"},
    {R"("special":true)", R"("special":true,"extra":1)", "added_tokens[0].extra"},
};

INSTANTIATE_TEST_SUITE_P(Changes, RefusedTokenizerFile, testing::ValuesIn(kRefusals),
                         [](const auto& info) { return std::to_string(info.index); });

TEST(TokenizerFile, ABeginTokenOfAnotherNameIsRefused) {
  std::string json = sample::tokenizer_json();
  for (int i = 0; i < 2; ++i) json = replaced(json, "<｜begin▁of▁sentence｜>", "<s>");
  const auto file = read_tokenizer_file(json, "sample.json");
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.error().where, "sample.json, added_tokens");
  EXPECT_THAT(file.error().message, testing::HasSubstr("<｜begin▁of▁sentence｜>"));
}

TEST(TokenizerFile, AFileThatIsNoObjectIsRefused) {
  const auto file = read_tokenizer_file("[]", "sample.json");
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.error().where, "sample.json, the whole file");
}

TEST(TokenizerFile, EveryTruncationIsRefused) {
  const std::string json = sample::tokenizer_json();
  for (size_t length = 0; length < json.size(); length += 7) {
    EXPECT_FALSE(read_tokenizer_file(std::string_view(json).substr(0, length), "cut").ok()) << length;
  }
}

}  // namespace
}  // namespace fathom
