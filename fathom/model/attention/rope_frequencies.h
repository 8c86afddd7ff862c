// fathom/model/attention/rope_frequencies.h
// Angles per position of the rotary channel pairs. Source: spec/model.md 5.2.
#pragma once
#include <vector>

#include "fathom/model/config.h"

namespace fathom {

/// base^(-2i / R) in float, for layers without a global cache and draft stages.
std::vector<float> plain_frequencies(const ModelConfig& config);

/// The frequencies of layers with a global cache: compress_rope_theta, stretched by YaRN when the configuration asks
/// for it.
std::vector<float> compressed_frequencies(const ModelConfig& config);

}  // namespace fathom
