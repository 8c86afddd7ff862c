// Vectors of spec/model.md 9.3, 16.1, 16.2, 16.3 and spec/checkpoint.md 6.
#include "fathom/model/engram/engram_hash.h"

#include <gtest/gtest.h>

#include <numeric>

#include "fathom/model/presets.h"

namespace fathom {
namespace {

using Numbers = std::vector<int64_t>;

TEST(EngramHash, FlashHasThePrimesOfTheSpecification) {
  const auto hashes = engram_hashes(ModelConfig{});
  ASSERT_EQ(hashes.size(), 2u);
  EXPECT_EQ(hashes[0].layer, 1);
  EXPECT_EQ(hashes[0].primes,
            (Numbers{16000057, 16000079, 16000081, 16000097, 16000121, 16000129, 16000133, 16000183,
                     16000189, 16000207, 16000211, 16000253, 16000277, 16000289, 16000307, 16000321,
                     16000339, 16000381, 16000393, 16000399, 16000403, 16000409, 16000447, 16000463}));
  EXPECT_EQ(hashes[0].rows, 384006168);
  EXPECT_EQ(hashes[1].layer, 14);
  EXPECT_EQ(hashes[1].primes,
            (Numbers{16000477, 16000487, 16000499, 16000507, 16000511, 16000573, 16000609, 16000627,
                     16000667, 16000669, 16000693, 16000697, 16000711, 16000729, 16000759, 16000769,
                     16000781, 16000799, 16000813, 16000819, 16000841, 16000877, 16000879, 16000889}));
  EXPECT_EQ(hashes[1].rows, 384016682);
}

TEST(EngramHash, OffsetsAreTheSumsOfThePrimesBefore) {
  for (const EngramHash& hash : engram_hashes(ModelConfig{})) {
    Numbers expected(hash.primes.size());
    std::exclusive_scan(hash.primes.begin(), hash.primes.end(), expected.begin(), int64_t(0));
    EXPECT_EQ(hash.offsets, expected);
    EXPECT_EQ(hash.columns(), 24);
    EXPECT_EQ(hash.heads(), 8);
  }
}

TEST(EngramHash, FlashHasTheMultipliersOfTheSpecification) {
  const auto hashes = engram_hashes(ModelConfig{});
  EXPECT_EQ(hashes[0].multipliers, (Numbers{76632096046245, 4839876093313, 35959672319349, 73987337458391}));
  EXPECT_EQ(hashes[1].multipliers, (Numbers{67716810739261, 51510806800915, 30921347202721, 82619226485591}));
}

TEST(EngramHash, Mini8HasTheConstantsOfTheSpecification) {
  const auto hashes = engram_hashes(mini8_config());
  ASSERT_EQ(hashes.size(), 1u);
  EXPECT_EQ(hashes[0].primes, (Numbers{1009, 1013, 1019, 1021, 1031, 1033}));
  EXPECT_EQ(hashes[0].multipliers, (Numbers{7415652013100227, 468352540858031, 3479800634247035, 7159719964284203}));
  EXPECT_EQ(hashes[0].rows, 6126);
}

TEST(EngramHash, TheGeneratorIsNumpys) {
  EXPECT_EQ(seed_sequence(10007), (std::array<uint32_t, 8>{0x8ad70d07, 0x77d32a34, 0xb84a4fa5, 0x993ed609, 0xc8698e49,
                                                           0xd5f972de, 0xbcf148de, 0x7d79ebae}));
  Pcg64 layer1(10007), layer14(140098);
  EXPECT_EQ(layer1.next(), 0xd2c3f84026661e33u);
  EXPECT_EQ(layer1.next(), 0x0d4fb6969eb57435u);
  EXPECT_EQ(layer1.next(), 0x62e6e1c58c3bd72bu);
  EXPECT_EQ(layer14.next(), 0xba3ecc29cf07c111u);
  EXPECT_EQ(layer14.next(), 0x8dac4bbe10610b7cu);
  EXPECT_EQ(layer14.next(), 0x550b7148777ff213u);
}

// The sequence of 16.2; its row numbers are listed for columns 0, 7, 8, 15, 16 and 23.
Numbers listed_columns(const EngramHash& hash, std::vector<int32_t> recent) {
  Numbers rows(24);
  engram_rows(hash, recent, 2, rows);
  return {rows[0], rows[7], rows[8], rows[15], rows[16], rows[23]};
}

TEST(EngramRows, AreThoseOfTheIndependentImplementation) {
  const auto hashes = engram_hashes(ModelConfig{});
  // Newest id first. Position 0: nothing before it. Position 5: the dead position 4 hides everything older.
  const std::vector<int32_t> p0 = {0}, p3 = {42, 99091, 17, 0}, p5 = {7, kDeadId, 42, 99091, 17, 0};
  EXPECT_EQ(listed_columns(hashes[0], p0), (Numbers{5702652, 121476532, 131476717, 247482304, 257520185, 380066193}));
  EXPECT_EQ(listed_columns(hashes[0], p3), (Numbers{13131409, 115341818, 140379165, 255267031, 257102120, 373972300}));
  EXPECT_EQ(listed_columns(hashes[0], p5), (Numbers{8939594, 121427189, 128454377, 241631034, 263018334, 373889199}));
  EXPECT_EQ(listed_columns(hashes[1], p0), (Numbers{14361964, 120604547, 132225184, 252505246, 261362261, 372375971}));
  EXPECT_EQ(listed_columns(hashes[1], p3), (Numbers{3275938, 121693602, 142937982, 243821763, 266975520, 381836281}));
  EXPECT_EQ(listed_columns(hashes[1], p5), (Numbers{11595187, 119551817, 142795052, 240801687, 256183825, 371414676}));
}

TEST(EngramRows, ADeadPositionReadsAsPadAtEverySize) {
  const auto hash = engram_hashes(mini8_config())[0];
  Numbers dead(6), pad(6);
  engram_rows(hash, std::vector<int32_t>{kDeadId, 5, 6, 7}, 2, dead);
  engram_rows(hash, std::vector<int32_t>{2, 2, 2, 2}, 2, pad);
  EXPECT_EQ(dead, pad);
}

TEST(EngramRows, StayInsideTheirColumnForTheLargestIds) {
  const auto hashes = engram_hashes(ModelConfig{});
  for (const EngramHash& hash : hashes) {
    Numbers rows(24);
    engram_rows(hash, std::vector<int32_t>(4, 99091), 2, rows);  // the largest compressed id of Flash
    for (size_t i = 0; i < rows.size(); ++i) {
      EXPECT_GE(rows[i], hash.offsets[i]);
      EXPECT_LT(rows[i], hash.offsets[i] + hash.primes[i]);
    }
  }
}

TEST(Primes, AreAllThereFromTwoOnAndAtTheEdgeOfTheirRange) {
  EXPECT_EQ(primes_from(0, 10), (Numbers{2, 3, 5, 7, 11, 13, 17, 19, 23, 29}));
  // 561 and 1105 are Carmichael numbers, 2047 the first strong pseudoprime to base 2.
  EXPECT_EQ(primes_from(560, 1), (Numbers{563}));
  EXPECT_EQ(primes_from(1104, 1), (Numbers{1109}));
  EXPECT_EQ(primes_from(2047, 1), (Numbers{2053}));
  EXPECT_EQ(primes_from(2147483647, 2), (Numbers{2147483647, 2147483659}));  // 2^31 - 1 is prime
}

}  // namespace
}  // namespace fathom
