// fathom/backend/cpu/turn.h
// Rotary positions of one row. The angle is a float by definition and reaches a million radians; its sine and cosine
// are computed here in double, several angles at a time: the multiple of pi/2 is taken off in two parts, and the
// polynomials of Cephes (S. L. Moshier) do the rest. Before the rounding to float both are within 1e-12 of the true
// value, so they are the floats of the definition but for about one in ten thousand, which is off by one unit in the
// last place.
#pragma once
#include <cstring>

#include "fathom/backend/cpu/lanes.h"

namespace fathom::cpu {

// |angle| < 2^26.
[[gnu::always_inline]] inline void turn_of(float angle, double& cosine, double& sine) {
  constexpr double kRound = 6755399441055744.0;  // 1.5 * 2^52: adding it leaves an integer in the low bits
  const double x = double(angle);
  const double shifted = x * 0.63661977236758134 + kRound;
  const double quarter = shifted - kRound;
  double r = std::fma(quarter, -1.5707963267341256, x);  // the first 33 bits of pi/2
  r = std::fma(quarter, -6.0771005065061922e-11, r);
  const double s = r * r;
  double sin = 1.58962301576546568060e-10;
  sin = std::fma(sin, s, -2.50507477628578072866e-8);
  sin = std::fma(sin, s, 2.75573136213857245213e-6);
  sin = std::fma(sin, s, -1.98412698295895385996e-4);
  sin = std::fma(sin, s, 8.33333333332211858878e-3);
  sin = std::fma(sin, s, -1.66666666666666307295e-1);
  sin = std::fma(sin * s, r, r);
  double cos = -1.13585365213876817300e-11;
  cos = std::fma(cos, s, 2.08757008419747316778e-9);
  cos = std::fma(cos, s, -2.75573141792967388112e-7);
  cos = std::fma(cos, s, 2.48015872888517045348e-5);
  cos = std::fma(cos, s, -1.38888888888730564116e-3);
  cos = std::fma(cos, s, 4.16666666666665929218e-2);
  cos = std::fma(cos * s, s, std::fma(-0.5, s, 1.0));
  const uint64_t quadrant = std::bit_cast<uint64_t>(shifted);
  const uint64_t swap = 0 - (quadrant & 1);  // integers, for the compiler makes vectors of them
  const uint64_t c = std::bit_cast<uint64_t>(cos), s_bits = std::bit_cast<uint64_t>(sin), both = (c ^ s_bits) & swap;
  cosine = std::bit_cast<double>((c ^ both) ^ ((quadrant + 1) & 2) << 62);
  sine = std::bit_cast<double>((s_bits ^ both) ^ (quadrant & 2) << 62);
}

// Pairs (2i, 2i + 1) of a head, kPairs of them or one: a fixed number, so that the loop is vectors and nothing else. A
// pair of bf16 is one dword.
constexpr int kPairs = 8;

template <int N>
[[gnu::always_inline]] inline void turn_pairs(uint16_t* x, const float* cos, const float* sin) {
#pragma GCC unroll 1
  for (int i = 0; i < N; ++i) {
    uint32_t pair;
    std::memcpy(&pair, x + 2 * i, 4);
    const float a = std::bit_cast<float>(pair << 16), b = std::bit_cast<float>(pair & 0xffff0000u);
    pair = bf16_code(a * cos[i] - b * sin[i]) | bf16_code(a * sin[i] + b * cos[i]) << 16;
    std::memcpy(x + 2 * i, &pair, 4);
  }
}
template <int N>
[[gnu::always_inline]] inline void turn_pairs(float* x, const float* cos, const float* sin) {
#pragma GCC unroll 1
  for (int i = 0; i < N; ++i) {
    const float a = x[2 * i], b = x[2 * i + 1];
    x[2 * i] = a * cos[i] - b * sin[i];
    x[2 * i + 1] = a * sin[i] + b * cos[i];
  }
}

template <int N>
[[gnu::always_inline]] inline void turns(float position, const float* frequencies, float sign, float* __restrict cos,
                                         float* __restrict sin) {
  double c[N], s[N];
#pragma GCC unroll 1
  for (int i = 0; i < N; ++i) turn_of(position * frequencies[i], c[i], s[i]);
#pragma GCC unroll 1
  for (int i = 0; i < N; ++i) cos[i] = float(c[i]);
#pragma GCC unroll 1
  for (int i = 0; i < N; ++i) sin[i] = float(s[i]) * sign;
}

/// Cosines and sines of a position, [2 * pairs] in `out`: an `inverse` turn has the sines' signs changed.
[[gnu::always_inline]] inline void turns_of(int64_t at, std::span<const float> frequencies, bool inverse, float* out) {
  const int64_t pairs = int64_t(frequencies.size());
  const float position = float(at), sign = inverse ? -1.0f : 1.0f;
  const float* f = frequencies.data();
  float *cos = out, *sin = out + pairs;
  int64_t first = 0;
  for (; first + kPairs <= pairs; first += kPairs) turns<kPairs>(position, f + first, sign, cos + first, sin + first);
  for (; first < pairs; ++first) turns<1>(position, f + first, sign, cos + first, sin + first);
}

/// Turns the last 2 * pairs channels of each head of a row by what turns_of gave.
template <class T>
[[gnu::always_inline]] inline void turn_heads(T* row, int64_t heads, int64_t channels, int64_t pairs,
                                              const float* turns) {
  const float *cos = turns, *sin = turns + pairs;
  for (int64_t head = 1; head <= heads; ++head) {
    T* x = row + head * channels - 2 * pairs;
    int64_t i = 0;
    for (; i + kPairs <= pairs; i += kPairs) turn_pairs<kPairs>(x + 2 * i, cos + i, sin + i);
    for (; i < pairs; ++i) turn_pairs<1>(x + 2 * i, cos + i, sin + i);
  }
}

/// What a row costs, in ns.
inline int64_t turn_ns(int64_t pairs, int64_t heads) { return pairs > 0 ? 20 + pairs * (4 + heads) : 0; }

}  // namespace fathom::cpu
