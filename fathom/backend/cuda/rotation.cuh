// fathom/backend/cuda/rotation.cuh
// Rotary positions of one row: cosines and sines once for all heads, in double as the definition takes them (at
// positions near a million nothing less is right), then pairs of channels.
#pragma once
#include <algorithm>

#include "fathom/backend/cuda/device.cuh"
#include "fathom/backend/cuda/launch.h"

namespace fathom::cuda {

constexpr int kMostPairs = 128;

/// Passed by value: frequencies are a few numbers in host memory.
struct Rotation {
  View<const int64_t, 1> positions;
  int pairs = 0;  // 0: rows are not turned
  bool inverse = false;
  float frequency[kMostPairs];
};

/// `positions` where kernels reach them.
inline Rotation rotation_of(const View<const int64_t, 1>& positions, std::span<const float> frequencies, bool inverse) {
  check(frequencies.size() <= kMostPairs, "at most 128 rotary pairs");
  Rotation out{positions, int(frequencies.size()), inverse, {}};
  std::copy(frequencies.begin(), frequencies.end(), out.frequency);
  return out;
}

/// In shared memory, of one row.
struct Turns {
  float cosine[kMostPairs], sine[kMostPairs];
};

/// By all threads of the block; it does not wait for them.
__device__ inline void take_turns(const Rotation& rotation, int64_t r, Turns& turns) {
  const float position = float(rotation.positions.data[r * rotation.positions.stride[0]]);
  for (int i = threadIdx.x; i < rotation.pairs; i += blockDim.x) {
    double c, s;
    sincos(double(position * rotation.frequency[i]), &s, &c);
    turns.cosine[i] = float(c);
    turns.sine[i] = rotation.inverse ? -float(s) : float(s);
  }
}

/// The order of the two roundings is said here, so that every kernel has the same bits.
__device__ inline void turn_pair(float& a, float& b, float cosine, float sine) {
  const float x = a;
  a = __fmaf_rn(x, cosine, -__fmul_rn(b, sine));
  b = __fmaf_rn(x, sine, __fmul_rn(b, cosine));
}

/// Channels [c, c + 8) of a head of `channels`, as far as they are among its last 2 * pairs.
template <class A>
__device__ inline void turn_octet(float (&v)[8], int c, int channels, int pairs, const Turns& turns) {
  const int first = channels - 2 * pairs;
#pragma unroll
  for (int k = 0; k < 8; k += 2) {
    if (c + k < first) continue;
    const int i = (c + k - first) / 2;
    turn_pair(v[k], v[k + 1], turns.cosine[i], turns.sine[i]);
    v[k] = rounded<A>(v[k]);
    v[k + 1] = rounded<A>(v[k + 1]);
  }
}

}  // namespace fathom::cuda
