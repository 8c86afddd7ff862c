#include "fathom/net/content_encoding.h"

#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

namespace fathom::net {
namespace {

constexpr int64_t kMiB = 1024 * 1024;

std::string deflated(const std::string& text, int window_bits) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, window_bits, 9, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&stream, uLong(text.size())) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = unsigned(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = unsigned(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(out.size() - stream.avail_out);
  deflateEnd(&stream);
  return out;
}
std::string gzipped(const std::string& text) { return deflated(text, 31); }

std::string zstd_packed(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

TEST(ContentEncodingTest, EveryEncodingGivesTheBodyBack) {
  const std::string body = R"({"messages":[]})" + std::string(200'000, 'x');
  EXPECT_EQ(*unpacked_body("", body, kMiB), body);
  EXPECT_EQ(*unpacked_body("identity", body, kMiB), body);
  EXPECT_EQ(*unpacked_body("gzip", gzipped(body), kMiB), body);
  EXPECT_EQ(*unpacked_body("X-GZip", gzipped(body), kMiB), body);
  EXPECT_EQ(*unpacked_body("deflate", deflated(body, 15), kMiB), body);
  EXPECT_EQ(*unpacked_body("zstd", zstd_packed(body), kMiB), body);
  EXPECT_EQ(*unpacked_body("gzip, zstd", zstd_packed(gzipped(body)), kMiB), body);
  EXPECT_EQ(*unpacked_body("gzip", gzipped("a") + gzipped("b"), kMiB), "ab") << "two members";
  EXPECT_EQ(*unpacked_body("zstd", zstd_packed(""), kMiB), "");
}

TEST(ContentEncodingTest, UnpackingStopsAtTheLimit) {  // cases http-06
  const std::string zeros(100 * kMiB, '\0');
  EXPECT_EQ(unpacked_body("gzip", gzipped(zeros), 32 * kMiB).error().code, ErrorCode::out_of_range);
  EXPECT_EQ(unpacked_body("zstd", zstd_packed(zeros), 32 * kMiB).error().code, ErrorCode::out_of_range);
  const std::string exact(1000, 'x');
  EXPECT_TRUE(unpacked_body("gzip", gzipped(exact), 1000).ok());
  EXPECT_FALSE(unpacked_body("gzip", gzipped(exact), 999).ok());
  EXPECT_FALSE(unpacked_body("", exact, 999).ok());
}

TEST(ContentEncodingTest, AnotherEncodingIsNamed) {
  const auto result = unpacked_body("br", "anything", kMiB);
  EXPECT_EQ(result.error().code, ErrorCode::unsupported);
  EXPECT_NE(to_string(result.error()).find("zstd"), std::string::npos);
  EXPECT_FALSE(unpacked_body("gzip, gzip, gzip", "x", kMiB).ok());
}

TEST(ContentEncodingTest, EveryTruncationIsNoticed) {
  const std::string body = "The quick brown fox jumps over the lazy dog, again and again and again.";
  for (const auto& [name, packed] :
       {std::pair{"gzip", gzipped(body)}, {"deflate", deflated(body, 15)}, {"zstd", zstd_packed(body)}}) {
    for (size_t length = 0; length < packed.size(); ++length) {
      const auto result = unpacked_body(name, packed.substr(0, length), kMiB);
      ASSERT_FALSE(result.ok()) << name << " " << length;
      EXPECT_EQ(result.error().code, ErrorCode::bad_input);
    }
    EXPECT_FALSE(unpacked_body(name, packed + "rest", kMiB).ok()) << name;
  }
}

}  // namespace
}  // namespace fathom::net
