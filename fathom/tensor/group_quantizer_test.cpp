// Whole groups through the scalar conversions: the vectors of spec/model.md 16.7 and the tensors of golden/quant, which
// the PyTorch reference wrote. Equality is exact: there is nothing to round differently.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "fathom/base/json.h"
#include "fathom/base/mapped_file.h"
#include "fathom/tensor/number_formats.h"

namespace fathom {
namespace {

struct Group {
  uint8_t scale = 0;           // E8M0 (Q8, Q4I) or E4M3 (Q4K)
  std::vector<uint8_t> codes;  // one a byte
  std::vector<float> values;   // what the codes stand for
};

Group q8(std::span<const float> x, float amax) {
  Group out;
  const float scale = q8_scale(amax);
  out.scale = pow2_to_e8m0(scale);
  for (const float v : x) {
    out.codes.push_back(float_to_e4m3(v / scale));
    out.values.push_back(e4m3_to_float(out.codes.back()) * e8m0_to_float(out.scale));
  }
  return out;
}

Group fp4(std::span<const float> x, uint8_t stored_scale, float scale) {
  Group out;
  out.scale = stored_scale;
  for (const float v : x) {
    out.codes.push_back(float_to_e2m1(v / scale));
    out.values.push_back(e2m1_to_float(out.codes.back()) * scale);
  }
  return out;
}

Group q4i(std::span<const float> x) {
  const uint8_t scale = pow2_to_e8m0(q4i_scale(max_abs(x)));
  return fp4(x, scale, e8m0_to_float(scale));
}

Group q4k(std::span<const float> x) {
  const uint8_t scale = q4k_scale_code(max_abs(x));
  return fp4(x, scale, e4m3_to_float(scale));
}

std::vector<uint8_t> packed(const std::vector<uint8_t>& codes) {
  std::vector<uint8_t> out;
  for (size_t i = 0; i < codes.size(); i += 2) out.push_back(uint8_t(codes[i] | codes[i + 1] << 4));
  return out;
}

std::string hex(const std::vector<uint8_t>& bytes) {
  std::string out;
  for (const uint8_t b : bytes) {
    out += "0123456789abcdef"[b >> 4];
    out += "0123456789abcdef"[b & 15];
  }
  return out;
}

std::vector<float> ramp(int count, double centre, double step) {
  std::vector<float> out;
  for (int i = 0; i < count; ++i) out.push_back(round_to_bf16(float((i - centre) * step)));
  return out;
}

TEST(GroupQuantizer, Q8GivesTheBytesOfTheSpecification) {
  const auto x = ramp(32, 16, 0.37);
  EXPECT_EQ(max_abs(x), 5.90625f);
  const auto got = q8(x, max_abs(x));
  EXPECT_EQ(got.scale, 121);
  EXPECT_EQ(hex(got.codes), "fcfbfafaf9f8f7f5f4f2f1efece9e4dc005c64696c6f717274757778797a7a7b");
}

TEST(GroupQuantizer, Q4iGivesTheBytesOfTheSpecification) {
  const auto got = q4i(ramp(32, 16, 0.37));
  EXPECT_EQ(got.scale, 127);
  EXPECT_EQ(hex(packed(got.codes)), "ffefeededdccab991021435455666677");
}

TEST(GroupQuantizer, Q4kGivesTheBytesOfTheSpecification) {
  const auto x = ramp(16, 7.5, 0.3);
  EXPECT_EQ(max_abs(x), 2.25f);
  const auto got = q4k(x);
  EXPECT_EQ(got.scale, 0x2c);
  EXPECT_EQ(e4m3_to_float(got.scale), 0.375f);
  EXPECT_EQ(hex(packed(got.codes)), "ffeecd9a21546677");
}

TEST(GroupQuantizer, Q4kClampsWhatItsRoundedScaleNoLongerReaches) {
  std::vector<float> x(16, 0.0f);
  x[3] = 10;  // 10/6 rounds down to 1.625, and 10/1.625 = 6.15 is beyond the largest code
  EXPECT_EQ(q4k(x).values[3], 9.75f);
}

TEST(GroupQuantizer, AGroupOfZerosKeepsItsSigns) {
  const std::vector<float> x = {0.0f, -0.0f};
  EXPECT_EQ(q8(x, 0).codes, (std::vector<uint8_t>{0x00, 0x80}));
  EXPECT_EQ(q4i(x).codes, (std::vector<uint8_t>{0, 8}));
  EXPECT_EQ(q4k(x).codes, (std::vector<uint8_t>{0, 8}));
}

TEST(GroupQuantizer, DequantizedValuesAreExactInBf16) {
  // Q8 has 4 significant bits, Q4I 2, Q4K 2 + 4: all fit the 8 of BF16 (spec/model.md 3.2).
  for (const double step : {0.37, 1e-5, 3e4}) {
    const auto x = ramp(16, 7.5, step);
    for (const auto& group : {q8(x, max_abs(x)), q4i(x), q4k(x)}) {
      for (const float v : group.values) EXPECT_EQ(round_to_bf16(v), v);
    }
  }
}

// ---------------------------------------------------------------- golden/quant.safetensors
class GoldenQuant : public testing::Test {
 protected:
  void SetUp() override {
    const char* shared = std::getenv("FATHOM_SHARED");
    const std::string folder = shared ? shared : FATHOM_SOURCE_DIR "/../shared";
    auto file = read_file(folder + "/golden/quant.safetensors");
    if (!file) GTEST_SKIP() << to_string(file.error()) << "; set FATHOM_SHARED to the folder that holds golden/";
    bytes_ = std::move(*file);
    uint64_t header_bytes = 0;
    std::memcpy(&header_bytes, bytes_.data(), sizeof header_bytes);
    auto header = parse_json(std::string_view(bytes_).substr(8, header_bytes), "header");
    ASSERT_TRUE(header.ok());
    header_ = std::move(*header);
    data_begin_ = 8 + header_bytes;
  }

  std::vector<uint8_t> bytes(std::string_view name) const {
    const Json* entry = header_.find(name);
    if (entry == nullptr) {
      ADD_FAILURE() << "no tensor " << name;
      return {};
    }
    const auto& offsets = entry->find("data_offsets")->items;
    const auto at = [&](size_t i) { return std::ptrdiff_t(data_begin_) + std::ptrdiff_t(*offsets[i].as_int64()); };
    return {bytes_.begin() + at(0), bytes_.begin() + at(1)};
  }
  std::vector<float> floats(std::string_view name) const {
    const auto raw = bytes(name);
    std::vector<float> out(raw.size() / 4);
    std::memcpy(out.data(), raw.data(), raw.size());
    return out;
  }

  /// Quantizes `input` in groups of `size` and compares codes, scales and values with the tensors `name`.*.
  template <class Quantize>
  void expect_groups(const std::string& name, size_t size, bool nibbles, const Quantize& quantize) const {
    const auto input = floats("input");
    std::vector<uint8_t> codes, scales;
    std::vector<float> values;
    for (size_t i = 0; i < input.size(); i += size) {
      const Group group = quantize(std::span(input).subspan(i, size));
      codes.insert(codes.end(), group.codes.begin(), group.codes.end());
      values.insert(values.end(), group.values.begin(), group.values.end());
      scales.push_back(group.scale);
    }
    EXPECT_EQ(scales, bytes(name + ".scale"));
    EXPECT_EQ(nibbles ? packed(codes) : codes, bytes(name + ".bytes"));
    EXPECT_EQ(values, floats(name + ".value"));
  }

  std::string bytes_;
  Json header_;
  size_t data_begin_ = 0;
};

TEST_F(GoldenQuant, Fp8GroupsOf32) {
  expect_groups("fp8_group32", 32, false, [](std::span<const float> x) { return q8(x, max_abs(x)); });
}

TEST_F(GoldenQuant, Mxfp4GroupsOf32) { expect_groups("mxfp4_group32", 32, true, q4i); }

TEST_F(GoldenQuant, Fp4GroupsOf16WithE4m3Scales) { expect_groups("kv_fp4_group16", 16, true, q4k); }

TEST_F(GoldenQuant, Fp8TilesOf32By32) {
  constexpr size_t kRows = 80, kCols = 96, kTile = 32;  // 80 = 2 1/2 tiles: the last row of tiles is cut
  const auto input = floats("block.input"), want_values = floats("block.value");
  const auto want_codes = bytes("block.bytes"), want_scales = bytes("block.scale");
  ASSERT_EQ(input.size(), kRows * kCols);
  for (size_t r0 = 0; r0 < kRows; r0 += kTile) {
    for (size_t c0 = 0; c0 < kCols; c0 += kTile) {
      const size_t end = std::min(r0 + kTile, kRows);
      float amax = 0;
      for (size_t r = r0; r < end; ++r) amax = std::max(amax, max_abs(std::span(input).subspan(r * kCols + c0, kTile)));
      for (size_t r = r0; r < end; ++r) {
        const size_t at = r * kCols + c0;
        const Group group = q8(std::span(input).subspan(at, kTile), amax);
        EXPECT_EQ(group.scale, want_scales[r0 / kTile * (kCols / kTile) + c0 / kTile]);
        for (size_t i = 0; i < kTile; ++i) {
          EXPECT_EQ(group.codes[i], want_codes[at + i]) << r << ", " << c0 + i;
          EXPECT_EQ(group.values[i], want_values[at + i]) << r << ", " << c0 + i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace fathom
