// Rows into cache entries: the bytes of encode_row (tensor/row_format.h), group by group in vectors. Every step is the
// one of number_formats.h, written without branches; with AVX-512 in the instructions of group_codes.h.
#include <cstring>

#include "fathom/backend/cpu/group_codes.h"
#include "fathom/backend/cpu/row_operations.h"
#include "fathom/backend/cpu/row_steps.h"
#include "fathom/backend/cpu/scratch.h"
#include "fathom/backend/cpu/turn.h"
#include "fathom/tensor/number_formats.h"

namespace fathom::cpu {
namespace {

constexpr int kGroup = 32;

// Largest magnitude of x[0 .. n), n 16 or 32. NaN counts as nothing, as in max_abs.
[[gnu::always_inline]] inline float largest(const float* x, int n) {
  float lanes[kLanes] = {};
  for (int i = 0; i < n; i += kLanes) {
#pragma GCC unroll 1
    for (int l = 0; l < kLanes; ++l) lanes[l] = std::max(lanes[l], std::abs(x[i + l]));
  }
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int l = 0; l < half; ++l) lanes[l] = std::max(lanes[l], lanes[l + half]);
  }
  return lanes[0];
}

[[gnu::always_inline]] inline uint8_t e4m3_code(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude_bits = bits & 0x7fffffffu;
  const float magnitude = std::min(std::bit_cast<float>(magnitude_bits), 448.0f);
  const uint32_t m = std::bit_cast<uint32_t>(magnitude);
  const uint32_t small = std::bit_cast<uint32_t>(magnitude + 0x1p14f) - std::bit_cast<uint32_t>(0x1p14f);
  const uint32_t normal = ((m + 0x7ffffu + ((m >> 20) & 1)) >> 20) - (120u << 3);
  const uint32_t code = magnitude < 0x1p-6f ? small : normal;
  return uint8_t((magnitude_bits > 0x7f800000u ? 0x7fu : code) | ((bits >> 24) & 0x80));
}

// The code is the rounded value's exponent and mantissa; below 1 the steps are 1/2, which is the last place of 2^22.
[[gnu::always_inline]] inline uint32_t e2m1_code(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const float magnitude = std::bit_cast<float>(bits & 0x7fffffffu);
  const float bounded = magnitude < 6.0f ? magnitude : 6.0f;  // NaN is 6 too
  const uint32_t m = std::bit_cast<uint32_t>(bounded);
  const uint32_t small = std::bit_cast<uint32_t>(bounded + 0x1p22f) - std::bit_cast<uint32_t>(0x1p22f);
  const uint32_t normal = ((m + 0x1fffffu + ((m >> 22) & 1)) >> 22) - (126u << 1);
  return (bounded < 1.0f ? small : normal) | ((bits >> 28) & 8);
}

// N nibbles of x * inverse, two a byte. The inverse of a power of two is exact, and multiplying takes no division.
template <int N>
[[gnu::always_inline]] inline void encode_nibbles(const float* x, float inverse, uint8_t* out) {
  uint8_t codes[N];
#pragma GCC unroll 1
  for (int i = 0; i < N; ++i) codes[i] = uint8_t(e2m1_code(x[i] * inverse));
#pragma GCC unroll 1
  for (int i = 0; i < N / 2; ++i) {
    uint16_t pair;
    std::memcpy(&pair, codes + 2 * i, 2);
    out[i] = uint8_t(pair | pair >> 4);
  }
}

template <class T>
[[gnu::always_inline]] inline void encode(RowFormat format, const T* x, int64_t channels, uint8_t* out) {
  if (format == RowFormat::f32) {
    float* to = reinterpret_cast<float*>(out);
    for (int64_t i = 0; i < channels; ++i) to[i] = number(x, i);
    return;
  }
  uint8_t* scales = out + (format == RowFormat::q8 ? channels : channels / 2);
  for (int64_t g = 0; g < channels / kGroup; ++g) {
    float group[kGroup];
#pragma GCC unroll 1
    for (int i = 0; i < kGroup; ++i) group[i] = number(x, g * kGroup + i);
    if (format == RowFormat::q8) {
      const float scale = q8_scale(largest(group, kGroup)), inverse = 1 / scale;
      scales[g] = pow2_to_e8m0(scale);
#pragma GCC unroll 1
      for (int i = 0; i < kGroup; ++i) out[g * kGroup + i] = e4m3_code(group[i] * inverse);
    } else if (format == RowFormat::q4i) {
      const float scale = q4i_scale(largest(group, kGroup));
      scales[g] = pow2_to_e8m0(scale);
      encode_nibbles<kGroup>(group, 1 / scale, out + g * kGroup / 2);
    } else {
      for (int half = 0; half < 2; ++half) {
        const float* part = group + half * kGroup / 2;
        const uint8_t code = q4k_scale_code(largest(part, kGroup / 2));
        scales[2 * g + half] = code;
        const float scale = e4m3_of(code);
        float quotients[kGroup / 2];
#pragma GCC unroll 1
        for (int i = 0; i < kGroup / 2; ++i) quotients[i] = part[i] / scale;
        encode_nibbles<kGroup / 2>(quotients, 1, out + g * kGroup / 2 + half * kGroup / 4);
      }
    }
  }
}

// A row before it is encoded: itself, or a copy that is normed and turned.
template <class T>
class Prepared {
 public:
  [[gnu::always_inline]] explicit Prepared(const EncodeRows& op) : op_(op) {
    if (op.norm.wanted() || op.turn.wanted()) row_ = row_scratch.get<T>(op.x.cols);
    turns_ = turns_scratch.get<float>(2 * int64_t(op.turn.frequencies.size()));
  }
  [[gnu::always_inline]] const T* row(int64_t r) const {
    const T* x = row_of<T>(op_.x, r);
    if (row_ == nullptr) return x;
    const int64_t n = op_.x.cols;
    if (op_.norm.wanted()) {
      norm_row(x, op_.norm, n, row_);
    } else {
      std::memcpy(row_, x, size_t(n) * sizeof(T));
    }
    if (op_.turn.wanted()) {
      turns_of(op_.turn.positions[r], op_.turn.frequencies, op_.turn.inverse, turns_);
      turn_heads(row_, op_.heads, n / op_.heads, int64_t(op_.turn.frequencies.size()), turns_);
    }
    return row_;
  }

 private:
  static inline thread_local Scratch row_scratch, turns_scratch;
  const EncodeRows& op_;
  T* row_ = nullptr;
  float* turns_ = nullptr;
};

template <class T>
[[gnu::always_inline]] inline void rows(const EncodeRows& op, int64_t begin, int64_t end) {
  const int64_t channels = op.x.cols / op.heads, bytes = row_bytes(op.format, channels);
  const Prepared<T> prepared(op);
  for (int64_t r = begin; r < end; ++r) {
    const T* x = prepared.row(r);
    uint8_t* out = op.out.data + r * op.out.stride[0];
    for (int64_t h = 0; h < op.heads; ++h) encode(op.format, x + h * channels, channels, out + h * bytes);
  }
}

[[gnu::target("avx2,fma")]] void piece_avx2(const EncodeRows& op, int64_t b, int64_t e) {
  op.x.dtype == DType::bf16 ? rows<uint16_t>(op, b, e) : rows<float>(op, b, e);
}
template <class T>
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl"), gnu::always_inline]] inline void encode_avx512(RowFormat format,
                                                                                                    const T* x,
                                                                                                    int64_t channels,
                                                                                                    uint8_t* out) {
  if (format == RowFormat::q8) {
    encode_q8_row_avx512(x, channels, out, out + channels);
  } else if (format == RowFormat::q4i) {
    for (int64_t g = 0; g < channels / 32; ++g) encode_q4i_avx512(x + g * 32, out + g * 16, out + channels / 2 + g);
  } else if (format == RowFormat::q4k) {
    for (int64_t g = 0; g < channels / 16; ++g) encode_q4k_avx512(x + g * 16, out + g * 8, out + channels / 2 + g);
  } else {
    encode(format, x, channels, out);
  }
}

template <class T>
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl"), gnu::always_inline]] inline void rows_avx512(const EncodeRows& op,
                                                                                                  int64_t begin,
                                                                                                  int64_t end) {
  const int64_t channels = op.x.cols / op.heads, bytes = row_bytes(op.format, channels);
  const Prepared<T> prepared(op);
  for (int64_t r = begin; r < end; ++r) {
    const T* x = prepared.row(r);
    uint8_t* out = op.out.data + r * op.out.stride[0];
    for (int64_t h = 0; h < op.heads; ++h) encode_avx512(op.format, x + h * channels, channels, out + h * bytes);
  }
}
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]] void piece_avx512(const EncodeRows& op, int64_t b, int64_t e) {
  op.x.dtype == DType::bf16 ? rows_avx512<uint16_t>(op, b, e) : rows_avx512<float>(op, b, e);
}

template <auto piece>
void run(Queue& queue, const EncodeRows& op) {
  const int64_t norm_ns = op.norm.wanted() ? op.x.cols / 8 : 0;
  const int64_t row_ns = 10 + op.x.cols / 2 + norm_ns + turn_ns(int64_t(op.turn.frequencies.size()), op.heads);
  for_row_pieces(queue, op.x.rows, row_ns, [&](int64_t b, int64_t e) { piece(op, b, e); });
}

}  // namespace

const Variants<EncodeRows> kEncodeRows{run<piece_avx2>, run<piece_avx512>};

}  // namespace fathom::cpu
