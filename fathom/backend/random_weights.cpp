#include "fathom/backend/random_weights.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "fathom/base/check.h"
#include "fathom/base/philox.h"
#include "fathom/tensor/number_formats.h"

namespace fathom {
namespace {

void draw_sums(const RandomWeights& w, int64_t first, std::span<int16_t> out) {
  for (size_t i = 0; i < out.size();) {
    const uint64_t element = uint64_t(first) + i, block = element / 4;
    const auto words =
        philox(w.seed, {uint32_t(block), uint32_t(block >> 32), uint32_t(w.name), uint32_t(w.name >> 32)});
    for (size_t at = element % 4; at < 4 && i < out.size(); ++at, ++i) out[i] = int16_t(centred_sum(words[at]));
  }
}

int largest_of(std::span<const int16_t> sums) {
  int largest = 0;
  for (const int16_t sum : sums) largest = std::max(largest, std::abs(int(sum)));
  return largest;
}

// Codes of all sums under one scale; a tensor meets two or three scales, so quantising is a look-up.
template <class Code>
class CodeTable {
 public:
  template <class Quantise>
  const std::array<Code, 2 * kLargestSum + 1>& of(uint8_t scale, Quantise quantise) {
    auto& table = tables_[scale];
    if (table.empty()) {
      table.resize(1);
      for (int sum = -kLargestSum; sum <= kLargestSum; ++sum) table[0][size_t(sum + kLargestSum)] = quantise(sum);
    }
    return table[0];
  }

 private:
  std::array<std::vector<std::array<Code, 2 * kLargestSum + 1>>, 256> tables_;
};

// Bands of scale_rows rows: their scales, and their codes.
class Quantiser {
 public:
  explicit Quantiser(const RandomWeights& weights) : w_(weights) {
    band_.resize(size_t(w_.scale_rows * w_.cols));
    scales_.resize(size_t(w_.cols / 32));
  }
  std::span<const uint8_t> scales() const { return scales_; }

  // Draws rows [row, row + scale_rows) and finds their scales.
  void load(int64_t row) {
    draw_sums(w_, row * w_.cols, band_);
    for (int64_t tile = 0; tile < w_.cols / 32; ++tile) {
      int largest = 0;
      for (int64_t r = 0; r < w_.scale_rows; ++r) {
        largest = std::max(largest, largest_of({band_.data() + r * w_.cols + tile * 32, 32}));
      }
      const float amax = float(largest) * w_.factor;
      scales_[size_t(tile)] = pow2_to_e8m0(w_.dtype == DType::f4_e2m1 ? q4i_scale(amax) : q8_scale(amax));
    }
  }

  // Codes of the loaded rows; FP4 packs two in a byte, the even column low.
  void write(std::span<uint8_t> out) {
    const bool fp4 = w_.dtype == DType::f4_e2m1;
    for (int64_t r = 0; r < w_.scale_rows; ++r) {
      for (int64_t tile = 0; tile < w_.cols / 32; ++tile) {
        const uint8_t scale = scales_[size_t(tile)];
        const float power = e8m0_to_float(scale);
        const auto& codes = table_.of(scale, [&](int sum) {
          const float value = float(sum) * w_.factor / power;
          return fp4 ? float_to_e2m1(value) : float_to_e4m3(value);
        });
        const auto code = [&](int64_t c) {
          return codes[size_t(band_[size_t(r * w_.cols + tile * 32 + c)] + kLargestSum)];
        };
        if (fp4) {
          uint8_t* to = out.data() + (r * w_.cols + tile * 32) / 2;
          for (int64_t c = 0; c < 16; ++c) to[c] = uint8_t(code(2 * c) | code(2 * c + 1) << 4);
        } else {
          uint8_t* to = out.data() + r * w_.cols + tile * 32;
          for (int64_t c = 0; c < 32; ++c) to[c] = code(c);
        }
      }
    }
  }

 private:
  const RandomWeights& w_;
  std::vector<int16_t> band_;
  std::vector<uint8_t> scales_;
  CodeTable<uint8_t> table_;
};

void write_pair(const RandomWeights& w, int64_t first, int64_t count, std::span<uint8_t> out) {
  Quantiser quantiser(w);
  const bool scales = w.part == RandomWeights::Part::scales;
  const int64_t rows_each = scales ? 1 : w.scale_rows;
  check(count % rows_each == 0, "a piece of an FP8 weight has whole tiles");
  uint8_t* to = out.data();
  for (int64_t row = 0; row < count; row += rows_each) {
    quantiser.load((first + row) * (scales ? w.scale_rows : 1));
    if (scales) {
      std::memcpy(to, quantiser.scales().data(), quantiser.scales().size());
    } else {
      quantiser.write({to, size_t(rows_each * w.row_bytes())});
    }
    to += rows_each * w.row_bytes();
  }
}

template <class Element>
void put(uint8_t* out, size_t i, Element value) {
  std::memcpy(out + i * sizeof(Element), &value, sizeof(Element));
}

}  // namespace

float random_weight_factor(double deviation) { return float(deviation / std::sqrt(21845.0)); }

void write_random_weights(const RandomWeights& w, int64_t first, int64_t count, std::span<uint8_t> out) {
  check(int64_t(out.size()) == count * w.row_bytes(), "the rows fill the bytes");
  if (w.paired()) return write_pair(w, first, count, out);
  std::vector<int16_t> sums(size_t(count * w.cols));
  draw_sums(w, first * w.cols, sums);
  if (w.dtype == DType::f32) {
    for (size_t i = 0; i < sums.size(); ++i) put(out.data(), i, float(sums[i]) * w.factor);
    return;
  }
  CodeTable<uint16_t> table;
  const auto& codes = table.of(0, [&](int sum) { return float_to_bf16(float(sum) * w.factor); });
  for (size_t i = 0; i < sums.size(); ++i) put(out.data(), i, codes[size_t(sums[i] + kLargestSum)]);
}

}  // namespace fathom
