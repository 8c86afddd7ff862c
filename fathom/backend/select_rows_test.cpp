#include <set>

#include "fathom/backend/tables_under_test.h"

namespace fathom {
namespace {

using Chosen = std::vector<int32_t>;

// One SelectRows with the memory of its outputs, which start as poison: a number that is never a legal index.
constexpr int32_t kPoison = 0x5a5a5a5a;
struct Selection {
  SelectRows op;
  std::vector<int32_t> entries, count, blocks, block_count;
  std::vector<float> scores;

  void run(const Operations& table, Queue& queue, int64_t score_columns) {
    const int64_t rows = op.rows.rows();
    entries.assign(size_t(rows * op.top_k), kPoison);
    count.assign(size_t(rows), kPoison);
    scores.assign(size_t(rows * score_columns), 7.0f);
    op.entries = view(entries, op.top_k);
    op.count = view(count);
    if (score_columns > 0) op.scores = view(scores, score_columns);
    if (op.candidate_source) {
      blocks.assign(size_t(rows * op.top_blocks), kPoison);
      block_count.assign(size_t(rows), kPoison);
    }
    if (op.block_size > 0) {
      op.blocks = view(blocks, op.top_blocks);
      op.block_count = view(block_count);
    }
    table.select_rows(queue, op);
  }
  Chosen chosen(int64_t r) const {
    const int64_t n = count[size_t(r)];
    for (int64_t i = n; i < op.top_k; ++i) EXPECT_EQ(op.entries(r, i), -1);
    return {entries.begin() + r * op.top_k, entries.begin() + r * op.top_k + n};
  }
  Chosen chosen_blocks(int64_t r) const {
    const int64_t n = block_count[size_t(r)];
    for (int64_t i = n; i < op.top_blocks; ++i) EXPECT_EQ(op.blocks(r, i), -1);
    return {blocks.begin() + r * op.top_blocks, blocks.begin() + r * op.top_blocks + n};
  }
};

// One head of 32 channels in f32, query e0: the score of entry j is relu(score[j]) * weight.
struct Simple {
  OwnedRows rows;
  Tensor query, weight;
  OwnedPages pages;
  Selection selection;

  Simple(int64_t position, const std::vector<float>& score, float w, int top_k)
      : rows({{position, 1}}),
        query(DType::f32, 1, 32),
        weight(DType::f32, 1, 1, {w}),
        pages(1, int64_t(score.size()), 128, 4) {
    store(DType::f32, query.bytes.data(), 0, 1);
    for (size_t j = 0; j < score.size(); ++j) {
      std::fill_n(pages.region.entry(0, int64_t(j)), 128, uint8_t(0));
      store(DType::f32, pages.region.entry(0, int64_t(j)), 0, score[j]);
    }
    SelectRows& op = selection.op;
    op.rows = rows;
    op.queries = view(std::as_const(query.bytes), 128);
    op.head_weights = weight;
    op.heads = 1;
    op.channels = 32;
    op.format = RowFormat::f32;
    op.keys = pages.region;
    op.top_k = top_k;
  }
};

class SelectRowsTest : public OverTables {};
INSTANTIATE_TEST_SUITE_P(Tables, SelectRowsTest, all_tables(), table_name);

TEST_P(SelectRowsTest, TheBestAreWrittenInRisingOrder) {
  Simple s(5, {1, 5, 2, 4, 3, 0}, 1, 3);
  s.selection.run(ops(), queue, 0);
  EXPECT_EQ(s.selection.chosen(0), (Chosen{1, 3, 4}));
}

TEST_P(SelectRowsTest, EqualScoresGoToTheLowerEntry) {
  Simple s(7, {2, 1, 2, 2, 1, 2, 2, 3}, 1, 4);
  s.selection.run(ops(), queue, 0);
  EXPECT_EQ(s.selection.chosen(0), (Chosen{0, 2, 3, 7}));
  Simple zeros(7, {-1, 0, -2, -0.0f, 0, 0, 0, 0}, 1, 3);  // relu makes them all 0
  zeros.selection.run(ops(), queue, 0);
  EXPECT_EQ(zeros.selection.chosen(0), (Chosen{0, 1, 2}));
}

TEST_P(SelectRowsTest, NegativeWeightsPreferSmallProducts) {
  Simple s(3, {5, 1, 3, 2}, -1, 2);
  s.selection.run(ops(), queue, 0);
  EXPECT_EQ(s.selection.chosen(0), (Chosen{1, 3}));
}

// Entry j of ratio 2 is seen from position 2j + 1 on: (position + 1) / 2 entries.
TEST_P(SelectRowsTest, OnlyVisibleEntriesAreChosen) {
  for (const auto& [position, visible] :
       std::vector<std::pair<int64_t, int>>{{0, 0}, {1, 1}, {2, 1}, {3, 2}, {10, 5}}) {
    Simple s(position, {1, 2, 3, 4, 5, 9, 9, 9}, 1, 6);
    s.selection.op.ratio = 2;
    s.selection.run(ops(), queue, 8);
    EXPECT_EQ(s.selection.count[0], visible);
    for (int64_t j = 0; j < 8; ++j) {
      EXPECT_EQ(s.selection.scores[size_t(j)], j < visible ? float(j + 1) : -1e30f) << j;
    }
  }
}

TEST_P(SelectRowsTest, WhoMaySeeFewTakesAllWithoutLooking) {
  Simple s(3, {1, 2, 3, 4}, 1, 4);
  s.selection.op.queries = {};  // scores are not needed
  s.selection.run(ops(), queue, 0);
  EXPECT_EQ(s.selection.chosen(0), (Chosen{0, 1, 2, 3}));
}

// Blocks of 2 with best entries 5, 1, 4, 0, 3; the newest block, with the partial entry 9, always stays.
TEST_P(SelectRowsTest, TheSourceKeepsTheBestBlocksAndTheNewest) {
  Simple s(8, {5, 0, 1, 1, 0, 4, 0, 0, 0.5f, 77}, 1, 2);
  SelectRows& op = s.selection.op;
  op.block_size = 2;
  op.top_blocks = 3;
  op.candidate_source = true;
  s.selection.run(ops(), queue, 0);
  EXPECT_EQ(s.selection.chosen_blocks(0), (Chosen{0, 2, 4}));
  EXPECT_EQ(s.selection.chosen(0), (Chosen{0, 5}));  // its own choice is among all entries
}

TEST_P(SelectRowsTest, EqualBlocksGoToTheLowerOne) {
  Simple s(7, {1, 1, 2, 2, 2, 2, 0, 0}, 1, 2);
  SelectRows& op = s.selection.op;
  op.block_size = 2;
  op.top_blocks = 2;
  op.candidate_source = true;
  s.selection.run(ops(), queue, 0);
  EXPECT_EQ(s.selection.chosen_blocks(0), (Chosen{1, 3}));
}

// More entries than one block of a device chooses from: the choice is exactly the definition's. Scores all different,
// in a few classes of equal ones, all alike, nearly all zero, never chosen, of all magnitudes.
TEST_P(SelectRowsTest, ManyEntriesAreChosenExactly) {
  for (const int64_t entries : {16385, 40001, 270003}) {
    for (const int kind : {0, 1, 2, 3, 4, 5}) {
      if (entries > 100000 && kind > 1) continue;
      SCOPED_TRACE(testing::Message() << entries << " entries, kind " << kind);
      std::vector<float> score = noise(entries, uint64_t(kind));
      for (int64_t i = 0; i < entries; ++i) {
        float& v = score[size_t(i)];
        if (kind == 0) v = v * v * 100;
        if (kind == 1) v = std::round(v * 8);
        if (kind == 2) v = 2.5f;
        if (kind == 3) v = i % 977 == 0 ? v + 2 : -1;
        if (kind == 4) v = i % 3 == 0 ? NAN : v;
        if (kind == 5) v = std::ldexp(v, int(i % 151) - 75);
      }
      Simple want(entries - 1, score, 0.5f, 512), got(entries - 1, score, 0.5f, 512);
      for (Simple* s : {&want, &got}) {
        s->selection.op.block_size = 8;
        s->selection.op.top_blocks = 700;
        s->selection.op.candidate_source = true;
      }
      want.selection.run(definition(), queue, 0);
      got.selection.run(ops(), queue, 0);
      EXPECT_EQ(got.selection.entries, want.selection.entries);
      EXPECT_EQ(got.selection.count, want.selection.count);
      EXPECT_EQ(got.selection.blocks, want.selection.blocks);
      EXPECT_EQ(got.selection.block_count, want.selection.block_count);
    }
  }
}

// Case num-03: numbers past the count are poison and must not be followed.
TEST_P(SelectRowsTest, LaterLayersChooseInsideTheCandidates) {
  for (const int32_t kept : {0, 1, 2, 3}) {
    Simple s(8, {5, 6, 9, 9, 1, 4, 9, 9, 0.5f, 9}, 1, 3);
    SelectRows& op = s.selection.op;
    op.block_size = 2;
    op.top_blocks = 6;
    s.selection.blocks = {0, 2, 4, kPoison, kPoison, kPoison};
    std::fill(s.selection.blocks.begin() + kept, s.selection.blocks.end(), kPoison);
    s.selection.block_count = {kept};
    s.selection.run(ops(), queue, 10);
    const std::vector<Chosen> want{{}, {0, 1}, {0, 1, 5}, {0, 1, 5}};
    EXPECT_EQ(s.selection.chosen(0), want[size_t(kept)]);
    EXPECT_EQ(s.selection.scores[2], -1e30f);
    EXPECT_EQ(s.selection.scores[0], kept > 0 ? 5.0f : -1e30f);
  }
}

// Several sequences with random keys. A variant may round scores differently, so its choice must be one that the exact
// scores allow: nothing that was left out is better than what was taken, beyond the rounding.
struct Random {
  OwnedRows rows;
  Tensor weights;
  std::vector<uint8_t> queries;
  OwnedPages pages;
  Selection selection;

  Random(std::vector<std::pair<int64_t, int64_t>> pieces, int64_t entries, int heads, int channels, RowFormat format,
         int ratio, int top_k, DType dtype, int per_block = 8, int gap = 24)
      : rows(pieces),
        weights(noise(dtype, int64_t(rows.positions.size()), heads, 1)),
        queries(size_t(int64_t(rows.positions.size()) * heads * row_bytes(format, channels))),
        pages(int64_t(pieces.size()), entries, int(row_bytes(format, channels)), per_block, gap) {
    const int64_t bytes = row_bytes(format, channels);
    for (size_t i = 0; i < queries.size() / size_t(bytes); ++i) {
      encode_row(format, noise(channels, 100 + i), queries.data() + int64_t(i) * bytes);
    }
    for (size_t s = 0; s < pieces.size(); ++s) {
      for (int64_t e = 0; e < entries; ++e) {
        encode_row(format, noise(channels, 10000 + 1000 * s + size_t(e)), pages.region.entry(int64_t(s), e));
      }
    }
    SelectRows& op = selection.op;
    op.rows = rows;
    op.queries = view(std::as_const(queries), heads * bytes);
    op.head_weights = weights;
    op.weight_scale = 1 / std::sqrt(float(channels * heads));
    op.heads = heads;
    op.channels = channels;
    op.format = format;
    op.keys = pages.region;
    op.ratio = ratio;
    op.top_k = top_k;
  }
};

TEST_P(SelectRowsTest, AgreesWithTheDefinition) {
  const std::vector<std::pair<int64_t, int64_t>> pieces{{150, 40}, {0, 0}, {199, 1}, {0, 9}};
  for (const RowFormat format : {RowFormat::q4i, RowFormat::f32}) {
    for (const auto& [heads, channels] : std::vector<std::pair<int, int>>{{8, 64}, {32, 128}, {3, 32}}) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        Random want(pieces, 200, heads, channels, format, 1, 64, dtype),
            got(pieces, 200, heads, channels, format, 1, 64, dtype);
        for (Random* r : {&want, &got}) {
          r->selection.op.block_size = 8;
          r->selection.op.top_blocks = 16;
          r->selection.op.candidate_source = true;
        }
        want.selection.run(definition(), queue, 200);
        got.selection.run(ops(), queue, 200);
        // A dot of `channels` products up to 1 and a weighted sum over heads, in float.
        const float bound =
            float((channels + heads) * channels) * 0x1p-24f * want.selection.op.weight_scale * float(heads);
        for (int64_t r = 0; r < 50; ++r) {
          const float* score = want.selection.scores.data() + r * 200;
          for (int64_t e = 0; e < 200; ++e) {
            ASSERT_NEAR(got.selection.scores[size_t(r * 200 + e)], score[e], bound);
          }
          EXPECT_EQ(got.selection.count[size_t(r)], want.selection.count[size_t(r)]);
          const Chosen chosen = got.selection.chosen(r);
          EXPECT_TRUE(std::is_sorted(chosen.begin(), chosen.end()));
          const std::set<int32_t> taken(chosen.begin(), chosen.end());
          float worst = INFINITY, left = -INFINITY;
          for (int32_t e = 0; e <= want.rows.positions[size_t(r)]; ++e) {
            float& side = taken.count(e) ? worst : left;
            side = taken.count(e) ? std::min(side, score[e]) : std::max(side, score[e]);
          }
          EXPECT_GE(worst, left - 2 * bound);
          EXPECT_EQ(got.selection.block_count[size_t(r)], want.selection.block_count[size_t(r)]);
        }
      }
    }
  }
}

TEST_P(SelectRowsTest, ARowDoesNotDependOnItsBatch) {
  const std::vector<std::pair<int64_t, int64_t>> pieces{{100, 30}};
  for (const RowFormat format : {RowFormat::q4i, RowFormat::f32}) {
    Random batch(pieces, 130, 8, 64, format, 1, 16, DType::f32);
    batch.selection.run(ops(), queue, 130);
    for (const int64_t r : {0, 7, 29}) {
      Random alone(pieces, 130, 8, 64, format, 1, 16, DType::f32);
      const OwnedRows one({{100 + r, 1}});
      SelectRows& op = alone.selection.op;
      op.rows = one;
      op.queries = View<const uint8_t, 2>(op.queries.row(r).data(), {1, op.queries.shape[1]});
      op.head_weights = op.head_weights.slice(r, 1);
      alone.selection.run(ops(), queue, 130);
      EXPECT_TRUE(std::equal(alone.selection.scores.begin(), alone.selection.scores.end(),
                             batch.selection.scores.begin() + r * 130));
      EXPECT_EQ(alone.selection.chosen(0), batch.selection.chosen(r));
      // Without the scores' view the choice is the same.
      op.scores = {};
      alone.selection.run(ops(), queue, 0);
      EXPECT_EQ(alone.selection.chosen(0), batch.selection.chosen(r));
    }
  }
}

// Blocks on addresses of 16 bytes, as caches have them.
struct AlignedRandom : Random {
  static constexpr int64_t kEntries = 2000;
  AlignedRandom(const std::vector<std::pair<int64_t, int64_t>>& pieces, int heads, int per_block,
                int64_t entries = kEntries)
      : Random(pieces, entries, heads, 128, RowFormat::q4i, 1, 16, DType::bf16, per_block, 32) {}
  bool chose(int64_t row, int32_t entry) const {
    const auto chosen = selection.op.entries.row(row);
    return std::count(chosen.begin(), chosen.end(), entry) > 0;
  }
};

// Rows of a sequence share what they read of its entries, two, four or eight at a time: also where sequences of
// different lengths stand side by side.
TEST_P(SelectRowsTest, RowsThatShareEntriesHaveTheScoresThatTheyHaveAlone) {
  constexpr int64_t kEntries = AlignedRandom::kEntries;
  using Pieces = std::vector<std::pair<int64_t, int64_t>>;
  struct Case {
    Pieces pieces;
    int heads, per_block;
  };
  for (const Case& c : {Case{{{1965, 35}}, 32, 64}, Case{{{1200, 33}}, 9, 24}, Case{Pieces(8, {1990, 4}), 32, 8},
                        Case{Pieces(8, {1998, 2}), 32, 128}, Case{{{0, 1}, {1500, 30}, {0, 0}, {1997, 3}}, 32, 64}}) {
    AlignedRandom batch(c.pieces, c.heads, c.per_block);
    batch.selection.run(ops(), queue, kEntries);
    AlignedRandom alone(c.pieces, c.heads, c.per_block);
    SelectRows& op = alone.selection.op;
    const SelectRows whole = op;
    const auto& blocks = whole.keys.blocks;
    int64_t row = 0;
    for (size_t s = 0; s < c.pieces.size(); ++s) {
      for (int64_t i = 0; i < c.pieces[s].second; ++i, ++row) {
        if (i % 5 != 0 && i + 1 < c.pieces[s].second) continue;
        const OwnedRows one({{c.pieces[s].first + i, 1}});
        op.rows = one;
        op.queries = View<const uint8_t, 2>(whole.queries.row(row).data(), {1, whole.queries.shape[1]});
        op.head_weights = whole.head_weights.slice(row, 1);
        op.keys.blocks = View<const int32_t, 2>(blocks.row(int64_t(s)).data(), {1, blocks.shape[1]});
        alone.selection.run(ops(), queue, kEntries);
        ASSERT_TRUE(std::equal(alone.selection.scores.begin(), alone.selection.scores.begin() + kEntries,
                               batch.selection.scores.begin() + row * kEntries))
            << "row " << row << " of " << batch.rows.positions.size() << ", " << c.heads << " heads";
        EXPECT_EQ(alone.selection.chosen(0), batch.selection.chosen(row));
        if (i > 0) continue;
        // Candidates of its own: another way to the same scores.
        AlignedRandom inside(c.pieces, c.heads, c.per_block);
        SelectRows& restricted = inside.selection.op;
        restricted.rows = op.rows, restricted.queries = op.queries, restricted.head_weights = op.head_weights;
        restricted.keys.blocks = op.keys.blocks;
        restricted.block_size = 8;
        restricted.top_blocks = 60;
        for (int32_t b = 0; b < 60; ++b) inside.selection.blocks.push_back(3 * b);
        const int64_t visible = c.pieces[s].first + 1;
        inside.selection.block_count = {int32_t(std::min<int64_t>(60, (visible + 23) / 24))};
        inside.selection.run(ops(), queue, kEntries);
        for (int64_t e = 0; e < std::min<int64_t>(visible, 1440); ++e) {
          if (e / 8 % 3 == 0) {
            ASSERT_EQ(inside.selection.scores[size_t(e)], alone.selection.scores[size_t(e)]) << row << ", " << e;
          }
        }
      }
    }
  }
}

// Numbers of the best of `choice` by value, ties to the lower, in rising order.
Chosen best_of(const std::vector<float>& value, size_t count) {
  Chosen chosen(value.size());
  std::iota(chosen.begin(), chosen.end(), 0);
  std::stable_sort(chosen.begin(), chosen.end(),
                   [&](int32_t a, int32_t b) { return value[size_t(a)] > value[size_t(b)]; });
  chosen.resize(std::min(count, chosen.size()));
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

// More entries than one block of a device chooses from, counted while they are scored: what is chosen is what the
// scores say, for rows alone and together, beside rows that take all they see; and no trace of the scores changes it.
TEST_P(SelectRowsTest, ManyEncodedEntriesAreChosenByTheirScores) {
  constexpr int64_t kEntries = 17000;
  using Pieces = std::vector<std::pair<int64_t, int64_t>>;
  struct Case {
    Pieces pieces;
    int heads;
  };
  for (const Case& c : {Case{{{16990, 1}}, 32}, Case{{{16998, 2}, {8000, 2}}, 9}, Case{{{16501, 4}, {0, 2}}, 9},
                        Case{{{16400, 6}, {495, 7}}, 9}}) {
    for (const bool source : {false, true}) {
      AlignedRandom random(c.pieces, c.heads, 64, kEntries);
      SelectRows& op = random.selection.op;
      op.top_k = 500;
      if (source) {
        op.block_size = 8;
        op.top_blocks = 600;
        op.candidate_source = true;
      }
      random.selection.run(ops(), queue, kEntries);
      const int64_t rows = op.rows.rows();
      std::vector<Chosen> chosen, blocks;
      for (int64_t r = 0; r < rows; ++r) {
        const auto all = random.selection.scores.begin() + r * kEntries;
        const int64_t visible = op.rows.positions[r] + 1;
        const std::vector<float> scores(all, all + visible);
        chosen.push_back(random.selection.chosen(r));
        EXPECT_EQ(chosen.back(), best_of(scores, 500)) << r;
        if (!source) continue;
        std::vector<float> worth;
        for (int64_t e = 0; e < visible; e += 8) {
          worth.push_back(*std::max_element(scores.begin() + e, scores.begin() + std::min(e + 8, visible)));
        }
        worth.back() = INFINITY;
        blocks.push_back(random.selection.chosen_blocks(r));
        EXPECT_EQ(blocks.back(), best_of(worth, 600)) << r;
      }
      op.scores = {};
      random.selection.run(ops(), queue, 0);
      for (int64_t r = 0; r < rows; ++r) {
        EXPECT_EQ(random.selection.chosen(r), chosen[size_t(r)]) << r;
        if (source) {
          EXPECT_EQ(random.selection.chosen_blocks(r), blocks[size_t(r)]) << r;
        }
      }
    }
  }
}

// A scale of E8M0 that is no number; one row, and many that share the entries.
TEST_P(SelectRowsTest, AnEntryThatIsNoNumberIsNeverChosen) {
  for (const int64_t rows : {1, 33}) {
    AlignedRandom random({{1950, rows}}, 32, 64);
    for (const int32_t e : {3, 64, 1949}) random.pages.region.entry(0, e)[64 + e % 4] = 255;
    random.selection.run(ops(), queue, AlignedRandom::kEntries);
    for (int64_t r = 0; r < rows; ++r) {
      EXPECT_EQ(random.selection.count[size_t(r)], 16);
      for (const int32_t e : {3, 64, 1949}) {
        EXPECT_FALSE(random.chose(r, e)) << e;
        EXPECT_TRUE(std::isnan(random.selection.scores[size_t(r * AlignedRandom::kEntries + e)])) << e;
      }
    }
  }
}

// Two rows of one sequence over more entries than are scored at once, of which every 7th has a channel group 2^-20
// times the others and every 11th is nothing but zeros: entries and queries whose scales lie far apart.
struct Uneven {
  static constexpr int64_t kEntries = 1500;
  Random random;
  Uneven(int64_t first, int64_t rows, bool uneven_query)
      : random({{first, rows}}, kEntries, 32, 128, RowFormat::q4i, 1, 64, DType::bf16) {
    const int64_t bytes = row_bytes(RowFormat::q4i, 128);
    for (int64_t e = 0; e < kEntries; ++e) {
      std::vector<float> key = noise(128, uint64_t(70000 + e));
      for (size_t i = 32; i < 64 && e % 7 == 0; ++i) key[i] *= 0x1p-20f;
      if (e % 11 == 0) std::fill(key.begin(), key.end(), 0.0f);
      encode_row(RowFormat::q4i, key, random.pages.region.entry(0, e));
    }
    for (int64_t h = 0; h < 32 * rows; ++h) {  // a row's own, whatever the batch is
      std::vector<float> query = noise(128, uint64_t((first + h / 32) * 32 + h % 32));
      for (size_t i = 96; i < 128 && uneven_query && h % 32 == 5; ++i) query[i] *= 0x1p12f;
      encode_row(RowFormat::q4i, query, random.queries.data() + h * bytes);
    }
    const Tensor weights = noise(DType::bf16, rows, 32, 3);
    for (int64_t r = 0; r < rows; ++r) std::copy_n(weights.bytes.data(), 64, random.weights.bytes.data() + r * 64);
  }
};

TEST_P(SelectRowsTest, ScalesThatLieFarApartChangeNothing) {
  for (const bool uneven_query : {false, true}) {
    Uneven want(Uneven::kEntries - 2, 2, uneven_query), got(Uneven::kEntries - 2, 2, uneven_query);
    want.random.selection.run(definition(), queue, Uneven::kEntries);
    got.random.selection.run(ops(), queue, Uneven::kEntries);
    // Products up to 1 (up to 2^12 in one head), 128 of them and 32 heads, in float.
    const float bound = float((128 + 32) * 128) * 0x1p-24f * want.random.selection.op.weight_scale *
                        (32.0f + (uneven_query ? 4096 : 0));
    for (size_t i = 0; i < want.random.selection.scores.size(); ++i) {
      ASSERT_NEAR(got.random.selection.scores[i], want.random.selection.scores[i], bound) << i;
    }
  }
}

// Many entries are shared among threads, few rows or many are; a candidate's score is the one it had among all.
TEST_P(SelectRowsTest, AScoreDoesNotDependOnTheThreadsNorOnTheEntriesBesideIt) {
  for (const bool uneven_query : {false, true}) {
    Uneven first(Uneven::kEntries - 20, 20, uneven_query);
    first.random.selection.run(ops(), queue, Uneven::kEntries);
    for (const int threads : {1, 2, 5}) {
      const auto other = tables_under_test()[GetParam()].open_queue(threads);
      ASSERT_TRUE(other.ok());
      Uneven alone(Uneven::kEntries - 1, 1, uneven_query);
      alone.random.selection.run(ops(), **other, Uneven::kEntries);
      EXPECT_TRUE(std::equal(alone.random.selection.scores.begin(), alone.random.selection.scores.end(),
                             first.random.selection.scores.end() - Uneven::kEntries));
      EXPECT_EQ(alone.random.selection.chosen(0), first.random.selection.chosen(19));
    }
    Uneven inside(Uneven::kEntries - 1, 1, uneven_query);
    SelectRows& op = inside.random.selection.op;
    op.block_size = 8;
    op.top_blocks = 60;
    for (int32_t b = 0; b < 60; ++b) inside.random.selection.blocks.push_back(3 * b);
    inside.random.selection.block_count = {60};
    inside.random.selection.run(ops(), queue, Uneven::kEntries);
    const float* all = first.random.selection.scores.data() + 19 * Uneven::kEntries;
    for (int64_t e = 0; e < Uneven::kEntries; ++e) {
      const float want = e / 8 % 3 == 0 && e / 8 < 180 ? all[e] : -1e30f;
      ASSERT_EQ(inside.random.selection.scores[size_t(e)], want) << e;
    }
  }
}

}  // namespace
}  // namespace fathom
