// docs/formats/prefix-keys.md, engine.md R-18.
#include "fathom/cache/prefix_key.h"

#include <gtest/gtest.h>

#include <numeric>

#include "fathom/base/sha256.h"
#include "fathom/base/xxh3.h"

namespace fathom {
namespace {

const PrefixRoot kRoot{"DeepSeek-V4.1-Flash", "abc", 1, "reference", ReplayClass::bounded, "tenant 7"};

std::vector<int32_t> block_of(int32_t first) {
  std::vector<int32_t> out(kBlockTokens);
  std::iota(out.begin(), out.end(), first);
  return out;
}

void append_part(std::string& out, int kind, std::string_view bytes) {
  out += char(kind);
  for (int i = 0; i < 4; ++i) out += char(uint8_t(bytes.size() >> (8 * i)));
  out += bytes;
}

std::span<const uint8_t> bytes_of(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// The bytes of the format, built here from the words of the document and not by the code.
TEST(PrefixKey, TheRootIsFramedAsTheDocumentSays) {
  std::string want;
  append_part(want, 1, "fathom prefix");
  append_part(want, 2, "DeepSeek-V4.1-Flash");
  append_part(want, 3, "abc");
  append_part(want, 4, std::string("\1\0\0\0", 4));
  append_part(want, 5, "reference");
  append_part(want, 6, "bounded");
  append_part(want, 7, "tenant 7");
  const auto got = framed_root(kRoot);
  EXPECT_EQ(std::string(got.begin(), got.end()), want);
}

TEST(PrefixKey, ABlockIsFramedAsTheDocumentSays) {
  const PrefixKey parent = xxh3_key(framed_root(kRoot));
  const auto tokens = block_of(129'000);
  std::vector<ImageSpan> images(2);
  images[0].digest.fill(3);
  images[1].digest.fill(4);
  std::string want, ids;
  append_part(want, 8, {reinterpret_cast<const char*>(parent.bytes.data()), 16});
  for (const int32_t id : tokens) {
    for (int i = 0; i < 4; ++i) ids += char(uint8_t(uint32_t(id) >> (8 * i)));
  }
  append_part(want, 9, ids);
  EXPECT_EQ(next_key(xxh3_key, parent, tokens, {}).bytes, xxh3_128(bytes_of(want)));
  append_part(want, 10, std::string(32, 3));
  append_part(want, 10, std::string(32, 4));
  EXPECT_EQ(next_key(xxh3_key, parent, tokens, images).bytes, xxh3_128(bytes_of(want)));
  const auto digest = sha256_text(bytes_of(want));
  EXPECT_EQ(hex_text(next_key(sha256_key, parent, tokens, images).bytes), digest.substr(0, 32));
}

TEST(PrefixKey, EveryPartOfTheRootChangesTheKey) {
  const PrefixKey key = xxh3_key(framed_root(kRoot));
  std::vector<PrefixRoot> others(7, kRoot);
  others[0].model += "x";
  others[1].weights_digest = "abd";
  others[2].cache_format = 2;
  others[3].numerics = "deepinfer";
  others[4].replay = ReplayClass::exact;
  others[5].salt = "tenant 8";
  others[6].model = "DeepSeek-V4.1-Flasha";  // the border between parts moved
  others[6].weights_digest = "bc";
  for (const PrefixRoot& other : others) EXPECT_NE(xxh3_key(framed_root(other)), key);
  EXPECT_EQ(xxh3_key(framed_root(kRoot)), key);
}

TEST(PrefixKey, CompactAndMaskAreBoundedHaloAndOffExact) {
  EXPECT_EQ(replay_class_of(ReplayMode::compact), ReplayClass::bounded);
  EXPECT_EQ(replay_class_of(ReplayMode::mask), ReplayClass::bounded);
  EXPECT_EQ(replay_class_of(ReplayMode::halo), ReplayClass::exact);
  EXPECT_EQ(replay_class_of(ReplayMode::off), ReplayClass::exact);
}

TEST(PrefixKey, AnImageBelongsToEveryBlockThatItTouches) {
  std::vector<ImageSpan> images(3);
  images[0] = {100, 200, {}};  // [100, 300): blocks 0, 1, 2
  images[1] = {300, 84, {}};   // [300, 384): block 2
  images[2] = {384, 1, {}};    // block 3
  const auto count = [&](int64_t block) { return images_in(images, 128 * block, 128).size(); };
  EXPECT_EQ(count(0), 1u);
  EXPECT_EQ(count(1), 1u);
  EXPECT_EQ(count(2), 2u);
  EXPECT_EQ(count(3), 1u);
  EXPECT_EQ(count(4), 0u);
  EXPECT_EQ(images_in(images, 256, 128)[0].first, 100);
}

TEST(PrefixKey, AnImageIsItsBytesAtItsSize) {
  const std::string bytes = "pixels";
  const auto digest = image_digest(bytes_of(bytes), 504, 588);
  EXPECT_EQ(digest, image_digest(bytes_of(bytes), 504, 588));
  EXPECT_NE(digest, image_digest(bytes_of(bytes), 588, 504));
  EXPECT_NE(digest, image_digest(bytes_of("pixelt"), 504, 588));
}

}  // namespace
}  // namespace fathom
