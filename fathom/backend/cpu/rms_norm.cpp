#include "fathom/backend/cpu/row_operations.h"
#include "fathom/backend/cpu/row_steps.h"
#include "fathom/backend/cpu/scratch.h"

namespace fathom::cpu {
namespace {

template <class Codes, class T>
[[gnu::always_inline]] inline void rows(const RmsNorm& op, int64_t begin, int64_t end) {
  static thread_local Scratch scratch;
  const int64_t n = op.x.cols;
  T* const spare = scratch.get<T>(n);
  for (int64_t r = begin; r < end; ++r) {
    T* const out = row_or(op.out, r, spare);
    norm_row(row_of<T>(op.x, r), Norm{op.weight, op.eps}, n, out);
    put_q8<Codes>(op.q8, r, out);
  }
}

[[gnu::target("avx2,fma")]] void piece_avx2(const RmsNorm& op, int64_t b, int64_t e) {
  op.x.dtype == DType::bf16 ? rows<Avx2Codes, uint16_t>(op, b, e) : rows<Avx2Codes, float>(op, b, e);
}
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]] void piece_avx512(const RmsNorm& op, int64_t b, int64_t e) {
  op.x.dtype == DType::bf16 ? rows<Avx512Codes, uint16_t>(op, b, e) : rows<Avx512Codes, float>(op, b, e);
}

template <auto piece>
void run(Queue& queue, const RmsNorm& op) {
  for_row_pieces(queue, op.x.rows, 10 + op.x.cols / 8 + (op.q8.wanted() ? op.x.cols / 4 : 0),
                 [&](int64_t b, int64_t e) { piece(op, b, e); });
}

}  // namespace

const Variants<RmsNorm> kRmsNorm{run<piece_avx2>, run<piece_avx512>};

}  // namespace fathom::cpu
