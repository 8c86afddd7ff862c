#include "fathom/backend/cpu/row_operations.h"

namespace fathom::cpu {
namespace {

template <class T, class W>
[[gnu::always_inline]] inline void rows(const RmsNorm& op, int64_t begin, int64_t end) {
  const int64_t n = op.x.cols;
  const W* weight = row_of<W>(op.weight, 0);
  for (int64_t r = begin; r < end; ++r) {
    const T* x = row_of<T>(op.x, r);
    T* out = row_of<T>(op.out, r);
    const float scale = inverse_rms(sum_of_squares(x, n), n, op.eps);
    for (int64_t i = 0; i < n; ++i) put(out, i, number(x, i) * scale * number(weight, i));
  }
}

[[gnu::always_inline]] inline void piece(const RmsNorm& op, int64_t begin, int64_t end) {
  const bool x16 = op.x.dtype == DType::bf16, weight16 = op.weight.dtype == DType::bf16;
  if (x16 && weight16) return rows<uint16_t, uint16_t>(op, begin, end);
  if (x16) return rows<uint16_t, float>(op, begin, end);
  if (weight16) return rows<float, uint16_t>(op, begin, end);
  rows<float, float>(op, begin, end);
}
[[gnu::target("avx2,fma")]] void piece_avx2(const RmsNorm& op, int64_t b, int64_t e) { piece(op, b, e); }
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]] void piece_avx512(const RmsNorm& op, int64_t b, int64_t e) {
  piece(op, b, e);
}

template <auto piece>
void run(Queue& queue, const RmsNorm& op) {
  for_row_pieces(queue, op.x.rows, 10 + op.x.cols / 8, [&](int64_t b, int64_t e) { piece(op, b, e); });
}

}  // namespace

const Variants<RmsNorm> kRmsNorm{run<piece_avx2>, run<piece_avx512>};

}  // namespace fathom::cpu
