// Operations that take a step of another one with them (ops.h): bit for bit what the two do in turn, on every table.
#include <cmath>
#include <cstring>
#include <limits>

#include "fathom/backend/tables_under_test.h"

namespace fathom {
namespace {

constexpr float kEps = 1e-20f;

// Rows in Q8 that own their memory.
struct Codes {
  Tensor codes, scales;
  Codes(int64_t rows, int64_t cols) : codes(DType::f8_e4m3, rows, cols), scales(DType::f8_e8m0, rows, cols / 32) {}
  Q8Rows out() { return {codes.out(), scales.out()}; }
  friend bool operator==(const Codes& a, const Codes& b) {
    return a.codes.bytes == b.codes.bytes && a.scales.bytes == b.scales.bytes;
  }
};

// Noise with a row of zeros, and one that holds the largest numbers and NaN.
Tensor odd_rows(DType dtype, int64_t rows, int64_t cols, uint64_t seed) {
  Tensor x = noise(dtype, rows, cols, seed);
  const auto set = [&](int64_t r, int64_t c, float v) { store(dtype, x.bytes.data(), r * cols + c, v); };
  for (int64_t c = 0; rows > 1 && c < cols; ++c) set(1, c, 0);
  if (rows > 2) {
    set(2, 0, 3e38f);
    set(2, cols / 2, -std::numeric_limits<float>::infinity());
    set(2, cols - 1, std::numeric_limits<float>::quiet_NaN());
  }
  return x;
}

class RowStepsTest : public OverTables {
 protected:
  Codes quantized(const Tensor& x) {
    Codes out(x.rows, x.cols);
    ops().quantize_rows(queue, {x, out.codes.out(), out.scales.out()});
    return out;
  }
  Tensor normed(const Tensor& x, const Tensor& weight) {
    Tensor out(x.dtype, x.rows, x.cols);
    ops().rms_norm(queue, {x, weight, out.out(), kEps});
    return out;
  }
  void turn(Tensor& x, int heads, const Turn& turn) {
    ops().rope(queue, {x.out(), heads, turn.positions, turn.frequencies, turn.inverse});
  }
};
INSTANTIATE_TEST_SUITE_P(Tables, RowStepsTest, all_tables(), table_name);

// Positions and frequencies of a rotation that own their memory.
struct OwnedTurn {
  std::vector<int64_t> positions;
  std::vector<float> frequencies;
  bool inverse;
  OwnedTurn(int64_t rows, int64_t pairs, bool back) : inverse(back) {
    for (int64_t r = 0; r < rows; ++r) positions.push_back(r * 26001);
    for (int64_t i = 0; i < pairs; ++i) frequencies.push_back(float(std::pow(1e4, -double(i) / double(pairs))));
  }
  operator Turn() const { return {view(positions), frequencies, inverse}; }
};

// 0 rows; 1; 70 are more than a piece. 32: one group; 96: no power of two; 5120: the model's hidden size.
constexpr int64_t kRows[] = {0, 1, 3, 70};
constexpr int64_t kGroups[] = {32, 96, 256, 5120};
constexpr DType kTypes[] = {DType::f32, DType::bf16};

TEST_P(RowStepsTest, NormedRowsAreRoundedAsTheyAreStored) {
  for (const int64_t rows : kRows) {
    for (const int64_t cols : kGroups) {
      for (const DType dtype : kTypes) {
        for (const DType weight_type : kTypes) {
          Tensor x = odd_rows(dtype, rows, cols, 1);
          const Tensor weight = noise(weight_type, 1, cols, 2), want = normed(x, weight);
          const Codes want_codes = quantized(want);
          Codes with(rows, cols), alone(rows, cols), over(rows, cols);
          Tensor out(dtype, rows, cols);
          ops().rms_norm(queue, {x, weight, out.out(), kEps, with.out()});
          EXPECT_EQ(out.bytes, want.bytes);
          EXPECT_EQ(with, want_codes) << rows << " x " << cols;
          ops().rms_norm(queue, {x, weight, {}, kEps, alone.out()});
          EXPECT_EQ(alone, want_codes);
          ops().rms_norm(queue, {x, weight, x.out(), kEps, over.out()});
          EXPECT_EQ(x.bytes, want.bytes);
          EXPECT_EQ(over, want_codes);
        }
      }
    }
  }
}

TEST_P(RowStepsTest, RowsAreNormedAndTurnedBeforeTheyAreEncoded) {
  struct Shape {
    int64_t heads, channels, pairs;
  };
  // The miniature's and the model's window rows and index queries; pairs that are no multiple of four.
  for (const Shape& s : {Shape{1, 64, 8}, {1, 512, 32}, {32, 128, 32}, {3, 96, 5}}) {
    for (const int64_t rows : kRows) {
      if (rows * s.heads * s.channels > 100000) continue;
      for (const DType dtype : kTypes) {
        for (const RowFormat format : {RowFormat::f32, RowFormat::q8, RowFormat::q4k, RowFormat::q4i}) {
          for (int steps = 1; steps < 4; ++steps) {
            const Tensor x = odd_rows(dtype, rows, s.heads * s.channels, 3), weight = noise(DType::bf16, 1, x.cols, 4);
            const OwnedTurn turned(rows, s.pairs, rows == 3);
            const int64_t bytes = s.heads * row_bytes(format, s.channels);
            std::vector<uint8_t> want(size_t(rows * bytes)), got(want);
            Tensor prepared = (steps & 1) != 0 ? normed(x, weight) : x;
            if ((steps & 2) != 0) turn(prepared, int(s.heads), turned);
            ops().encode_rows(queue, {prepared, int(s.heads), format, view(want, bytes)});
            EncodeRows op{x, int(s.heads), format, view(got, bytes)};
            if ((steps & 1) != 0) op.norm = {weight, kEps};
            if ((steps & 2) != 0) op.turn = turned;
            const auto before = x.bytes;
            ops().encode_rows(queue, op);
            EXPECT_EQ(got, want) << rows << " x " << s.heads << " x " << s.channels << ", " << int(format) << ' '
                                 << steps;
            EXPECT_EQ(x.bytes, before) << "rows that are read stay as they are";
          }
        }
      }
    }
  }
}

TEST_P(RowStepsTest, HeadsAreTurnedBeforeTheyAreRounded) {
  for (const auto& [heads, channels, pairs] : {std::array<int64_t, 3>{8, 64, 8}, {64, 512, 32}, {3, 96, 5}}) {
    for (const int64_t rows : kRows) {
      if (rows * heads * channels > 150000) continue;
      for (const DType dtype : kTypes) {
        const Tensor x = odd_rows(dtype, rows, heads * channels, 5);
        const OwnedTurn turned(rows, pairs, true);
        Tensor prepared = x;
        turn(prepared, int(heads), turned);
        Codes got(rows, x.cols);
        ops().quantize_rows(queue, {x, got.codes.out(), got.scales.out(), int(heads), turned});
        EXPECT_EQ(got, quantized(prepared)) << rows << " x " << heads << " x " << channels;
      }
    }
  }
}

TEST_P(RowStepsTest, TheActivationIsRoundedAsItIsStored) {
  for (const int64_t rows : kRows) {
    for (const int64_t cols : {32, 96, 2304}) {
      for (const DType dtype : kTypes) {
        const Tensor gate = odd_rows(dtype, rows, cols, 6), up = odd_rows(dtype, rows, cols, 7);
        const auto weight = noise(rows, 8);
        Tensor want(dtype, rows, cols), out(dtype, rows, cols);
        ops().swiglu(queue, {gate, up, view(weight), 10, want.out()});
        Codes with(rows, cols), alone(rows, cols);
        ops().swiglu(queue, {gate, up, view(weight), 10, out.out(), with.out()});
        ops().swiglu(queue, {gate, up, view(weight), 10, {}, alone.out()});
        EXPECT_EQ(out.bytes, want.bytes);
        EXPECT_EQ(with, quantized(want)) << rows << " x " << cols;
        EXPECT_EQ(alone, with);
      }
    }
  }
}

// What the streams become for the next sub-layer, step by step.
struct Collapsed {
  Tensor out;
  Codes codes;
};

class StreamStepsTest : public RowStepsTest {
 protected:
  Collapsed collapse(const Tensor& streams, const std::vector<float>& pre, int64_t count, const Tensor& weight) {
    const int64_t hidden = streams.cols / count;
    Tensor out(streams.dtype, streams.rows, hidden);
    ops().stream_collapse(queue, {streams, view(pre, count), out.out()});
    Tensor done = normed(out, weight);
    Codes codes = hidden % 32 == 0 ? quantized(done) : Codes(streams.rows, 0);
    return {done, codes};
  }
};
INSTANTIATE_TEST_SUITE_P(Tables, StreamStepsTest, all_tables(), table_name);

TEST_P(StreamStepsTest, StreamsAreCollapsedNormedAndRoundedAtOnce) {
  for (const int64_t count : {4, 3}) {
    for (const int64_t rows : {1, 3, 40}) {
      for (const int64_t hidden : {1, 17, 32, 96, 256, 5120}) {
        for (const DType dtype : kTypes) {
          const Tensor x = odd_rows(dtype, rows, count * hidden, 1), weight = noise(DType::bf16, 1, hidden, 2);
          const auto pre = noise(rows * count, 3);
          const Collapsed want = collapse(x, pre, count, weight);
          Tensor out(dtype, rows, hidden);
          StreamCollapse op{x, view(pre, count), out.out(), {weight, kEps}};
          ops().stream_collapse(queue, op);
          EXPECT_EQ(out.bytes, want.out.bytes) << count << " x " << hidden;
          if (hidden % 32 != 0) continue;
          Codes with(rows, hidden), alone(rows, hidden);
          Tensor again(dtype, rows, hidden);
          op.out = again.out();
          op.q8 = with.out();
          ops().stream_collapse(queue, op);
          EXPECT_EQ(again.bytes, want.out.bytes);
          EXPECT_EQ(with, want.codes) << count << " x " << hidden;
          op.out = {};
          op.q8 = alone.out();
          ops().stream_collapse(queue, op);
          EXPECT_EQ(alone, want.codes);
        }
      }
    }
  }
}

// The end of a sub-layer: the experts' sum, the spread, and what the sub-layer behind reads.
TEST_P(StreamStepsTest, ASpreadSumsBeforeAndCollapsesBehind) {
  constexpr int64_t kSlots = 3;
  for (const int64_t count : {4, 3}) {
    for (const int64_t rows : {0, 1, 3, 40}) {
      for (const int64_t hidden : {1, 17, 32, 96, 256, 5120}) {
        for (const DType dtype : kTypes) {
          const Tensor before = odd_rows(dtype, rows, count * hidden, 1), weight = noise(DType::bf16, 1, hidden, 2);
          const Tensor routed = noise(dtype, rows * kSlots, hidden, 3), shared = noise(dtype, rows, hidden, 4);
          std::vector<int32_t> place;
          for (int64_t i = 0; i < rows * kSlots; ++i) place.push_back(int32_t(rows * kSlots - 1 - i));
          const auto pre = noise(rows * count, 5), post = noise(rows * count, 6), comb = noise(rows * count * count, 7);
          Tensor y(dtype, rows, hidden), want = before;
          ops().combine(queue, {routed, view(std::as_const(place), kSlots), shared, y.out()});
          ops().stream_spread(queue, {y, view(post, count), view(comb, count * count), want.out()});
          const Collapsed input = collapse(want, pre, count, weight);

          Tensor streams = before, out(dtype, rows, hidden);
          StreamSpread op{shared, view(post, count), view(comb, count * count), streams.out()};
          op.routed = routed;
          op.place = view(std::as_const(place), kSlots);
          ops().stream_spread(queue, op);
          EXPECT_EQ(streams.bytes, want.bytes) << count << " x " << hidden;

          streams = before;
          op.streams = streams.out();
          op.next = {{}, view(pre, count), out.out(), {weight, kEps}};
          Codes codes(rows, hidden);
          if (hidden % 32 == 0) op.next.q8 = codes.out();
          ops().stream_spread(queue, op);
          EXPECT_EQ(streams.bytes, want.bytes) << count << " x " << hidden;
          EXPECT_EQ(out.bytes, input.out.bytes) << count << " x " << hidden;
          if (hidden % 32 == 0) {
            EXPECT_EQ(codes, input.codes) << count << " x " << hidden;
          }

          // Of a y that is already summed; a row has the same bits alone.
          for (const int64_t r : {int64_t(0), rows - 1}) {
            if (rows == 0) continue;
            Tensor one(dtype, 1, count * hidden), one_y(dtype, 1, hidden), one_out(dtype, 1, hidden);
            one.bytes = before.row(r);
            one_y.bytes = y.row(r);
            StreamSpread alone{one_y, View<const float, 2>(post.data() + r * count, {1, count}),
                               View<const float, 2>(comb.data() + r * count * count, {1, count * count}), one.out()};
            alone.next = {{}, View<const float, 2>(pre.data() + r * count, {1, count}), one_out.out(), {weight, kEps}};
            ops().stream_spread(queue, alone);
            EXPECT_EQ(one.bytes, want.row(r));
            EXPECT_EQ(one_out.bytes, input.out.row(r));
          }
        }
      }
    }
  }
}

// A rank keeps some of the experts: experts have other numbers there, several of them the same.
TEST_P(RowStepsTest, AssignmentsAreSortedByTheNumbersThatExpertsAreGiven) {
  const std::vector<int32_t> experts{7, 2, 0, 5, 3, 6, 1, 4}, number{0, 1, 2, 0, 1, 2, 0, 1};
  const std::vector<float> weights = noise(8, 1);
  std::vector<int32_t> renamed;
  for (const int32_t e : experts) renamed.push_back(number[size_t(e)]);
  struct Groups {
    std::vector<int32_t> begin = std::vector<int32_t>(4, -1), row = std::vector<int32_t>(8, -1), place = row;
    std::vector<float> weight = std::vector<float>(8, -1.0f);
  };
  const auto group = [&](const std::vector<int32_t>& chosen, View<const int32_t, 1> names) {
    Groups out;
    GroupByExpert op;
    op.experts = view(chosen, 2);
    op.weights = view(weights, 2);
    op.begin = view(out.begin);
    op.row = view(out.row);
    op.weight = view(out.weight);
    op.place = view(out.place, 2);
    op.number = names;
    ops().group_by_expert(queue, op);
    return out;
  };
  const Groups want = group(renamed, {}), got = group(experts, view(number));
  EXPECT_EQ(got.begin, (std::vector<int32_t>{0, 3, 6, 8}));
  EXPECT_EQ(got.begin, want.begin);
  EXPECT_EQ(got.row, want.row);
  EXPECT_EQ(got.weight, want.weight);
  EXPECT_EQ(got.place, want.place);
}

}  // namespace
}  // namespace fathom
