#include "fathom/backend/tables_under_test.h"

namespace fathom {
namespace {

struct Mixes {
  std::vector<float> pre, post, comb;
};

class StreamsTest : public OverTables {
 protected:
  static Mixes mixes(const Operations& table, Queue& queue, const Tensor& streams, const Tensor& fn,
                     const std::vector<float>& scale, const std::vector<float>& base, int64_t count) {
    Mixes out{std::vector<float>(size_t(streams.rows * count)), std::vector<float>(size_t(streams.rows * count)),
              std::vector<float>(size_t(streams.rows * count * count))};
    StreamMixes op;
    op.streams = streams;
    op.fn = fn;
    op.scale = view(scale);
    op.base = view(base);
    op.norm_eps = 1e-20f;
    op.pre = view(out.pre, count);
    op.post = view(out.post, count);
    op.comb = view(out.comb, count * count);
    table.stream_mixes(queue, op);
    return out;
  }
};
INSTANTIATE_TEST_SUITE_P(Tables, StreamsTest, all_tables(), table_name);

// spec/model.md 16.7. fn is zero, so the mixing weights come from `base` alone.
TEST_P(StreamsTest, SinkhornIsThatOfTheSpec) {
  std::vector<float> base(8, 0.0f);
  for (int i = 0; i < 16; ++i) base.push_back(float(i * 7 % 11) / 4 - 1);
  const auto got = mixes(ops(), queue, noise(DType::f32, 1, 128, 1), Tensor(DType::f32, 24, 128), {1, 1, 1}, base, 4);
  const std::vector<double> want{0.0796612, 0.2654968, 0.0796606, 0.5751804, 0.3738794, 0.0796608,
                                 0.3738799, 0.1725789, 0.1725790, 0.5751806, 0.1725786, 0.0796608,
                                 0.3738794, 0.0796608, 0.3738799, 0.1725789};
  for (size_t i = 0; i < 16; ++i) EXPECT_NEAR(got.comb[i], want[i], 2e-7);
  for (size_t c = 0; c < 4; ++c) {
    EXPECT_FLOAT_EQ(got.pre[c], 0.5f + 1e-6f);
    EXPECT_FLOAT_EQ(got.post[c], 1);
  }
}

// One input channel of 2 among zeros: the norm over 64 channels makes it 2 / sqrt(4 / 64) = 8.
TEST_P(StreamsTest, EachKindOfWeightHasItsScaleAndBase) {
  std::vector<float> x(64, 0.0f), fn(24 * 64, 0.0f), base(24, 0.0f);
  x[7] = 2;
  fn[1 * 64 + 7] = 0.5f;   // pre 1: 8 * 0.5 * 0.25 + 1
  fn[6 * 64 + 7] = -0.5f;  // post 2: 8 * -0.5 * 0.5 - 1
  base[1] = 1;
  base[6] = -1;
  const auto got =
      mixes(ops(), queue, Tensor(DType::bf16, 1, 64, x), Tensor(DType::f32, 24, 64, fn), {0.25f, 0.5f, 3}, base, 4);
  EXPECT_NEAR(got.pre[1], 1 / (1 + std::exp(-2.0)) + 1e-6, 2e-7);
  EXPECT_NEAR(got.post[2], 2 / (1 + std::exp(3.0)), 2e-7);
  for (const float m : got.comb) EXPECT_NEAR(m, 0.25, 2e-6);  // no difference between streams
}

TEST_P(StreamsTest, StreamsOfZerosGiveTheBaseWithoutNan) {
  const auto got = mixes(ops(), queue, Tensor(DType::f32, 1, 64), noise(DType::f32, 24, 64, 1), {1, 1, 1},
                         std::vector<float>(24, 0.0f), 4);
  for (const float v : got.pre) EXPECT_NEAR(v, 0.5f, 2e-6);
}

TEST_P(StreamsTest, MixesAgreeWithTheDefinitionRowByRow) {
  struct Size {
    int64_t count, hidden, rows;
  };
  std::vector<Size> sizes;
  for (const int64_t count : {4, 2, 3, 1}) {
    for (const int64_t hidden : {16, 50, 256, 5120}) sizes.push_back({count, hidden, hidden > 1000 ? 3 : 37});
  }
  sizes.push_back({4, 272, 130});  // a last piece of 64 columns
  {
    for (const auto& [count, hidden, rows] : sizes) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        const int64_t outputs = (2 + count) * count;
        const Tensor x = noise(dtype, rows, count * hidden, 1);
        Tensor fn = noise(DType::f32, outputs, count * hidden, 2);
        const auto base = noise(outputs, 3);
        const std::vector<float> scale{0.5f, 1, 1.5f};
        const auto want = mixes(definition(), queue, x, fn, scale, base, count);
        const auto got = mixes(ops(), queue, x, fn, scale, base, count);
        // A dot of n terms of size 1/3 over a norm, in float lanes; the weights' slopes in it are at most 1.5.
        const double n = double(count * hidden), bound = 1.5 * (n / 8 + 16) * std::sqrt(1 / 3.0) * 0x1p-24 + 1e-6;
        for (size_t i = 0; i < got.pre.size(); ++i) ASSERT_NEAR(got.pre[i], want.pre[i], bound);
        for (size_t i = 0; i < got.post.size(); ++i) ASSERT_NEAR(got.post[i], want.post[i], 2 * bound);
        for (size_t i = 0; i < got.comb.size(); ++i) ASSERT_NEAR(got.comb[i], want.comb[i], 2 * bound);
        for (const int64_t r : {int64_t(0), rows - 1}) {
          Tensor one(dtype, 1, count * hidden);
          one.bytes = x.row(r);
          const auto alone = mixes(ops(), queue, one, fn, scale, base, count);
          EXPECT_TRUE(std::equal(alone.pre.begin(), alone.pre.end(), got.pre.begin() + r * count));
          EXPECT_TRUE(std::equal(alone.post.begin(), alone.post.end(), got.post.begin() + r * count));
          EXPECT_TRUE(std::equal(alone.comb.begin(), alone.comb.end(), got.comb.begin() + r * count * count));
        }
      }
    }
  }
}

// More rows than are under way at once anywhere.
TEST_P(StreamsTest, MixesOfManyRowsAreThoseOfEachAlone) {
  const int64_t rows = 500, hidden = 5120;
  const Tensor x = noise(DType::bf16, rows, 4 * hidden, 1);
  const Tensor fn = noise(DType::f32, 24, 4 * hidden, 2);
  const auto base = noise(24, 3);
  const auto all = mixes(ops(), queue, x, fn, {0.5f, 1, 1.5f}, base, 4);
  for (const int64_t r : {0, 15, 16, 97, 250, 498, 499}) {
    Tensor one(DType::bf16, 1, 4 * hidden);
    one.bytes = x.row(r);
    const auto alone = mixes(ops(), queue, one, fn, {0.5f, 1, 1.5f}, base, 4);
    const auto want = mixes(definition(), queue, one, fn, {0.5f, 1, 1.5f}, base, 4);
    EXPECT_TRUE(std::equal(alone.pre.begin(), alone.pre.end(), all.pre.begin() + r * 4));
    EXPECT_TRUE(std::equal(alone.post.begin(), alone.post.end(), all.post.begin() + r * 4));
    EXPECT_TRUE(std::equal(alone.comb.begin(), alone.comb.end(), all.comb.begin() + r * 16));
    const double bound = 1.5 * (4.0 * double(hidden) / 8 + 16) * std::sqrt(1 / 3.0) * 0x1p-24 + 1e-6;  // as above
    for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(alone.pre[i], want.pre[i], bound);
    for (size_t i = 0; i < 16; ++i) EXPECT_NEAR(alone.comb[i], want.comb[i], 2 * bound);
  }
}

TEST_P(StreamsTest, CollapseWeighsTheStreams) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const int64_t hidden : {1, 17, 256}) {
      const Tensor x = noise(dtype, 33, 4 * hidden, 1);
      const auto pre = noise(33 * 4, 2);
      Tensor out(dtype, 33, hidden);
      StreamCollapse op;
      op.streams = x;
      op.pre = view(pre, 4);
      op.out = out.out();
      ops().stream_collapse(queue, op);
      for (int64_t r = 0; r < 33; ++r) {
        for (int64_t h = 0; h < hidden; ++h) {
          double want = 0;
          for (int64_t c = 0; c < 4; ++c) want += double(pre[size_t(4 * r + c)]) * x.at(r, c * hidden + h);
          EXPECT_NEAR(out.at(r, h), want, 8 * 0x1p-24 + rounding(dtype) * std::abs(want));
        }
      }
    }
  }
}

// comb is used transposed: stream k of the result collects column k.
TEST_P(StreamsTest, SpreadCollectsColumns) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const int64_t count : {4, 3}) {
      for (const int64_t hidden : {1, 17, 256}) {
        const Tensor y = noise(dtype, 33, hidden, 1), before = noise(dtype, 33, count * hidden, 2);
        const auto post = noise(33 * count, 3), comb = noise(33 * count * count, 4);
        Tensor x = before;
        StreamSpread op;
        op.y = y;
        op.post = view(post, count);
        op.comb = view(comb, count * count);
        op.streams = x.out();
        ops().stream_spread(queue, op);
        for (int64_t r = 0; r < 33; ++r) {
          for (int64_t k = 0; k < count; ++k) {
            for (int64_t h = 0; h < hidden; ++h) {
              double want = double(post[size_t(count * r + k)]) * y.at(r, h);
              for (int64_t j = 0; j < count; ++j) {
                want += double(comb[size_t((r * count + j) * count + k)]) * before.at(r, j * hidden + h);
              }
              ASSERT_NEAR(x.at(r, k * hidden + h), want, 10 * 0x1p-24 + rounding(dtype) * std::abs(want));
            }
          }
        }
      }
    }
  }
}

TEST_P(StreamsTest, MeanMayWriteIntoAWiderRow) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const int64_t hidden = 40;
    const Tensor x = noise(dtype, 9, 4 * hidden, 1);
    Tensor out(dtype, 9, 3 * hidden);
    StreamMean op;
    op.streams = x;
    op.count = 4;
    op.out = out.out().columns(hidden, hidden);
    ops().stream_mean(queue, op);
    for (int64_t r = 0; r < 9; ++r) {
      EXPECT_EQ(out.at(r, hidden - 1), 0);
      EXPECT_EQ(out.at(r, 2 * hidden), 0);
      for (int64_t h = 0; h < hidden; ++h) {
        const double want =
            (double(x.at(r, h)) + x.at(r, hidden + h) + x.at(r, 2 * hidden + h) + x.at(r, 3 * hidden + h)) / 4;
        EXPECT_NEAR(out.at(r, hidden + h), want, 4 * 0x1p-24 + rounding(dtype) * std::abs(want));
      }
    }
  }
}

}  // namespace
}  // namespace fathom
