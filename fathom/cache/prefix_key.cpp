#include "fathom/cache/prefix_key.h"

#include <algorithm>
#include <cstring>

#include "fathom/base/check.h"
#include "fathom/base/sha256.h"
#include "fathom/base/xxh3.h"

namespace fathom {
namespace {

// docs/formats/prefix-keys.md; a number is never given a new meaning.
enum class Part : uint8_t {
  root = 1,
  model = 2,
  weights_digest = 3,
  cache_format = 4,
  numerics = 5,
  replay_class = 6,
  salt = 7,
  parent = 8,
  tokens = 9,
  image = 10,
  image_bytes = 11,
  image_size = 12,
};

void put_u32(uint8_t* at, uint32_t value) {
  for (int i = 0; i < 4; ++i) at[i] = uint8_t(value >> (8 * i));
}

// Frames `bytes` at `at`; returns the place behind it.
uint8_t* put_part(uint8_t* at, Part kind, std::span<const uint8_t> bytes) {
  *at = uint8_t(kind);
  put_u32(at + 1, uint32_t(bytes.size()));
  if (!bytes.empty()) std::memcpy(at + 5, bytes.data(), bytes.size());
  return at + 5 + bytes.size();
}

void add_part(std::vector<uint8_t>& out, Part kind, std::span<const uint8_t> bytes) {
  const size_t end = out.size();
  out.resize(end + 5 + bytes.size());
  put_part(out.data() + end, kind, bytes);
}

void add_text(std::vector<uint8_t>& out, Part kind, std::string_view text) {
  add_part(out, kind, {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}

}  // namespace

ReplayClass replay_class_of(ReplayMode mode) {
  return mode == ReplayMode::compact || mode == ReplayMode::mask ? ReplayClass::bounded : ReplayClass::exact;
}

PrefixKey xxh3_key(std::span<const uint8_t> framed) { return {xxh3_128(framed)}; }

PrefixKey sha256_key(std::span<const uint8_t> framed) {
  Sha256 hash;
  hash.add(framed);
  const auto digest = hash.digest();
  PrefixKey key;
  std::copy_n(digest.begin(), key.bytes.size(), key.bytes.begin());
  return key;
}

std::array<uint8_t, 32> image_digest(std::span<const uint8_t> bytes, uint32_t width, uint32_t height) {
  std::array<uint8_t, 5> head{uint8_t(Part::image_bytes)};
  put_u32(head.data() + 1, uint32_t(bytes.size()));
  std::array<uint8_t, 8> pixels{};
  put_u32(pixels.data(), width);
  put_u32(pixels.data() + 4, height);
  std::array<uint8_t, 13> size{};
  put_part(size.data(), Part::image_size, pixels);
  Sha256 hash;
  hash.add(head);
  hash.add(bytes);
  hash.add(size);
  return hash.digest();
}

std::span<const ImageSpan> images_in(std::span<const ImageSpan> images, int64_t first, int64_t count) {
  const auto begin = std::find_if(images.begin(), images.end(),
                                  [&](const ImageSpan& image) { return image.first + image.count > first; });
  const auto end = std::find_if(begin, images.end(), [&](const ImageSpan& i) { return i.first >= first + count; });
  return {begin, end};
}

std::vector<uint8_t> framed_root(const PrefixRoot& root) {
  std::vector<uint8_t> out;
  std::array<uint8_t, 4> version{};
  put_u32(version.data(), root.cache_format);
  add_text(out, Part::root, "fathom prefix");
  add_text(out, Part::model, root.model);
  add_text(out, Part::weights_digest, root.weights_digest);
  add_part(out, Part::cache_format, version);
  add_text(out, Part::numerics, root.numerics);
  add_text(out, Part::replay_class, root.replay == ReplayClass::exact ? "exact" : "bounded");
  add_text(out, Part::salt, root.salt);
  return out;
}

PrefixKey next_key(KeyHash hash, const PrefixKey& parent, std::span<const int32_t> tokens,
                   std::span<const ImageSpan> images) {
  check(tokens.size() == kBlockTokens, "only full blocks have a key");
  std::array<uint8_t, 4 * kBlockTokens> ids;
  for (size_t i = 0; i < tokens.size(); ++i) put_u32(ids.data() + 4 * i, uint32_t(tokens[i]));
  constexpr size_t kBytes = 5 + 16 + 5 + ids.size();
  std::array<uint8_t, kBytes> text;
  put_part(put_part(text.data(), Part::parent, parent.bytes), Part::tokens, ids);
  if (images.empty()) return hash(text);  // the usual block: nothing is allocated
  std::vector<uint8_t> more(text.begin(), text.end());
  for (const ImageSpan& image : images) add_part(more, Part::image, image.digest);
  return hash(more);
}

}  // namespace fathom
