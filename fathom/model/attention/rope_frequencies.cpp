#include "fathom/model/attention/rope_frequencies.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace fathom {
namespace {

std::vector<float> powers(double base, int64_t channels) {
  std::vector<float> out;
  for (int64_t i = 0; i < channels / 2; ++i) {
    out.push_back(1.0f / std::pow(float(base), float(2 * i) / float(channels)));
  }
  return out;
}

}  // namespace

std::vector<float> plain_frequencies(const ModelConfig& config) {
  return powers(config.rope_theta, config.qk_rope_head_dim);
}

std::vector<float> compressed_frequencies(const ModelConfig& config) {
  const double channels = double(config.qk_rope_head_dim), base = config.compress_rope_theta;
  auto out = powers(base, config.qk_rope_head_dim);
  if (!config.rope_scaling || config.rope_scaling->factor <= 1) return out;
  const YarnScaling& yarn = *config.rope_scaling;
  // The channel pair that makes `turns` turns over the original context.
  const auto channel_of = [&](double turns) {
    return channels * std::log(double(yarn.original_max_position_embeddings) / (turns * 2 * std::numbers::pi)) /
           (2 * std::log(base));
  };
  const double low = std::max(std::floor(channel_of(yarn.beta_fast)), 0.0);
  const double high = std::min(std::ceil(channel_of(yarn.beta_slow)), channels - 1);
  for (size_t i = 0; i < out.size(); ++i) {
    const float ramp = std::clamp((float(i) - float(low)) / float(std::max(high - low, 0.001)), 0.0f, 1.0f);
    out[i] = out[i] / float(yarn.factor) * ramp + out[i] * (1 - ramp);
  }
  return out;
}

}  // namespace fathom
