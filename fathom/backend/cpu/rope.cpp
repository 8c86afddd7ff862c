#include "fathom/backend/cpu/row_operations.h"
#include "fathom/backend/cpu/scratch.h"
#include "fathom/backend/cpu/turn.h"

namespace fathom::cpu {
namespace {

template <class T>
[[gnu::always_inline]] inline void rows(const Rope& op, int64_t begin, int64_t end) {
  static thread_local Scratch scratch;
  const int64_t channels = op.x.cols / op.heads, pairs = int64_t(op.frequencies.size());
  float* const turns = scratch.get<float>(2 * pairs);
  for (int64_t r = begin; r < end; ++r) {
    turns_of(op.positions[r], op.frequencies, op.inverse, turns);
    turn_heads(row_of<T>(op.x, r), op.heads, channels, pairs, turns);
  }
}

[[gnu::target("avx2,fma")]] void piece_avx2(const Rope& op, int64_t b, int64_t e) {
  op.x.dtype == DType::bf16 ? rows<uint16_t>(op, b, e) : rows<float>(op, b, e);
}
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]] void piece_avx512(const Rope& op, int64_t b, int64_t e) {
  op.x.dtype == DType::bf16 ? rows<uint16_t>(op, b, e) : rows<float>(op, b, e);
}

template <auto piece>
void run(Queue& queue, const Rope& op) {
  for_row_pieces(queue, op.x.rows, turn_ns(int64_t(op.frequencies.size()), op.heads),
                 [&](int64_t b, int64_t e) { piece(op, b, e); });
}

}  // namespace

const Variants<Rope> kRope{run<piece_avx2>, run<piece_avx512>};

}  // namespace fathom::cpu
