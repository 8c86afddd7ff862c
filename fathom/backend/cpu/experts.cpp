// The experts' activation, and the sum of their results. The products and the gate have files of their own.
#include "fathom/backend/cpu/row_operations.h"
#include "fathom/backend/cpu/row_steps.h"
#include "fathom/backend/cpu/scratch.h"

namespace fathom::cpu {
namespace {

template <class Codes, class T>
[[gnu::always_inline]] inline void swiglu_rows(const SwiGlu& op, int64_t begin, int64_t end) {
  static thread_local Scratch scratch;
  T* const spare = scratch.get<T>(op.gate.cols);
  const float limit = op.limit > 0 ? op.limit : INFINITY;
  for (int64_t r = begin; r < end; ++r) {
    const T* gate = row_of<T>(op.gate, r);
    const T* up = row_of<T>(op.up, r);
    T* out = row_or(op.out, r, spare);
    const float weight = op.weight.empty() ? 1.0f : op.weight[r];
    for (int64_t i = 0; i < op.gate.cols; ++i) {
      const float g = std::min(number(gate, i), limit), u = std::min(std::max(number(up, i), -limit), limit);
      put(out, i, g * sigmoid(g) * u * weight);
    }
    put_q8<Codes>(op.q8, r, out);
  }
}

template <class T>
[[gnu::always_inline]] inline void combine_rows(const Combine& op, int64_t begin, int64_t end) {
  static thread_local Scratch scratch;
  const int64_t n = op.shared.cols;
  float* const sum = scratch.get<float>(n);
  for (int64_t r = begin; r < end; ++r) {
    combine_row(op.routed, op.place, row_of<T>(op.shared, r), r, n, sum, row_of<T>(op.out, r));
  }
}

[[gnu::target("avx2,fma")]] void swiglu_avx2(const SwiGlu& op, int64_t b, int64_t e) {
  op.gate.dtype == DType::bf16 ? swiglu_rows<Avx2Codes, uint16_t>(op, b, e) : swiglu_rows<Avx2Codes, float>(op, b, e);
}
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]] void swiglu_avx512(const SwiGlu& op, int64_t b, int64_t e) {
  if (op.gate.dtype == DType::bf16) return swiglu_rows<Avx512Codes, uint16_t>(op, b, e);
  swiglu_rows<Avx512Codes, float>(op, b, e);
}
[[gnu::target("avx2,fma")]] void combine_avx2(const Combine& op, int64_t b, int64_t e) {
  op.out.dtype == DType::bf16 ? combine_rows<uint16_t>(op, b, e) : combine_rows<float>(op, b, e);
}
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]] void combine_avx512(const Combine& op, int64_t b, int64_t e) {
  op.out.dtype == DType::bf16 ? combine_rows<uint16_t>(op, b, e) : combine_rows<float>(op, b, e);
}

template <auto piece>
void run_swiglu(Queue& queue, const SwiGlu& op) {
  const int64_t q8_ns = op.q8.wanted() ? op.gate.cols / 4 : 0;
  for_row_pieces(queue, op.gate.rows, 10 + op.gate.cols + q8_ns, [&](int64_t b, int64_t e) { piece(op, b, e); });
}
template <auto piece>
void run_combine(Queue& queue, const Combine& op) {
  for_row_pieces(queue, op.shared.rows, 10 + op.shared.cols * (op.place.shape[1] + 2) / 10,
                 [&](int64_t b, int64_t e) { piece(op, b, e); });
}

}  // namespace

const Variants<SwiGlu> kSwiGlu{run_swiglu<swiglu_avx2>, run_swiglu<swiglu_avx512>};
const Variants<Combine> kCombine{run_combine<combine_avx2>, run_combine<combine_avx512>};

}  // namespace fathom::cpu
