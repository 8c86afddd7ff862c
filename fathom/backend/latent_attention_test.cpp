#include <cstring>

#include "fathom/backend/tables_under_test.h"

namespace fathom {
namespace {

// A LatentAttention with owned memory. Window keys of position p and entries e are random rows, encoded; positions
// below the first fresh one lie in the ring, the others in `fresh`.
struct Attention {
  OwnedRows rows;
  int heads;
  int64_t channels;
  Tensor queries, out;
  std::vector<uint8_t> fresh;
  OwnedRings rings;
  OwnedPages pages;
  std::vector<int64_t> window_begin, window_end;
  std::vector<int32_t> entries, count;
  std::vector<float> sink;
  LatentAttention op;

  Attention(const std::vector<std::pair<int64_t, int64_t>>& pieces, int head_count, int64_t dim, int64_t window,
            int64_t top_k, RowFormat window_format, RowFormat entry_format, DType dtype, bool aligned = false)
      : rows(pieces),
        heads(head_count),
        channels(dim),
        queries(noise(dtype, int64_t(rows.positions.size()), head_count * dim, 1)),
        out(dtype, queries.rows, queries.cols),
        fresh(size_t(queries.rows * row_bytes(window_format, dim))),
        rings(int64_t(pieces.size()), int(window + 6), int(row_bytes(window_format, dim))),
        pages(int64_t(pieces.size()), 3 * top_k + 1, int(row_bytes(entry_format, dim)), 16),
        sink(noise(head_count, 2)) {
    if (aligned) {  // slots and blocks lie where 16 divides their addresses
      rings.region.slot_stride += 8, pages.region.block_stride += 8;
      rings.bytes.resize(rings.bytes.size() + 8 * rings.slots.size(), 0xee);
      pages.bytes.resize(pages.bytes.size() + 8 * pages.blocks.size(), 0xee);
      rings.region.base = rings.bytes.data(), pages.region.base = pages.bytes.data();
    }
    const int64_t bytes = row_bytes(window_format, dim);
    for (int64_t r = 0; r < queries.rows; ++r) {
      const int64_t p = rows.positions[size_t(r)], s = rows.sequence[size_t(r)];
      encode_row(window_format, key(s, p), fresh.data() + r * bytes);
      window_begin.push_back(std::max<int64_t>(0, p - window + 1));
      window_end.push_back(p + 1);
      for (int64_t i = 0; i < top_k; ++i) entries.push_back(int32_t(3 * i + (r + i) % 3));
      count.push_back(int32_t(std::min<int64_t>(top_k, p + 1)));
    }
    for (size_t s = 0; s < pieces.size(); ++s) {
      const int64_t first = pieces[s].first;
      for (int64_t p = std::max<int64_t>(0, first - window); p < first; ++p) {
        encode_row(window_format, key(int64_t(s), p), rings.region.entry(int64_t(s), p));
      }
      for (int64_t e = 0; e < 3 * top_k; ++e) {
        encode_row(entry_format, noise(dim, 7000 + 1000 * s + size_t(e)), pages.region.entry(int64_t(s), e));
      }
    }
    op.rows = op.fresh_rows = rows;
    op.queries = queries;
    op.heads = heads;
    op.fresh = view(std::as_const(fresh), bytes);
    op.window_format = window_format;
    op.ring = rings.region;
    op.window_begin = view(std::as_const(window_begin));
    op.window_end = view(std::as_const(window_end));
    op.entry_format = entry_format;
    op.latents = pages.region;
    if (top_k > 0) op.entries = view(std::as_const(entries), top_k);
    op.count = view(std::as_const(count));
    op.sink = view(std::as_const(sink));
    op.scale = 1 / std::sqrt(float(dim));
    op.out = out.out();
  }
  Attention(const Attention&) = delete;
  std::vector<float> key(int64_t sequence, int64_t position) const {
    return noise(channels, uint64_t(500 * sequence + position));
  }
};

class LatentAttentionTest : public OverTables {};
INSTANTIATE_TEST_SUITE_P(Tables, LatentAttentionTest, all_tables(), table_name);

// spec/model.md 16.7: two keys with logits 1 and 2, sink 0.5 -> weights 0.23122390, 0.62853172.
TEST_P(LatentAttentionTest, TheSinkTakesItsShareAndGivesNothing) {
  Attention a({{1, 1}}, 1, 32, 2, 0, RowFormat::f32, RowFormat::f32, DType::f32);
  std::vector<float> query(32, 0.0f), first(32, 0.0f), second(32, 0.0f);
  query[0] = 1;
  first[0] = 1, first[1] = 1;
  second[0] = 2, second[2] = 1;
  std::memcpy(a.queries.bytes.data(), query.data(), 128);
  std::memcpy(a.rings.region.entry(0, 0), first.data(), 128);
  std::memcpy(a.fresh.data(), second.data(), 128);
  a.sink[0] = 0.5f;
  a.op.scale = 1;
  ops().latent_attention(queue, a.op);
  EXPECT_NEAR(a.out.at(0, 1), 0.23122390, 2e-7);
  EXPECT_NEAR(a.out.at(0, 2), 0.62853172, 2e-7);
}

TEST_P(LatentAttentionTest, ARowWithoutKeysGivesZero) {
  Attention a({{3, 2}}, 2, 32, 4, 0, RowFormat::q8, RowFormat::q4k, DType::bf16);
  a.window_begin[1] = a.window_end[1];
  ops().latent_attention(queue, a.op);
  for (int64_t i = 0; i < 64; ++i) EXPECT_EQ(a.out.at(1, i), 0);
}

// Case num-03: what lies past the count, in rings never written, or in front of the window, is poison.
TEST_P(LatentAttentionTest, EntriesPastTheCountAreNeverRead) {
  Attention a({{0, 3}, {40, 2}}, 8, 64, 32, 64, RowFormat::q8, RowFormat::q4k, DType::f32);
  Attention b({{0, 3}, {40, 2}}, 8, 64, 32, 64, RowFormat::q8, RowFormat::q4k, DType::f32);
  a.count = b.count = {0, 1, 2, 40, 41};
  for (size_t r = 0; r < 5; ++r) {
    for (size_t i = size_t(a.count[r]); i < 64; ++i) a.entries[r * 64 + i] = 0x5a5a5a5a;
  }
  ops().latent_attention(queue, a.op);
  definition().latent_attention(queue, b.op);
  // Sums of up to 105 weighted values below 1, in float; the products of keys and queries likewise.
  for (size_t i = 0; i < a.out.bytes.size() / 4; ++i) {
    ASSERT_NEAR(a.out.at(0, int64_t(i)), b.out.at(0, int64_t(i)), 200 * 0x1p-24);
  }
}

TEST_P(LatentAttentionTest, AgreesWithTheDefinition) {
  struct Case {
    int heads;
    int64_t channels, window, top_k;
  };
  // The miniature, the model with few heads, a window alone, and head counts and widths that are no multiple of a
  // vector.
  for (const Case& c : {Case{8, 64, 32, 64}, Case{16, 512, 128, 512}, Case{8, 64, 32, 0}, Case{3, 96, 5, 3}}) {
    for (const auto& [window, entry] :
         {std::pair(RowFormat::q8, RowFormat::q4k), std::pair(RowFormat::f32, RowFormat::f32)}) {
      for (const DType dtype : {DType::f32, DType::bf16}) {
        const std::vector<std::pair<int64_t, int64_t>> pieces{{0, 2}, {c.window + 700, 3}, {0, 0}, {2 * c.window, 1}};
        Attention want(pieces, c.heads, c.channels, c.window, c.top_k, window, entry, dtype);
        Attention got(pieces, c.heads, c.channels, c.window, c.top_k, window, entry, dtype);
        definition().latent_attention(queue, want.op);
        ops().latent_attention(queue, got.op);
        // Logits: `channels` products, halved by their chance signs, off by 2^-24 each; weights sum to 1 over n values.
        // In bf16 three roundings by half a place: of each result, and of the weights of values up to 1
        // (model.md 14.9).
        const double n = double(c.window + c.top_k);
        const double bound = (double(c.channels) + n + 8) * 0x1p-24 + 2 * rounding(dtype);
        for (int64_t r = 0; r < got.out.rows; ++r) {
          for (int64_t i = 0; i < got.out.cols; ++i)
            ASSERT_NEAR(got.out.at(r, i), want.out.at(r, i), bound) << r << ' ' << i;
        }
      }
    }
  }
}

TEST_P(LatentAttentionTest, ARowDoesNotDependOnItsBatchNorOnHowItsStepWasCut) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const int64_t top_k : {0, 64}) {
      Attention batch({{20, 30}, {5, 4}}, 24, 64, 32, top_k, RowFormat::q8, RowFormat::q4k, dtype);
      ops().latent_attention(queue, batch.op);
      const int64_t bytes = bytes_of(dtype, batch.queries.cols);
      for (const int threads : {1, 2, 5}) {  // a row alone is cut by heads
        const auto other = tables_under_test()[GetParam()].open_queue(threads);
        ASSERT_TRUE(other.ok());
        for (const int64_t r : {0, 13, 29}) {
          // The same position alone: all window keys before it come from the ring.
          Attention alone({{20 + r, 1}}, 24, 64, 32, top_k, RowFormat::q8, RowFormat::q4k, dtype);
          std::copy_n(batch.queries.bytes.begin() + r * bytes, bytes, alone.queries.bytes.begin());
          if (top_k > 0) std::copy_n(batch.entries.begin() + r * top_k, top_k, alone.entries.begin());
          alone.count[0] = batch.count[size_t(r)];
          ops().latent_attention(**other, alone.op);
          EXPECT_EQ(alone.out.row(0), batch.out.row(r)) << r;
        }
      }
    }
  }
}

// The model's width on addresses that 16 divides, as the caches have them, with more heads than a tile of 16 rows. The
// window and the entries end inside a group of 64 keys, begin where it ends, or there are none of one kind or both.
TEST_P(LatentAttentionTest, RowsOfTheModelsWidthAgreeWithTheDefinitionAloneAndTogether) {
  const std::vector<std::pair<int64_t, int64_t>> pieces{{0, 3}, {300, 3}, {200, 5}};
  for (const auto& [window, entry] :
       {std::pair(RowFormat::q8, RowFormat::q4k), std::pair(RowFormat::q4k, RowFormat::q8)}) {
    Attention want(pieces, 20, 512, 128, 200, window, entry, DType::bf16, true);
    Attention got(pieces, 20, 512, 128, 200, window, entry, DType::bf16, true);
    for (Attention* a : {&want, &got}) {
      a->count = {0, 1, 2, 200, 128, 0, 65, 64, 63, 0, 130};
      const int64_t windows[] = {1, 2, 3, 128, 65, 64, 100, 0, 128, 0, 1};
      for (size_t r = 0; r < 11; ++r) {
        a->window_begin[r] = a->window_end[r] - windows[r];
        for (size_t i = size_t(a->count[r]); i < 200; ++i) a->entries[r * 200 + i] = -1;
      }
    }
    definition().latent_attention(queue, want.op);
    ops().latent_attention(queue, got.op);
    const double bound = (512 + 328 + 8) * 0x1p-24 + 2 * rounding(DType::bf16);  // as above
    for (int64_t r = 0; r < 11; ++r) {
      for (int64_t i = 0; i < got.out.cols; ++i) {
        ASSERT_NEAR(got.out.at(r, i), want.out.at(r, i), bound) << r << ' ' << i;
      }
      const int64_t bytes = bytes_of(DType::bf16, got.queries.cols);
      const int32_t sequence = got.rows.sequence[size_t(r)];
      // A row alone, with the same keys.
      LatentAttention alone = got.op;
      std::vector<uint8_t> out(size_t(bytes), 0xff);
      alone.rows.positions = View<const int64_t, 1>(got.rows.positions.data() + r, {1});
      alone.rows.sequence = View<const int32_t, 1>(&sequence, {1});
      std::vector<int32_t> begin(pieces.size() + 1, 0);
      std::fill(begin.begin() + sequence + 1, begin.end(), 1);
      alone.rows.begin = view(std::as_const(begin));
      alone.queries = AnyView(got.queries.bytes.data() + r * bytes, DType::bf16, 1, got.queries.cols);
      alone.window_begin = View<const int64_t, 1>(got.window_begin.data() + r, {1});
      alone.window_end = View<const int64_t, 1>(got.window_end.data() + r, {1});
      alone.entries = View<const int32_t, 2>(got.entries.data() + r * 200, {1, 200});
      alone.count = View<const int32_t, 1>(got.count.data() + r, {1});
      alone.out = AnyViewMut(out.data(), DType::bf16, 1, got.queries.cols);
      ops().latent_attention(queue, alone);
      EXPECT_EQ(out, got.out.row(r)) << r;
    }
  }
}

// Infinity in a window row: what it weighs is NaN in all its channels, and rows that do not see it are as before.
TEST_P(LatentAttentionTest, NanStaysInTheRowsThatSeeIt) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Attention a({{0, 3}, {40, 2}}, 8, 64, 32, 0, RowFormat::q8, RowFormat::q4k, dtype);
    Attention b({{0, 3}, {40, 2}}, 8, 64, 32, 0, RowFormat::q8, RowFormat::q4k, dtype);
    ops().latent_attention(queue, a.op);
    b.fresh[size_t(4 * row_bytes(RowFormat::q8, 64)) + 5] = 0x7f;  // E4M3 NaN in the second sequence's last row
    ops().latent_attention(queue, b.op);
    for (int64_t r = 0; r < 4; ++r) EXPECT_EQ(a.out.row(r), b.out.row(r));
    for (int64_t h = 0; h < 8; ++h) EXPECT_TRUE(std::isnan(b.out.at(4, h * 64 + 5)));
  }
}

// Draft rows see each other in both directions: a window may reach past the row itself.
TEST_P(LatentAttentionTest, AWindowMayReachForwardInsideItsStep) {
  Attention want({{9, 5}}, 8, 64, 32, 0, RowFormat::q8, RowFormat::q4k, DType::f32);
  Attention got({{9, 5}}, 8, 64, 32, 0, RowFormat::q8, RowFormat::q4k, DType::f32);
  for (Attention* a : {&want, &got}) {
    a->window_begin.assign(5, 0);
    a->window_end.assign(5, 14);
  }
  definition().latent_attention(queue, want.op);
  ops().latent_attention(queue, got.op);
  for (int64_t i = 0; i < 512; ++i) EXPECT_NEAR(got.out.at(0, i), want.out.at(0, i), 100 * 0x1p-24);
}

}  // namespace
}  // namespace fathom
