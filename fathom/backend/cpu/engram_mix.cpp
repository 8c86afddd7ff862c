#include "fathom/backend/cpu/row_operations.h"

namespace fathom::cpu {
namespace {

// sum of x * (q * k) * key over n channels, where q * k is rounded to float first.
template <class T>
[[gnu::always_inline]] inline float weighted_dot(const T* x, const uint16_t* q, const uint16_t* k, const T* key,
                                                 int64_t n) {
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
#pragma GCC unroll 1
    for (int l = 0; l < kLanes; ++l) {
      const float weight = number(q, i + l) * number(k, i + l);
      lanes[l] = std::fma(number(x, i + l) * weight, number(key, i + l), lanes[l]);
    }
  }
  for (int l = 0; i < n; ++i, ++l) {
    lanes[l] = std::fma(number(x, i) * (number(q, i) * number(k, i)), number(key, i), lanes[l]);
  }
  return sum_lanes(lanes);
}

template <class T>
[[gnu::always_inline]] inline void rows(const EngramMix& op, int64_t begin, int64_t end) {
  const int64_t streams = op.q_weight.rows, n = op.q_weight.cols;
  const float root = 1 / std::sqrt(float(n));
  for (int64_t r = begin; r < end; ++r) {
    if (!op.image.empty() && op.image[r] != 0) continue;
    const T* keys = row_of<T>(op.key_value, r);
    const T* value = keys + streams * n;
    for (int64_t c = 0; c < streams; ++c) {
      T* x = row_of<T>(op.streams, r) + c * n;
      const T* key = keys + c * n;
      const float dot = weighted_dot(x, row_of<uint16_t>(op.q_weight, c), row_of<uint16_t>(op.k_weight, c), key, n);
      const float norms = inverse_rms(sum_of_squares(x, n), n, op.eps) * inverse_rms(sum_of_squares(key, n), n, op.eps);
      const float d = dot * norms * root;
      const float gate = sigmoid(std::copysign(std::sqrt(std::max(std::abs(d), 1e-6f)), d));
      for (int64_t h = 0; h < n; ++h) put(x, h, std::fma(gate, number(value, h), number(x, h)));
    }
  }
}

[[gnu::target("avx2,fma")]] void piece_avx2(const EngramMix& op, int64_t b, int64_t e) {
  op.streams.dtype == DType::bf16 ? rows<uint16_t>(op, b, e) : rows<float>(op, b, e);
}
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]] void piece_avx512(const EngramMix& op, int64_t b, int64_t e) {
  op.streams.dtype == DType::bf16 ? rows<uint16_t>(op, b, e) : rows<float>(op, b, e);
}

template <auto piece>
void run(Queue& queue, const EngramMix& op) {
  for_row_pieces(queue, op.streams.rows, 50 + op.streams.cols / 2, [&](int64_t b, int64_t e) { piece(op, b, e); });
}

}  // namespace

const Variants<EngramMix> kEngramMix{run<piece_avx2>, run<piece_avx512>};

}  // namespace fathom::cpu
