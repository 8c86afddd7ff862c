// All rows of requests.jsonl from the conversation on, and of prompt_tokens.jsonl to the token ids.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "fathom/base/sha256.h"
#include "fathom/recipe/prompt.h"
#include "fathom/recipe/testing/conversation_json.h"
#include "fathom/tokenizer/sample_tokenizer.h"

namespace fathom::recipe {
namespace {

std::string vector_file(const char* file) { return sample::shared("vectors/recipe/") + file; }

ModelVersion version_of(const Json& row) {
  return row.find("expect")->find("model_version")->text == "v4" ? ModelVersion::v4 : ModelVersion::v41;
}

TokenSpellings spellings_of(const Json& row) {
  TokenSpellings spellings;
  const Json* options = row.find("options");
  const Json* changed = options ? options->find("special_tokens") : nullptr;
  for (int i = 0; changed && i < kSpecialTokens; ++i) {
    if (const Json* spelling = changed->find(name_of(SpecialToken(i)))) spellings[SpecialToken(i)] = spelling->text;
  }
  return spellings;
}

Json ranges_of(const Prompt& prompt) {
  Json ranges = Json::array();
  for (const SpecialRange& range : prompt.special) {
    Json pair = Json::array();
    pair.push(Json::of(range.begin));
    pair.push(Json::of(range.end));
    ranges.push(std::move(pair));
  }
  return ranges;
}

// In one row the user spells the image token in front of the image's own.
void correct_images(const std::string& row, Conversation& conversation, std::string_view image_token) {
  if (row != "chat/image-token-literal") return;
  Message& message = conversation.messages[0];
  message.images[0].offset = int64_t(message.content.rfind(image_token));
}

TEST(PromptVectors, EveryRequestHasItsPromptItsRangesAndItsImages) {
  if (!std::filesystem::exists(vector_file("requests.jsonl"))) GTEST_SKIP() << "no vectors: set FATHOM_SHARED";
  const auto rows = sample::json_lines(vector_file("requests.jsonl"));
  for (const Json& row : rows) {
    const std::string& name = row.find("name")->text;
    const Json& expect = *row.find("expect");
    const TokenSpellings spellings = spellings_of(row);
    Conversation conversation =
        vectors::conversation_from(*expect.find("conversation"), spellings[SpecialToken::image]);
    correct_images(name, conversation, spellings[SpecialToken::image]);
    const Prompt prompt = render(conversation, version_of(row), spellings);
    EXPECT_EQ(prompt.text, expect.find("prompt")->text) << name;
    EXPECT_EQ(to_string(ranges_of(prompt)), to_string(*expect.find("special_ranges_bytes"))) << name;
    const Json& images = *expect.find("image_sources");
    ASSERT_EQ(prompt.images.size(), images.items.size()) << name;
    for (size_t i = 0; i < prompt.images.size(); ++i) {
      const Json& image = images.items[i];
      EXPECT_EQ(prompt.images[i].data, vectors::text_of(image, vectors::text_of(image, "kind"))) << name;
      EXPECT_EQ(prompt.images[i].path, vectors::text_of(image, "path")) << name;
      EXPECT_EQ(name_of(prompt.images[i].detail), vectors::text_of(image, "detail")) << name;
    }
  }
  EXPECT_EQ(rows.size(), 254u);
}

// vectors/recipe/README.md: the V4 file with three spellings replaced, as compact JSON.
std::string as_v41(std::string tokenizer_json) {
  auto json = parse_json(tokenizer_json, "tokenizer.json");
  check(json.ok(), "tokenizer.json parses");
  const std::map<int64_t, const char*> spellings = {
      {128799, "<｜System｜>"}, {129264, "<｜deepseek_image｜>"}, {129279, "<｜place▁holder▁no▁1279｜>"}};
  for (auto& [key, value] : json->fields) {
    if (key != "added_tokens") continue;
    for (Json& token : value.items) {
      const auto changed = spellings.find(*token.find("id")->as_int64());
      if (changed != spellings.end()) token.set("content", Json::of(changed->second));
    }
  }
  return to_string(*json);
}

TEST(PromptVectors, PromptsBecomeTheirTokens) {
  const std::string file = sample::v4_tokenizer();
  if (!std::filesystem::exists(vector_file("prompt_tokens.jsonl"))) GTEST_SKIP() << "no vectors: set FATHOM_SHARED";
  if (!std::filesystem::exists(file)) GTEST_SKIP() << file << " is not there: run scripts/fetch-test-files";
  std::map<std::string, Json> requests;
  for (Json& row : sample::json_lines(vector_file("requests.jsonl"))) {
    std::string name = row.find("name")->text;
    requests.emplace(std::move(name), std::move(row));
  }
  const auto text = read_file(file);
  ASSERT_TRUE(text.ok());
  const std::string derived = as_v41(*text);
  EXPECT_EQ(sha256_text(std::span(reinterpret_cast<const uint8_t*>(derived.data()), derived.size())),
            "fc63521f58783bbd0231fdbe27ba314723949c1b0377afaa4ad9a18c83e27335");
  const auto v4 = Tokenizer::parse(*text, "v4"), v41 = Tokenizer::parse(derived, "v41-derived");
  ASSERT_TRUE(v4.ok() && v41.ok());
  int compared = 0, refused = 0;
  for (const Json& row : sample::json_lines(vector_file("prompt_tokens.jsonl"))) {
    const std::string& name = row.find("name")->text;
    // One row has a request of its own: V4.1 with a tokenizer that lacks its tokens, which any of its requests shows.
    const std::string of = name.substr(name.find('/') + 1);
    const auto request = requests.find(of == "missing-special" ? "chat/text-0" : of);
    ASSERT_NE(request, requests.end()) << "no conversation for " << name;
    const Json& expect = *row.find("expect");
    const TokenSpellings published = spellings_of(request->second), spellings = spellings_of(row);
    Conversation conversation = vectors::conversation_from(*request->second.find("expect")->find("conversation"),
                                                           published[SpecialToken::image]);
    correct_images(request->first, conversation, published[SpecialToken::image]);
    for (Message& message : conversation.messages) {  // the row's spelling of the image token, in each image's place
      for (size_t i = message.images.size(); i-- > 0;) {
        const std::string &from = published[SpecialToken::image], &to = spellings[SpecialToken::image];
        message.content.replace(size_t(message.images[i].offset), from.size(), to);
        for (size_t j = i + 1; j < message.images.size(); ++j) {
          message.images[j].offset += int64_t(to.size()) - int64_t(from.size());
        }
      }
    }
    const Prompt prompt = render(conversation, version_of(request->second), spellings);
    const Tokenizer& tokenizer = row.find("tokenizer")->text == "v4" ? *v4 : *v41;
    const auto ids = encode(prompt, tokenizer);
    if (const Json* error = expect.find("error")) {
      ASSERT_FALSE(ids.ok()) << name;
      EXPECT_NE(error->text.find(ids.error().message), std::string::npos) << name << ": " << ids.error().message;
      ++refused;
      continue;
    }
    EXPECT_EQ(prompt.text, expect.find("prompt")->text) << name;
    ASSERT_TRUE(ids.ok()) << name << ": " << ids.error().message;
    EXPECT_EQ(*ids, sample::ids_of(*expect.find("token_ids"))) << name;
    ++compared;
  }
  EXPECT_EQ(compared, 110);
  EXPECT_EQ(refused, 1);
}

}  // namespace
}  // namespace fathom::recipe
