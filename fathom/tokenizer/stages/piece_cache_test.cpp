#include "fathom/tokenizer/stages/piece_cache.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

namespace fathom {
namespace {

using Ids = std::array<int32_t, PieceCache::kMostTokens>;

TEST(PieceCache, GivesBackWhatWasPutAtEveryLength) {
  PieceCache cache(10);
  const std::string letters = std::string("abcdefghijklmnopqrstuvwxyz\0\xff\x80~{}", 32);
  for (size_t length = 1; length <= PieceCache::kLongestPiece; ++length) {
    const PieceCache::Key key(std::string_view(letters).substr(0, length));
    Ids ids{};
    EXPECT_EQ(cache.find(key, ids), 0u) << length;
    std::vector<int32_t> tokens;
    for (size_t i = 0; i < 1 + length % PieceCache::kMostTokens; ++i) tokens.push_back(int32_t(length * 1000 + i));
    cache.put(key, tokens);
    ASSERT_EQ(cache.find(key, ids), tokens.size()) << length;
    EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), ids.begin()));
  }
}

TEST(PieceCache, PaddingIsNotContent) {
  PieceCache cache(0);  // one place: everything meets
  Ids ids{};
  cache.put(PieceCache::Key("ab"), std::vector<int32_t>{1});
  EXPECT_EQ(cache.find(PieceCache::Key(std::string_view("ab\0", 3)), ids), 0u);
  EXPECT_EQ(cache.find(PieceCache::Key("ab"), ids), 1u);
  cache.put(PieceCache::Key("cd"), std::vector<int32_t>{2, 3});
  EXPECT_EQ(cache.find(PieceCache::Key("ab"), ids), 0u) << "replaced";
  EXPECT_EQ(cache.find(PieceCache::Key("cd"), ids), 2u);
}

TEST(PieceCache, ThreadsNeverSeeHalfAnEntry) {
  PieceCache cache(0);
  std::vector<std::thread> threads;
  for (int32_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&cache, thread] {
      const std::string mine(size_t(20 + thread), char('a' + thread));
      const PieceCache::Key key(mine);
      const std::vector<int32_t> tokens(6, thread);
      for (int i = 0; i < 20000; ++i) {
        cache.put(key, tokens);
        Ids ids{};
        if (cache.find(key, ids) != 0) {
          EXPECT_EQ(ids, (Ids{thread, thread, thread, thread, thread, thread}));
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

}  // namespace
}  // namespace fathom
