#include "fathom/tokenizer/stages/byte_pair_encoder.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

namespace fathom {
namespace {

using Ids = std::vector<int32_t>;

// Bytes are their own ids; every merge makes the next id.
struct Rules {
  std::array<int32_t, 256> bytes;
  std::vector<TokenizerFile::Merge> merges;

  explicit Rules(std::vector<std::pair<int32_t, int32_t>> pairs) {
    for (int32_t b = 0; b < 256; ++b) bytes[size_t(b)] = b;
    for (const auto& [left, right] : pairs) merges.push_back({left, right, int32_t(256 + merges.size())});
  }

  /// The rule as the specification writes it, joined pair by joined pair.
  Ids encode_slowly(std::string_view piece) const {
    std::map<std::pair<int32_t, int32_t>, size_t> ranks;
    for (size_t rank = 0; rank < merges.size(); ++rank) ranks[{merges[rank].left, merges[rank].right}] = rank;
    Ids ids;
    for (const char b : piece) ids.push_back(uint8_t(b));
    while (true) {
      size_t best = SIZE_MAX, place = 0;
      for (size_t i = 0; i + 1 < ids.size(); ++i) {
        const auto at = ranks.find({ids[i], ids[i + 1]});
        if (at != ranks.end() && at->second < best) best = at->second, place = i;
      }
      if (best == SIZE_MAX) return ids;
      ids[place] = merges[best].result;
      ids.erase(ids.begin() + ptrdiff_t(place) + 1);
    }
  }
};

TEST(BytePairEncoder, AgreesWithTheRuleAtEveryLengthAroundTheSwitchOfForms) {
  std::mt19937 random(7);
  for (int round = 0; round < 30; ++round) {
    // 40 random merges over three letters and what came before, every pair once.
    std::vector<std::pair<int32_t, int32_t>> pairs;
    while (pairs.size() < 40) {
      const auto pick = [&] {
        const int32_t x = int32_t(random() % (3 + pairs.size()));
        return x < 3 ? 'a' + x : 256 + x - 3;
      };
      const std::pair<int32_t, int32_t> pair{pick(), pick()};
      if (std::find(pairs.begin(), pairs.end(), pair) == pairs.end()) pairs.push_back(pair);
    }
    const Rules rules(pairs);
    const BytePairEncoder encoder(rules.bytes, rules.merges);
    // 1: no pair; the switch of forms and its neighbours; 300: well into the queue.
    for (const size_t length : {size_t(1), size_t(2), size_t(3), size_t(17), BytePairEncoder::kShortPiece - 1,
                                BytePairEncoder::kShortPiece, BytePairEncoder::kShortPiece + 1, size_t(300)}) {
      std::string piece;
      for (size_t i = 0; i < length; ++i) piece += char('a' + random() % 3);
      Ids got;
      encoder.encode(piece, got);
      EXPECT_EQ(got, rules.encode_slowly(piece)) << piece;
    }
  }
}

TEST(BytePairEncoder, BeginningFromCharactersChangesNothing) {
  // Characters of two and three bytes that share their bytes, so that random merges make some of them certain, leave
  // others half joined and join across their borders.
  constexpr std::string_view kCharacters[] = {"中", "丸", "人", "亭", "ж", "з", "и", "a"};
  std::string all;
  for (const std::string_view c : kCharacters) all += c;
  std::mt19937 random(11);
  for (int round = 0; round < 300; ++round) {
    std::vector<std::pair<int32_t, int32_t>> pairs;
    while (pairs.size() < 30) {
      const auto pick = [&] {
        const size_t x = random() % (all.size() + pairs.size());
        return x < all.size() ? int32_t(uint8_t(all[x])) : int32_t(256 + x - all.size());
      };
      std::pair<int32_t, int32_t> pair{pick(), pick()};
      if (random() % 2 == 0) {  // neighbours within a character, so that whole characters come about
        const size_t at = random() % (all.size() - 1);
        pair = {uint8_t(all[at]), uint8_t(all[at + 1])};
        if (random() % 2 == 0 && !pairs.empty()) pair.first = int32_t(256 + random() % pairs.size());
      }
      if (std::find(pairs.begin(), pairs.end(), pair) == pairs.end()) pairs.push_back(pair);
    }
    // Half of the rounds list the merges in disorder: then nothing is certain, and the result must not change either.
    const Rules rules(pairs);
    Rules disordered = rules;
    std::shuffle(disordered.merges.begin(), disordered.merges.end(), random);
    const Rules& used = round % 2 == 0 ? rules : disordered;
    const BytePairEncoder encoder(used.bytes, used.merges);
    for (const size_t length : {size_t(1), size_t(2), size_t(5), size_t(20), size_t(60)}) {
      std::string piece;
      for (size_t i = 0; i < length; ++i) piece += kCharacters[random() % std::size(kCharacters)];
      Ids got;
      encoder.encode(piece, got);
      EXPECT_EQ(got, used.encode_slowly(piece)) << piece;
    }
  }
}

TEST(BytePairEncoder, EqualRanksJoinFromTheLeft) {
  const Rules rules({{'a', 'a'}});
  const BytePairEncoder encoder(rules.bytes, rules.merges);
  for (const size_t length : {size_t(3), BytePairEncoder::kShortPiece + 1}) {  // odd, in both forms
    Ids got;
    encoder.encode(std::string(length, 'a'), got);
    EXPECT_EQ(got.front(), 256);
    EXPECT_EQ(got.back(), 'a');
    EXPECT_EQ(got.size(), length / 2 + 1);
  }
}

TEST(BytePairEncoder, ALongPieceCostsAFewQueueOperationsAByte) {
  // n - 1 pairs at the start and two for each of at most n - 1 joins go in; all come out: less than 6 n operations.
  const Rules rules({{'a', 'a'}, {256, 256}, {257, 257}, {258, 258}, {'a', 'b'}, {'b', 'a'}, {260, 260}});
  const BytePairEncoder encoder(rules.bytes, rules.merges);
  for (const std::string_view unit : {"a", "ab", "aab", "abb", "x"}) {
    std::string piece;
    while (piece.size() < 1'000'000) piece += unit;
    Ids got;
    EXPECT_LT(encoder.encode(piece, got), int64_t(6 * piece.size())) << unit;
    EXPECT_FALSE(got.empty());
  }
}

TEST(BytePairEncoder, AnEmptyPieceIsNothing) {
  const Rules rules({});
  Ids got;
  BytePairEncoder(rules.bytes, rules.merges).encode("", got);
  EXPECT_TRUE(got.empty());
}

}  // namespace
}  // namespace fathom
