// fathom/model/initial_weights.h
// Random weights that keep activations sane, written in the stored formats: what synthetic checkpoints are filled with.
// The same seed gives the same bytes on every machine, in any order and with any number of threads: every element is a
// pure function of (seed, tensor name, element number), and its arithmetic is integers and correctly rounded floats.
// How random numbers become bytes: backend/random_weights.h, `name` being the 64-bit FNV-1a hash of the tensor's name
// (of a scale: of its weight's).
//
//   weights of linear maps      deviation 1/sqrt(inputs), then FP8 with 32 x 32 tiles, FP4 rows, or BF16
//   embed, image vectors        1;    engram.embed 0.5, FP8 rows;    markov_head.embed 1/sqrt(rank)
//   norms, engram q/k weights   all 1;    biases and sinks all 0
//   hc_*_fn 0.02;  hc_*_scale 0.01;  hc_*_base: pre -3 but +3 at (layer mod C), post 0, comb +3 on the diagonal, else
//   -3
// Source: spec/checkpoint.md 6.
#pragma once
#include <cstdint>
#include <optional>
#include <span>

#include "fathom/backend/random_weights.h"
#include "fathom/checkpoint/tensor_spec.h"

namespace fathom {

struct ModelConfig;

/// How a tensor of tensor_list() is drawn; nothing for those that are not random (norms, biases, mHC scales and bases).
std::optional<RandomWeights> random_weights_of(const TensorSpec& tensor, uint64_t seed);

/// Writes rows [first_row, first_row + rows) of one tensor of tensor_list(config). A row is the last dimension; a
/// vector is one row. first_row is a multiple of 32, and so is `rows` unless the tensor ends (write_checkpoint's
/// FillRows). Threads: any number at once. Cost: one Philox round trip for four elements.
void fill_initial_rows(const ModelConfig& config, uint64_t seed, const TensorSpec& tensor, int64_t first_row,
                       int64_t rows, std::span<uint8_t> out);

}  // namespace fathom
