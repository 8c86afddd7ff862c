#include <cstring>

#include "fathom/backend/tables_under_test.h"

namespace fathom {
namespace {

class CachesTest : public OverTables {};
INSTANTIATE_TEST_SUITE_P(Tables, CachesTest, all_tables(), table_name);

std::vector<uint8_t> bytes_of_hex(const std::string& hex) {
  std::vector<uint8_t> out;
  for (size_t i = 0; i < hex.size(); i += 2) out.push_back(uint8_t(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return out;
}

std::vector<uint8_t> encode(const Operations& table, Queue& queue, const Tensor& x, int heads, RowFormat format) {
  const int64_t bytes = heads * row_bytes(format, x.cols / heads);
  std::vector<uint8_t> out(size_t(x.rows * bytes));
  EncodeRows op;
  op.x = x;
  op.heads = heads;
  op.format = format;
  op.out = view(out, bytes);
  table.encode_rows(queue, op);
  return out;
}

// spec/model.md 16.7: the 32 values bf16((i - 16) * 0.37).
TEST_P(CachesTest, EntriesAreTheBytesOfTheSpec) {
  std::vector<float> ramp, small;
  for (int i = 0; i < 32; ++i) ramp.push_back(float(i - 16) * 0.37f);
  for (int i = 0; i < 16; ++i) small.push_back((float(i) - 7.5f) * 0.3f);
  small.insert(small.end(), 16, 0.0f);
  const Tensor x(DType::bf16, 1, 32, ramp), y(DType::bf16, 1, 32, small);
  EXPECT_EQ(encode(ops(), queue, x, 1, RowFormat::q8),
            bytes_of_hex("fcfbfafaf9f8f7f5f4f2f1efece9e4dc005c64696c6f717274757778797a7a7b79"));
  EXPECT_EQ(encode(ops(), queue, x, 1, RowFormat::q4i), bytes_of_hex("ffefeededdccab9910214354556666777f"));
  EXPECT_EQ(encode(ops(), queue, y, 1, RowFormat::q4k), bytes_of_hex("ffeecd9a2154667700000000000000002c01"));
}

// spec/model.md 16.5.
TEST_P(CachesTest, ScalesFollowTheLargestMagnitude) {
  const auto scale = [&](float amax, RowFormat format) {
    std::vector<float> row(32, 0.0f);
    row[5] = -amax;
    return encode(ops(), queue, Tensor(DType::f32, 1, 32, row), 1, format)[format == RowFormat::q8 ? 32 : 16];
  };
  EXPECT_EQ(scale(448, RowFormat::q8), 127);
  EXPECT_EQ(scale(449, RowFormat::q8), 128);
  EXPECT_EQ(scale(224, RowFormat::q8), 126);
  EXPECT_EQ(scale(0, RowFormat::q8), 127 - 22);
  EXPECT_EQ(scale(6, RowFormat::q4i), 127);
  EXPECT_EQ(scale(6.5f, RowFormat::q4i), 128);
  EXPECT_EQ(scale(6, RowFormat::q4k), float_to_e4m3(1));
  EXPECT_EQ(scale(10, RowFormat::q4k), float_to_e4m3(1.625f));
  EXPECT_EQ(scale(0, RowFormat::q4k), 1);  // 2^-9, the smallest E4M3 number
}

// Every bit pattern of bf16 that is a number, in every place of a group; the definition is encode_row.
TEST_P(CachesTest, EveryBf16NumberIsEncodedAsTheDefinitionSays) {
  Tensor x(DType::bf16, 1024, 64);
  for (int64_t i = 0; i < 1024 * 64; ++i) {
    uint16_t bits = uint16_t(i * 40503);  // odd: a permutation that puts far numbers side by side
    if ((bits & 0x7f80) == 0x7f80) bits = uint16_t(bits & 0x80ff);
    std::memcpy(x.bytes.data() + 2 * i, &bits, 2);
  }
  for (const RowFormat format : {RowFormat::f32, RowFormat::q8, RowFormat::q4k, RowFormat::q4i}) {
    EXPECT_EQ(encode(ops(), queue, x, 1, format), encode(definition(), queue, x, 1, format)) << int(format);
  }
}

TEST_P(CachesTest, RowsOfFloatsAndOfManyHeadsAreEncodedAsTheDefinitionSays) {
  for (const int64_t rows : {1, 3, 70}) {
    for (const int64_t channels : {32, 64, 96, 128, 512}) {
      Tensor x = noise(DType::f32, rows, 4 * channels, 9);
      store(DType::f32, x.bytes.data(), 1, -0.0f);
      for (const RowFormat format : {RowFormat::f32, RowFormat::q8, RowFormat::q4k, RowFormat::q4i}) {
        for (const int heads : {1, 4}) {
          EXPECT_EQ(encode(ops(), queue, x, heads, format), encode(definition(), queue, x, heads, format));
        }
      }
    }
  }
}

TEST_P(CachesTest, QuantizedRowsAreThoseOfQ8) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const int64_t cols : {32, 96, 256, 5120}) {
      const Tensor x = noise(dtype, 5, cols, 4);
      Tensor codes(DType::f8_e4m3, 5, cols), scales(DType::f8_e8m0, 5, cols / 32);
      QuantizeRows op;
      op.x = x;
      op.codes = codes.out();
      op.scales = scales.out();
      ops().quantize_rows(queue, op);
      const auto entries = encode(definition(), queue, x, 1, RowFormat::q8);
      for (int64_t r = 0; r < 5; ++r) {
        const uint8_t* want = entries.data() + r * (cols + cols / 32);
        EXPECT_EQ(0, std::memcmp(codes.row(r).data(), want, size_t(cols)));
        EXPECT_EQ(0, std::memcmp(scales.row(r).data(), want + cols, size_t(cols / 32)));
      }
    }
  }
}

// A ring keeps the last `capacity` rows of a sequence; older rows of a long piece would be overwritten anyway.
TEST_P(CachesTest, ARingKeepsTheLastRowsOfEachSequence) {
  const OwnedRows rows({{10, 7}, {0, 0}, {3, 2}});
  OwnedRings rings(3, 4, 8);
  std::vector<uint8_t> entries(9 * 8);
  for (size_t i = 0; i < entries.size(); ++i) entries[i] = uint8_t(i / 8);
  StoreRing op;
  op.rows = rows;
  op.entries = view(std::as_const(entries), 8);
  op.ring = rings.region;
  ops().store_ring(queue, op);
  for (int64_t p = 13; p < 17; ++p) EXPECT_EQ(rings.region.entry(0, p)[7], p - 10);
  EXPECT_EQ(rings.region.entry(2, 3)[0], 7);
  EXPECT_EQ(rings.region.entry(2, 4)[0], 8);
  EXPECT_EQ(rings.region.entry(2, 5)[0], 0xee);  // not touched
  EXPECT_EQ(rings.region.entry(1, 0)[0], 0xee);  // an empty sequence
}

TEST_P(CachesTest, PagedEntriesLandInTheirBlocks) {
  OwnedPages pages(2, 10, 8, 4);
  std::vector<uint8_t> entries(3 * 8);
  for (size_t i = 0; i < entries.size(); ++i) entries[i] = uint8_t(1 + i / 8);
  const std::vector<int32_t> sequence{0, 1, 1};
  const std::vector<int64_t> entry{9, 0, 7};
  StorePaged op;
  op.entries = view(std::as_const(entries), 8);
  op.sequence = view(sequence);
  op.entry = view(entry);
  op.pages = pages.region;
  ops().store_paged(queue, op);
  EXPECT_EQ(pages.region.entry(0, 9)[7], 1);
  EXPECT_EQ(pages.region.entry(1, 0)[0], 2);
  EXPECT_EQ(pages.region.entry(1, 7)[0], 3);
  EXPECT_EQ(pages.region.entry(0, 8)[0], 0xee);
}

}  // namespace
}  // namespace fathom
