#include <cstring>

#include "fathom/backend/tables_under_test.h"

namespace fathom {
namespace {

class EngramTest : public OverTables {};
INSTANTIATE_TEST_SUITE_P(Tables, EngramTest, all_tables(), table_name);

// spec/model.md 9.3, 16.1, 16.2: layer 1 of the released model. 777 stands for the image position "DEAD".
struct Hash {
  std::vector<int64_t> multipliers{76632096046245, 4839876093313, 35959672319349, 73987337458391};
  std::vector<int64_t> primes{16000057, 16000079, 16000081, 16000097, 16000121, 16000129, 16000133, 16000183,
                              16000189, 16000207, 16000211, 16000253, 16000277, 16000289, 16000307, 16000321,
                              16000339, 16000381, 16000393, 16000399, 16000403, 16000409, 16000447, 16000463};
  std::vector<int64_t> offsets;
  std::vector<int32_t> token_map;
  std::vector<int64_t> out;

  Hash() {
    int64_t sum = 0;
    for (const int64_t p : primes) {
      offsets.push_back(sum);
      sum += p;
    }
    for (int32_t i = 0; i < 99092; ++i) token_map.push_back(i);
  }
  std::vector<int64_t> columns(int64_t row) const {
    std::vector<int64_t> some;
    for (const int64_t c : {0, 7, 8, 15, 16, 23}) some.push_back(out[size_t(row * 24 + c)]);
    return some;
  }
  void run(const Operations& table, Queue& queue, const OwnedRows& rows, const std::vector<int32_t>& ids,
           const std::vector<int32_t>& history, const std::vector<uint8_t>& image) {
    out.assign(ids.size() * 24, -1);
    NgramHash op;
    op.rows = rows;
    op.ids = view(ids);
    op.history = view(history, 3);
    op.image = view(image);
    op.token_map = token_map;
    op.pad = 2;
    op.multipliers = multipliers;
    op.primes = primes;
    op.offsets = offsets;
    op.out = view(out, 24);
    table.engram_hash(queue, op);
  }
};

const std::vector<int64_t> kRow0{5702652, 121476532, 131476717, 247482304, 257520185, 380066193};
const std::vector<int64_t> kRow3{13131409, 115341818, 140379165, 255267031, 257102120, 373972300};
const std::vector<int64_t> kRow5{8939594, 121427189, 128454377, 241631034, 263018334, 373889199};

TEST_P(EngramTest, HashesOfASequenceAreThoseOfTheSpec) {
  Hash hash;
  hash.run(ops(), queue, OwnedRows({{0, 6}}), {0, 17, 99091, 42, 777, 7}, {-1, -1, -1}, {0, 0, 0, 0, 1, 0});
  EXPECT_EQ(hash.columns(0), kRow0);
  EXPECT_EQ(hash.columns(3), kRow3);
  EXPECT_EQ(hash.columns(5), kRow5);  // the image blocks everything older than it
}

TEST_P(EngramTest, HistoryStandsInForTokensOfEarlierSteps) {
  Hash hash;
  hash.run(ops(), queue, OwnedRows({{3, 1}, {5, 1}, {2, 2}}), {42, 7, 99091, 42},
           {99091, 17, 0, /**/ -1, 42, 99091, /**/ 17, 0, -1}, {0, 0, 0, 0});
  EXPECT_EQ(hash.columns(0), kRow3);
  EXPECT_EQ(hash.columns(1), kRow5);
  EXPECT_EQ(hash.columns(3), kRow3);
}

TEST_P(EngramTest, GatheringCopiesRowsAsStored) {
  Tensor codes(DType::f8_e4m3, 9, 64), scales(DType::f8_e8m0, 9, 2);
  for (size_t i = 0; i < codes.bytes.size(); ++i) codes.bytes[i] = uint8_t(i * 7);
  for (size_t i = 0; i < scales.bytes.size(); ++i) scales.bytes[i] = uint8_t(100 + i);
  const std::vector<int64_t> index{8, 0, 3, 3, 1, 2};
  Tensor out_codes(DType::f8_e4m3, 2, 192), out_scales(DType::f8_e8m0, 2, 6);
  EngramGather op;
  op.table = Matrix(codes, scales, 1);
  op.index = view(index, 3);
  op.codes = out_codes.out();
  op.scales = out_scales.out();
  ops().engram_gather(queue, op);
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(0, std::memcmp(out_codes.bytes.data() + i * 64, codes.row(index[i]).data(), 64));
    EXPECT_EQ(0, std::memcmp(out_scales.bytes.data() + i * 2, scales.row(index[i]).data(), 2));
  }
}

struct Mix {
  Tensor streams, key_value, q_weight, k_weight;

  void run(const Operations& table, Queue& queue, const std::vector<uint8_t>& image) {
    EngramMix op;
    op.streams = streams.out();
    op.key_value = key_value;
    op.q_weight = q_weight;
    op.k_weight = k_weight;
    if (!image.empty()) op.image = view(image);
    op.eps = 1e-20f;
    table.engram_mix(queue, op);
  }
};

// spec/model.md 16.7. Streams, keys and value of ones, so d = sqrt(16) * weight; what is added is the gate.
TEST_P(EngramTest, TheGateIsTheSigmoidOfASignedRoot) {
  for (const auto& [d, gate] : std::vector<std::pair<float, double>>{
           {0.25f, 0.62245933}, {-4.0f, 0.11920292}, {1e-8f, 0.50025000}, {9.0f, 0.95257413}}) {
    Mix mix{Tensor(DType::f32, 1, 16, std::vector<float>(16, 1.0f)),
            Tensor(DType::f32, 1, 32, std::vector<float>(32, 1.0f)),
            Tensor(DType::bf16, 1, 16, std::vector<float>(16, d)),
            Tensor(DType::bf16, 1, 16, std::vector<float>(16, 0.25f))};
    mix.run(ops(), queue, {});
    for (int64_t i = 0; i < 16; ++i) EXPECT_NEAR(mix.streams.at(0, i) - 1, gate, 4e-7);
  }
}

TEST_P(EngramTest, ImageRowsPassUnchanged) {
  Mix mix{noise(DType::bf16, 3, 128, 1), noise(DType::bf16, 3, 160, 2), noise(DType::bf16, 4, 32, 3),
          noise(DType::bf16, 4, 32, 4)};
  const Tensor before = mix.streams;
  mix.run(ops(), queue, {0, 1, 0});
  EXPECT_EQ(mix.streams.row(1), before.row(1));
  EXPECT_NE(mix.streams.row(0), before.row(0));
}

TEST_P(EngramTest, MixAgreesWithTheDefinitionRowByRow) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const int64_t hidden : {16, 50, 256, 1024}) {
      const Mix start{noise(dtype, 30, 4 * hidden, 1), noise(dtype, 30, 5 * hidden, 2),
                      noise(DType::bf16, 4, hidden, 3), noise(DType::bf16, 4, hidden, 4)};
      Mix want = start, got = start;
      want.run(definition(), queue, {});
      got.run(ops(), queue, {});
      // The gate's slope is at most 1/4 of a root: near d = 0 an error of d is magnified by up to 1 / (2 * 1e-3) / 4,
      // and d is off by a few 2^-24 of sum |x w k|.
      const double bound = (0.25 / 2e-3 * 16 * 0x1p-24 + 4 * 0x1p-24) + 4 * rounding(dtype);
      for (int64_t r = 0; r < 30; ++r) {
        for (int64_t i = 0; i < 4 * hidden; ++i) ASSERT_NEAR(got.streams.at(r, i), want.streams.at(r, i), bound);
        Mix alone = start;
        alone.streams = Tensor(dtype, 1, 4 * hidden);
        alone.key_value = Tensor(dtype, 1, 5 * hidden);
        alone.streams.bytes = start.streams.row(r);
        alone.key_value.bytes = start.key_value.row(r);
        alone.run(ops(), queue, {});
        EXPECT_EQ(alone.streams.bytes, got.streams.row(r));
      }
    }
  }
}

}  // namespace
}  // namespace fathom
