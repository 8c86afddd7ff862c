// The kernel of index_scores.cuh, its own text, run by a model of the machine (warpgroup_model.h): scores against the
// definition, counts and what blocks are worth by the scores that it wrote. On a device select_rows_test.cpp shows the
// same; here any machine does, and copies are as late as they may be.
#include <gtest/gtest.h>

#include "fathom/backend/backend.h"
#include "fathom/backend/cuda/index_scores_text.h"
#include "fathom/backend/owned_values.h"

namespace fathom::cuda_model {
namespace {

constexpr float kUnwritten = 7;
constexpr int64_t kEntryBytes = 68;

struct IndexCase {
  std::vector<std::pair<int64_t, int64_t>> sequences;  // first position, rows
  int64_t capacity;                                    // entries
  int keys_of_block, per_page;
  int kinds = 0;  // of what is counted: nothing, scores, scores and blocks of eight entries
  int ratio = 1, heads = 32, top_k = 8;
  DType weights = DType::f32;
  int64_t first_row = 0;
  int late_warp = -1;  // of four
};

/// Codes of any value; scales from 2^-10 on, a few of them beyond one factor (index_keys.cuh).
void draw(uint8_t* entry, uint64_t seed, uint32_t number) {
  for (uint32_t i = 0; i < 16; ++i) {
    const uint32_t word = philox(seed, {number, i, 0, 0})[0];
    std::memcpy(entry + 4 * i, &word, 4);
  }
  for (uint32_t i = 0; i < 4; ++i) {
    const auto random = philox(seed, {number, i, 1, 0});
    entry[64 + i] = uint8_t(random[1] % 40 == 0 ? 129 + random[0] % 8 : 117 + random[0] % 12);
  }
}

/// Operands of a choice, and what its rows' scores are by definition.
struct IndexData {
  const IndexCase& c;
  OwnedRows rows;
  OwnedPages pages;
  int64_t count, query_stride;
  std::vector<uint8_t> queries;
  Tensor weights;

  explicit IndexData(const IndexCase& own)
      : c(own),
        rows(c.sequences),
        pages(int64_t(c.sequences.size()), c.capacity, kEntryBytes, c.per_page, 32),
        count(int64_t(rows.positions.size())),
        query_stride(c.heads * kEntryBytes + 4),
        queries(size_t(count * query_stride)),
        weights(noise(c.weights, count, c.heads, 3)) {
    for (int64_t r = 0; r < count; ++r) {
      for (int h = 0; h < c.heads; ++h) {
        draw(queries.data() + r * query_stride + h * kEntryBytes, 1, uint32_t(r * c.heads + h));
      }
    }
    for (size_t sequence = 0; sequence < c.sequences.size(); ++sequence) {
      for (int64_t e = 0; e < c.capacity; ++e) {
        uint8_t* entry = pages.region.entry(int64_t(sequence), e);
        draw(entry, 2, uint32_t(int64_t(sequence) * c.capacity + e));
        if (e % 301 == 77) entry[65] = 255;  // no number
        if (e % 301 == 78) entry[66] = 0;
      }
    }
  }
  int64_t visible(int64_t r) const { return (rows.positions[size_t(r)] + 1) / c.ratio; }

  /// [rows, capacity]; -1e30 where not visible.
  std::vector<float> scores() const {
    std::vector<float> out(size_t(count * c.capacity));
    std::vector<int32_t> entries(static_cast<size_t>(count)), counts(static_cast<size_t>(count));
    SelectRows op;
    op.rows = rows;
    op.queries = {queries.data(), {count, c.heads * kEntryBytes}, {query_stride, 1}};
    op.head_weights = weights;
    op.weight_scale = kWeightScale;
    op.heads = c.heads, op.channels = 128;
    op.format = RowFormat::q4i;
    op.keys = pages.region;
    op.ratio = c.ratio;
    op.top_k = 1;
    op.entries = view(entries, 1);
    op.count = view(counts);
    op.scores = view(out, c.capacity);
    const Backend reference = reference_backend();
    reference.ops.select_rows(**reference.open_queue(1), op);
    return out;
  }
  /// Without signs: then scores are what their sums' terms amount to.
  void drop_signs() {
    const auto drop = [](uint8_t* entry) {
      for (int i = 0; i < 64; ++i) entry[i] &= 0x77;
    };
    for (int64_t i = 0; i < count * c.heads; ++i) {
      drop(queries.data() + i / c.heads * query_stride + i % c.heads * kEntryBytes);
    }
    for (size_t sequence = 0; sequence < c.sequences.size(); ++sequence) {
      for (int64_t e = 0; e < c.capacity; ++e) drop(pages.region.entry(int64_t(sequence), e));
    }
    for (int64_t i = 0; i < count * c.heads; ++i) {
      store(c.weights, weights.bytes.data(), i, std::abs(load(c.weights, weights.bytes.data(), i)));
    }
  }
  static constexpr float kWeightScale = 0.015625f;
};

/// What the kernel writes to.
struct IndexResults {
  int64_t rows, worth_capacity;
  std::vector<float> scores, worth;
  std::vector<unsigned> bins;
  std::vector<Found> found;
  IndexResults(int64_t piece, int64_t capacity, int kinds)
      : rows(piece),
        worth_capacity(kinds == 2 ? (capacity + kSpan - 1) / kSpan + 3 : 0),
        scores(size_t(rows * capacity), kUnwritten),
        worth(size_t(rows * worth_capacity), kUnwritten),
        bins(size_t(kinds * rows * kBins)),
        found(size_t(kinds * rows), Found{-9, -9, -9, 99}) {}
};

// The bins of what is above -inf (a NaN is not).
void expect_counts(const unsigned* bins, const std::vector<float>& values) {
  std::vector<unsigned> want(kBins);
  for (const float v : values) want[size_t(bin_of(v))] += v > -INFINITY;
  EXPECT_EQ(want, std::vector<unsigned>(bins, bins + kBins));
}

void expect_row(const IndexData& data, const Selection& s, const IndexResults& got, int64_t r, const float* want,
                const float* amount) {
  SCOPED_TRACE(testing::Message() << "row " << r);
  const IndexCase& c = data.c;
  const int64_t row = r - c.first_row, visible = data.visible(r);
  const float* scores = got.scores.data() + row * c.capacity;
  std::vector<float> seen;
  if (!s.takes_all(r)) seen.assign(scores, scores + visible);
  for (size_t e = 0; e < seen.size(); ++e) {
    if (std::isnan(want[e])) {
      EXPECT_TRUE(std::isnan(seen[e])) << "entry " << e;
      continue;
    }
    // Exact operands; roundings at most: 8 steps of a dot, 4 heads of a lane, 1 + 2 sums of lanes, the definition's
    // one.
    EXPECT_NEAR(seen[e], want[e], 16 * 0x1p-24 * double(amount[e])) << "entry " << e;
  }
  for (int64_t e = int64_t(seen.size()); e < c.capacity; ++e) EXPECT_EQ(scores[e], kUnwritten) << "entry " << e;
  if (c.kinds > 0) expect_counts(got.bins.data() + row * kBins, seen);
  if (c.kinds < 2) return;
  std::vector<float> worth;  // the best of eight entries; the newest block stays
  for (size_t e = 0; e < seen.size(); ++e) {
    if (e % kSpan == 0) worth.push_back(-INFINITY);
    if (seen[e] > worth.back()) worth.back() = seen[e];
  }
  if (!worth.empty()) worth.back() = INFINITY;
  expect_counts(got.bins.data() + (got.rows + row) * kBins, worth);
  worth.resize(size_t(got.worth_capacity), kUnwritten);
  const float* own = got.worth.data() + row * got.worth_capacity;
  EXPECT_EQ(worth, std::vector<float>(own, own + got.worth_capacity));
}

template <int Rows>
void run(const IndexCase& c) {
  SCOPED_TRACE(testing::Message() << Rows << " rows together, " << c.kinds << " kinds");
  IndexData data(c);
  const int64_t piece = data.count - c.first_row, sequences = int64_t(c.sequences.size());
  IndexResults got(piece, c.capacity, c.kinds);
  Selection s{};
  s.positions = data.rows.positions.data(), s.sequence = data.rows.sequence.data(), s.begin = data.rows.begin.data();
  s.queries = data.queries.data(), s.query_stride = data.query_stride;
  s.head_weights = data.weights.bytes.data(), s.bf16_weights = c.weights == DType::bf16;
  s.weight_stride = c.heads, s.weight_scale = IndexData::kWeightScale;
  s.heads = c.heads, s.channels = 128, s.entry_bytes = kEntryBytes, s.format = RowFormat::q4i;
  s.keys = data.pages.region;
  s.ratio = c.ratio, s.top_k = c.top_k;
  if (c.kinds == 2) s.source = true, s.block_size = kSpan, s.top_blocks = 1;
  s.scores = got.scores.data(), s.capacity = c.capacity, s.first_row = c.first_row;
  Tallies tallies{};
  if (c.kinds > 0) tallies.bins = got.bins.data();
  tallies.found = got.found.data(), tallies.rows = piece;
  tallies.worth = got.worth.data(), tallies.worth_capacity = got.worth_capacity;
  const int page_shift = std::countr_zero(unsigned(c.per_page));
  const Launch l{piece, int(sequences), c.keys_of_block, min(page_shift, 7), page_shift, int(s.keys.block_stride)};
  machine::late_warp = c.late_warp;
  // As index_scores.cu launches it.
  for (unsigned group = 0; group < unsigned(min(piece, piece / Rows + sequences)); ++group) {
    machine::run_warpgroups(
        {.blocks = unsigned((c.capacity + c.keys_of_block - 1) / c.keys_of_block), .threads = kThreads<Rows>}, [&] {
          machine::block_index.y = group;
          index_scores_kernel<Rows>(s, tallies, l);
        });
  }
  machine::late_warp = -1;
  const std::vector<float> want = data.scores();
  data.drop_signs();
  const std::vector<float> amount = data.scores();
  for (int64_t r = c.first_row; r < data.count; ++r) {
    expect_row(data, s, got, r, want.data() + r * c.capacity, amount.data() + r * c.capacity);
  }
  for (const Found& found : got.found) EXPECT_EQ(found.candidates, 0u);
}

// Tiles of 128 entries in turns for two or four warpgroups, two of each under way: five for each, then a block with
// less than a tile; the last one ends inside eight entries. Copies of 16 entries. In turns no warp, the first and the
// last of four are late.
TEST(IndexScoresModelTest, TilesAreFetchedWhereOthersHaveBeenRead) {
  const auto with = [](int64_t rows, int warpgroups, int late_warp) {
    const int keys = 5 * 128 * warpgroups;
    return IndexCase{.sequences = {{keys + 76, rows}},
                     .capacity = keys + 90,
                     .keys_of_block = keys,
                     .per_page = 16,
                     .late_warp = late_warp};
  };
  for (const int late_warp : {-1, 0, 3}) {
    SCOPED_TRACE(testing::Message() << "warp " << late_warp << " is late");
    run<1>(with(1, 2, late_warp));
    run<2>(with(2, 2, late_warp));
    run<4>(with(4, 4, late_warp));
    run<8>(with(8, 4, late_warp));
  }
}

TEST(IndexScoresModelTest, ScoresAndBlocksAreCounted) {
  for (const int kinds : {1, 2}) {
    const IndexCase c = {
        .sequences = {{1530, 4}}, .capacity = 800, .keys_of_block = 512, .per_page = 128, .kinds = kinds, .ratio = 2};
    run<1>(c);
    run<2>(c);
    run<4>(c);
    if (kinds == 1) run<8>(c);
  }
}

// Groups of rows end where sequences do; one has no rows. Rows that see few take all, without scores; the piece begins
// inside a sequence. Pages of eight entries, and larger ones than a tile.
TEST(IndexScoresModelTest, RowsOfSequencesAreGrouped) {
  for (const int per_page : {8, 256}) {
    const IndexCase c = {.sequences = {{300, 3}, {5, 0}, {4, 5}, {270, 6}, {2, 1}},
                         .capacity = 320,
                         .keys_of_block = 512,
                         .per_page = per_page,
                         .kinds = 1,
                         .heads = 20,
                         .top_k = 6,
                         .weights = DType::bf16,
                         .first_row = 1};
    run<1>(c);
    run<2>(c);
    run<4>(c);
    run<8>(c);
  }
}

}  // namespace
}  // namespace fathom::cuda_model
