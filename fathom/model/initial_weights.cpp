#include "fathom/model/initial_weights.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include "fathom/base/check.h"
#include "fathom/base/philox.h"
#include "fathom/model/config.h"
#include "fathom/tensor/number_formats.h"

namespace fathom {
namespace {

constexpr int kLargest = 510;  // of the sums: four bytes, centred

uint64_t fnv1a(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ uint8_t(c)) * 0x100000001b3u;
  return hash;
}

// The random sums of one tensor.
struct Sums {
  uint64_t seed, name;

  void fill(int64_t first, std::span<int16_t> out) const {
    for (size_t i = 0; i < out.size();) {
      const uint64_t element = uint64_t(first) + i, block = element / 4;
      const auto words = philox(seed, {uint32_t(block), uint32_t(block >> 32), uint32_t(name), uint32_t(name >> 32)});
      for (size_t w = element % 4; w < 4 && i < out.size(); ++w, ++i) {
        const uint32_t pairs = (words[w] & 0x00ff00ffu) + (words[w] >> 8 & 0x00ff00ffu);
        out[i] = int16_t(int((pairs & 0xffffu) + (pairs >> 16)) - kLargest);
      }
    }
  }
};

int largest_of(std::span<const int16_t> sums) {
  int largest = 0;
  for (const int16_t sum : sums) largest = std::max(largest, std::abs(int(sum)));
  return largest;
}

float factor_of(double deviation) { return float(deviation / std::sqrt(21845.0)); }

// Codes of all sums under one scale; a tensor meets two or three scales, so quantising is a look-up.
template <class Code>
class CodeTable {
 public:
  template <class Quantise>
  const std::array<Code, 2 * kLargest + 1>& of(uint8_t scale, Quantise quantise) {
    auto& table = tables_[scale];
    if (table.empty()) {
      table.resize(1);
      for (int sum = -kLargest; sum <= kLargest; ++sum) table[0][size_t(sum + kLargest)] = quantise(sum);
    }
    return table[0];
  }

 private:
  std::array<std::vector<std::array<Code, 2 * kLargest + 1>>, 256> tables_;
};

enum class Format { fp8_tiles, fp8_rows, fp4_rows };

// Which quantisation a pair X.weight, X.scale has.
Format format_of(std::string_view stem) {
  if (stem.find(".ffn.experts.") != std::string_view::npos) return Format::fp4_rows;
  if (stem.ends_with(".engram.embed")) return Format::fp8_rows;
  return Format::fp8_tiles;
}

float scale_of(Format format, float amax) { return format == Format::fp4_rows ? q4i_scale(amax) : q8_scale(amax); }

// Scales of rows [first, first + rows) of a weight with `cols` columns: [rows / height, cols / 32] bytes.
class Quantiser {
 public:
  Quantiser(Format format, const Sums& sums, float factor, int64_t cols)
      : format_(format), sums_(sums), factor_(factor), cols_(cols), height_(format == Format::fp8_tiles ? 32 : 1) {
    band_.resize(size_t(height_ * cols));
    scales_.resize(size_t(cols / 32));
  }
  int64_t height() const { return height_; }
  std::span<const uint8_t> scales() const { return scales_; }

  // Draws rows [row, row + height) and finds their scales.
  void load(int64_t row) {
    sums_.fill(row * cols_, band_);
    for (int64_t tile = 0; tile < cols_ / 32; ++tile) {
      int largest = 0;
      for (int64_t r = 0; r < height_; ++r) {
        largest = std::max(largest, largest_of({band_.data() + r * cols_ + tile * 32, 32}));
      }
      scales_[size_t(tile)] = pow2_to_e8m0(scale_of(format_, float(largest) * factor_));
    }
  }

  // Codes of the loaded rows; FP4 packs two in a byte, the even column low.
  void write(std::span<uint8_t> out) {
    for (int64_t r = 0; r < height_; ++r) {
      for (int64_t tile = 0; tile < cols_ / 32; ++tile) {
        const uint8_t scale = scales_[size_t(tile)];
        const float power = e8m0_to_float(scale);
        const auto& codes = table_.of(scale, [&](int sum) {
          const float value = float(sum) * factor_ / power;
          return format_ == Format::fp4_rows ? float_to_e2m1(value) : float_to_e4m3(value);
        });
        const auto code = [&](int64_t c) { return codes[size_t(band_[size_t(r * cols_ + tile * 32 + c)] + kLargest)]; };
        if (format_ == Format::fp4_rows) {
          uint8_t* to = out.data() + (r * cols_ + tile * 32) / 2;
          for (int64_t c = 0; c < 16; ++c) to[c] = uint8_t(code(2 * c) | code(2 * c + 1) << 4);
        } else {
          uint8_t* to = out.data() + r * cols_ + tile * 32;
          for (int64_t c = 0; c < 32; ++c) to[c] = code(c);
        }
      }
    }
  }

 private:
  Format format_;
  Sums sums_;
  float factor_;
  int64_t cols_, height_;
  std::vector<int16_t> band_;
  std::vector<uint8_t> scales_;
  CodeTable<uint8_t> table_;
};

struct Job {
  const ModelConfig& config;
  uint64_t seed;
  const TensorSpec& tensor;
  int64_t first_row, rows;
  std::span<uint8_t> out;

  int64_t cols() const { return tensor.shape[tensor.shape.rank() - 1]; }
};

void fill_quantised(const Job& job) {
  const std::string_view name = job.tensor.name;
  const std::string_view stem = name.substr(0, name.rfind('.'));
  const bool scale = name.ends_with(".scale");
  const Format format = format_of(stem);
  // Columns of the weight, whichever of the pair this is.
  const int64_t cols = job.cols() * (scale ? 32 : format == Format::fp4_rows ? 2 : 1);
  const double deviation = format == Format::fp8_rows ? 0.5 : 1 / std::sqrt(double(cols));
  Quantiser quantiser(format, Sums{job.seed, fnv1a(std::string(stem) + ".weight")}, factor_of(deviation), cols);
  const int64_t rows_each = scale ? 1 : quantiser.height();
  check(job.rows % rows_each == 0, "a piece of an FP8 weight has whole tiles");
  uint8_t* to = job.out.data();
  for (int64_t row = 0; row < job.rows; row += rows_each) {
    quantiser.load((job.first_row + row) * (scale ? quantiser.height() : 1));
    if (scale) {
      std::memcpy(to, quantiser.scales().data(), size_t(job.cols()));
      to += job.cols();
    } else {
      quantiser.write({to, size_t(rows_each * job.cols())});
      to += rows_each * job.cols();
    }
  }
}

template <class Code, class Of>
void fill_with(std::span<uint8_t> out, Of value_of) {
  for (size_t i = 0; i < out.size() / sizeof(Code); ++i) {
    const Code code = value_of(int64_t(i));
    std::memcpy(out.data() + i * sizeof(Code), &code, sizeof(Code));
  }
}

void fill_constant(const Job& job, float value) {
  if (job.tensor.dtype == DType::f32) {
    fill_with<float>(job.out, [&](int64_t) { return value; });
  } else {
    fill_with<uint16_t>(job.out, [&](int64_t) { return float_to_bf16(value); });
  }
}

void fill_random(const Job& job, double deviation) {
  const float factor = factor_of(deviation);
  const int64_t cols = job.cols(), first = job.first_row * cols;
  std::vector<int16_t> sums(size_t(job.rows * cols));
  Sums{job.seed, fnv1a(job.tensor.name)}.fill(first, sums);
  if (job.tensor.dtype == DType::f32) {
    fill_with<float>(job.out, [&](int64_t i) { return float(sums[size_t(i)]) * factor; });
  } else {
    CodeTable<uint16_t> table;
    const auto& codes = table.of(0, [&](int sum) { return float_to_bf16(float(sum) * factor); });
    fill_with<uint16_t>(job.out, [&](int64_t i) { return codes[size_t(sums[size_t(i)] + kLargest)]; });
  }
}

// The number in "layers.12.hc_attn_base"; a draft stage counts on behind the backbone.
int layer_of(const ModelConfig& config, std::string_view name) {
  const bool stage = name.starts_with("mtp.");
  const std::string_view rest = name.substr(name.find('.') + 1);
  int number = 0;
  std::from_chars(rest.data(), rest.data() + rest.size(), number);
  return stage ? config.num_hidden_layers + number : number;
}

// Each sub-layer starts by reading one stream, and the streams keep to themselves.
void fill_mix_base(const Job& job) {
  const int64_t streams = job.config.hc_mult, read = layer_of(job.config, job.tensor.name) % streams;
  fill_with<float>(job.out, [&](int64_t i) {
    if (i < streams) return i == read ? 3.0f : -3.0f;
    if (i < 2 * streams) return 0.0f;
    return (i - 2 * streams) % (streams + 1) == 0 ? 3.0f : -3.0f;
  });
}

bool is_norm(std::string_view name) {
  return name.ends_with("norm.weight") || name.ends_with(".norm1.weight") || name.ends_with(".norm2.weight") ||
         name.ends_with(".q_weight") || name.ends_with(".k_weight");
}

}  // namespace

void fill_initial_rows(const ModelConfig& config, uint64_t seed, const TensorSpec& tensor, int64_t first_row,
                       int64_t rows, std::span<uint8_t> out) {
  const std::string_view name = tensor.name;
  const Job job{config, seed, tensor, first_row, rows, out};
  if (tensor.dtype == DType::i8 || tensor.dtype == DType::f8_e4m3 || tensor.dtype == DType::f8_e8m0) {
    fill_quantised(job);
  } else if (is_norm(name)) {
    fill_constant(job, 1);
  } else if (name.ends_with(".bias") || name.ends_with(".bias_vl") || name.ends_with(".attn_sink")) {
    fill_constant(job, 0);
  } else if (name.ends_with("_scale")) {
    fill_constant(job, 0.01f);
  } else if (name.ends_with("_base")) {
    fill_mix_base(job);
  } else if (name.ends_with("_fn")) {
    fill_random(job, 0.02);
  } else if (name == "embed.weight" || name.starts_with("image_")) {
    fill_random(job, 1);
  } else {
    fill_random(job, 1 / std::sqrt(double(job.cols())));
  }
}

}  // namespace fathom
