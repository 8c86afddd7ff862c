// Pooling of two tokens into one entry. Other ratios are left to the definition: the released model has none.
#include "fathom/backend/cpu/row_operations.h"
#include "fathom/backend/reference/reference.h"

namespace fathom::cpu {
namespace {

template <class T>
[[gnu::always_inline]] inline void groups(const Compress& op, int64_t begin, int64_t end) {
  const int64_t n = op.out.cols;
  for (int64_t g = begin; g < end; ++g) {
    const int64_t last = op.group_row[g], sequence = op.rows.sequence[last];
    const float* second = op.projected.data + last * op.projected.stride[0];
    const bool in_step = last > op.rows.begin[sequence];
    const float* first = in_step
                             ? second - op.projected.stride[0]
                             : reinterpret_cast<const float*>(op.state.entry(sequence, op.rows.positions[last] - 1));
    T* out = row_of<T>(op.out, g);
    for (int64_t i = 0; i < n; ++i) {
      const float a = first[n + i], b = second[n + i], best = std::max(a, b);
      const float wa = exp_of(a - best), wb = exp_of(b - best);
      put(out, i, std::fma(wb, second[i], wa * first[i]) / (wa + wb));
    }
  }
}

[[gnu::target("avx2,fma")]] void piece_avx2(const Compress& op, int64_t b, int64_t e) {
  op.out.dtype == DType::bf16 ? groups<uint16_t>(op, b, e) : groups<float>(op, b, e);
}
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]] void piece_avx512(const Compress& op, int64_t b, int64_t e) {
  op.out.dtype == DType::bf16 ? groups<uint16_t>(op, b, e) : groups<float>(op, b, e);
}

template <auto piece>
void run(Queue& queue, const Compress& op) {
  if (op.ratio != 2) return reference::compress(queue, op);
  for_row_pieces(queue, op.group_row.shape[0], 10 + op.out.cols, [&](int64_t b, int64_t e) { piece(op, b, e); });
}

}  // namespace

const Variants<Compress> kCompress{run<piece_avx2>, run<piece_avx512>};

}  // namespace fathom::cpu
