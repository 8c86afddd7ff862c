#include "fathom/model/initial_weights.h"

#include <charconv>
#include <cmath>
#include <cstring>
#include <string>
#include <string_view>

#include "fathom/model/config.h"
#include "fathom/tensor/number_formats.h"

namespace fathom {
namespace {

uint64_t fnv1a(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ uint8_t(c)) * 0x100000001b3u;
  return hash;
}

int64_t columns_of(const TensorSpec& tensor) { return tensor.shape[tensor.shape.rank() - 1]; }

RandomWeights plain(const TensorSpec& tensor, uint64_t seed, double deviation) {
  RandomWeights w;
  w.dtype = tensor.dtype;
  w.cols = columns_of(tensor);
  w.rows = tensor.shape.elements() / w.cols;
  w.seed = seed;
  w.name = fnv1a(tensor.name);
  w.factor = random_weight_factor(deviation);
  return w;
}

// Which quantisation a pair X.weight, X.scale has: experts FP4 by rows, Engram tables FP8 by rows, all else FP8 tiles.
RandomWeights paired(const TensorSpec& tensor, uint64_t seed) {
  const std::string_view name = tensor.name, stem = name.substr(0, name.rfind('.'));
  const bool fp4 = stem.find(".ffn.experts.") != std::string_view::npos, table = stem.ends_with(".engram.embed");
  RandomWeights w;
  w.dtype = fp4 ? DType::f4_e2m1 : DType::f8_e4m3;
  w.scale_rows = fp4 || table ? 1 : 32;
  if (name.ends_with(".scale")) w.part = RandomWeights::Part::scales;
  const bool scales = w.part == RandomWeights::Part::scales;
  w.cols = columns_of(tensor) * (scales ? 32 : fp4 ? 2 : 1);
  w.rows = tensor.shape.elements() / columns_of(tensor) * (scales ? w.scale_rows : 1);
  w.seed = seed;
  w.name = fnv1a(std::string(stem) + ".weight");
  w.factor = random_weight_factor(table ? 0.5 : 1 / std::sqrt(double(w.cols)));
  return w;
}

// What is not random.
struct Job {
  const ModelConfig& config;
  const TensorSpec& tensor;
  std::span<uint8_t> out;
};

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

bool is_bias(std::string_view name) {
  return name.ends_with(".bias") || name.ends_with(".bias_vl") || name.ends_with(".attn_sink");
}

void fill_fixed(const Job& job) {
  const std::string_view name = job.tensor.name;
  if (is_norm(name)) return fill_constant(job, 1);
  if (is_bias(name)) return fill_constant(job, 0);
  if (name.ends_with("_scale")) return fill_constant(job, 0.01f);
  fill_mix_base(job);
}

}  // namespace

std::optional<RandomWeights> random_weights_of(const TensorSpec& tensor, uint64_t seed) {
  const std::string_view name = tensor.name;
  if (tensor.dtype == DType::i8 || tensor.dtype == DType::f8_e4m3 || tensor.dtype == DType::f8_e8m0) {
    return paired(tensor, seed);
  }
  if (is_norm(name) || is_bias(name) || name.ends_with("_scale") || name.ends_with("_base")) return {};
  if (name.ends_with("_fn")) return plain(tensor, seed, 0.02);
  if (name == "embed.weight" || name.starts_with("image_")) return plain(tensor, seed, 1);
  return plain(tensor, seed, 1 / std::sqrt(double(columns_of(tensor))));
}

void fill_initial_rows(const ModelConfig& config, uint64_t seed, const TensorSpec& tensor, int64_t first_row,
                       int64_t rows, std::span<uint8_t> out) {
  if (const auto random = random_weights_of(tensor, seed)) return write_random_weights(*random, first_row, rows, out);
  fill_fixed({config, tensor, out});
}

}  // namespace fathom
