#include "fathom/base/sha256.h"

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

namespace fathom {
namespace {

std::span<const uint8_t> bytes_of(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// The examples of FIPS 180-4 and of NIST's example values.
TEST(Sha256, GivesThePublishedDigests) {
  EXPECT_EQ(sha256_text(bytes_of("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_text(bytes_of("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_text(bytes_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256_text(bytes_of(std::string(1000000, 'a'))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

// 55, 56: the length does or does not fit behind the text in the last block; 64: a whole block.
TEST(Sha256, PiecesGiveTheSameDigestAsTheWhole) {
  for (const size_t length : {1u, 55u, 56u, 63u, 64u, 65u, 200u}) {
    const std::string text(length, 'x');
    for (const size_t piece : {1u, 7u, 64u}) {
      Sha256 hash;
      for (size_t at = 0; at < length; at += piece) hash.add(bytes_of(std::string_view(text).substr(at, piece)));
      EXPECT_EQ(hex_text(hash.digest()), sha256_text(bytes_of(text))) << length << " bytes in pieces of " << piece;
    }
  }
}

}  // namespace
}  // namespace fathom
