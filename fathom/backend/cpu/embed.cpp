#include "fathom/backend/cpu/row_operations.h"

namespace fathom::cpu {
namespace {

template <class T>
[[gnu::always_inline]] inline void rows(const Embed& op, int64_t begin, int64_t end) {
  const int64_t n = op.table.cols;
  for (int64_t r = begin; r < end; ++r) {
    check(op.ids[r] >= 0 && op.ids[r] < op.table.rows, "a token id lies inside the vocabulary");
    const uint16_t* in = row_of<uint16_t>(op.table, op.ids[r]);
    T* __restrict out = row_of<T>(op.out, r);
    for (int c = 0; c < op.streams; ++c) {
      for (int64_t h = 0; h < n; ++h) put(out, c * n + h, number(in, h));
    }
  }
}

[[gnu::target("avx2,fma")]] void piece_avx2(const Embed& op, int64_t b, int64_t e) {
  op.out.dtype == DType::bf16 ? rows<uint16_t>(op, b, e) : rows<float>(op, b, e);
}
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]] void piece_avx512(const Embed& op, int64_t b, int64_t e) {
  op.out.dtype == DType::bf16 ? rows<uint16_t>(op, b, e) : rows<float>(op, b, e);
}

template <auto piece>
void run(Queue& queue, const Embed& op) {
  for_row_pieces(queue, op.ids.shape[0], 10 + op.out.cols / 10, [&](int64_t b, int64_t e) { piece(op, b, e); });
}

}  // namespace

const Variants<Embed> kEmbed{run<piece_avx2>, run<piece_avx512>};

}  // namespace fathom::cpu
