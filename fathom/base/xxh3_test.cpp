#include "fathom/base/xxh3.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "fathom/base/sha256.h"

namespace fathom {
namespace {

std::string text_of(std::span<const uint8_t> bytes) { return hex_text(xxh3_128(bytes)); }

TEST(Xxh3, NothingHasThePublishedHash) { EXPECT_EQ(text_of({}), "99aa06d3014798d86001c324468d497f"); }

// 0, 1: the smallest; 16, 17, 128, 129, 240, 241: where the algorithm changes its path; 538: a block of a prefix key.
TEST(Xxh3, EveryLengthHasItsOwnHash) {
  const std::vector<uint8_t> zeros(600, 0);
  std::set<std::string> seen;
  for (const size_t length : {0, 1, 16, 17, 128, 129, 240, 241, 538, 600}) {
    const std::string hash = text_of(std::span(zeros).first(length));
    EXPECT_EQ(hash.size(), 32u);
    EXPECT_TRUE(seen.insert(hash).second) << length;
    EXPECT_EQ(hash, text_of(std::span(zeros).first(length)));
  }
}

}  // namespace
}  // namespace fathom
