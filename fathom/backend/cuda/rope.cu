// One block a row: the first threads take the row's cosines and sines while all have their channels under way, eight at
// a time where addresses allow it, then all turn them.
#include "fathom/backend/cuda/kernels.h"
#include "fathom/backend/cuda/rotation.cuh"

namespace fathom::cuda {
namespace {

constexpr int kHeld = 2;  // vectors of a thread under way: 64 heads of 64 rotary channels are one turn of 256 threads

// Elements [Width i, Width (i + 1)) of a head's 2 * pairs rotary channels, or the pair i.
template <class A, int Width>
__global__ void rope_kernel(Rows<A> x, int heads, int64_t channels, const __grid_constant__ Rotation rotation) {
  constexpr int kTaken = Width == 8 ? 8 : 2;
  __shared__ Turns turns;
  let_kernel_behind_start();
  wait_for_kernel_ahead();
  const int64_t r = blockIdx.x;
  const int of_head = 2 * rotation.pairs / kTaken, all = heads * of_head;
  const auto at = [&](int n) { return x.row(r) + (n / of_head + 1) * channels - 2 * rotation.pairs; };
  float held[kHeld][kTaken];
  for (int first = threadIdx.x; first < all || first == int(threadIdx.x); first += kHeld * int(blockDim.x)) {
#pragma unroll
    for (int k = 0; k < kHeld; ++k) {
      const int n = first + k * int(blockDim.x);
      if (n >= all) continue;
      const A* from = at(n) + n % of_head * kTaken;
      if constexpr (Width == 8) {
        load_some(from, 0, held[k]);
      } else {
        held[k][0] = load(from[0]), held[k][1] = load(from[1]);
      }
    }
    if (first == int(threadIdx.x)) {
      take_turns(rotation, r, turns);
      __syncthreads();
    }
#pragma unroll
    for (int k = 0; k < kHeld; ++k) {
      const int n = first + k * int(blockDim.x);
      if (n >= all) continue;
      const int pair = n % of_head * kTaken / 2;
#pragma unroll
      for (int i = 0; i < kTaken; i += 2) {
        turn_pair(held[k][i], held[k][i + 1], turns.cosine[pair + i / 2], turns.sine[pair + i / 2]);
      }
      A* to = at(n) + n % of_head * kTaken;
      if constexpr (Width == 8) {
        store_some(to, 0, held[k]);
      } else {
        store(to[0], held[k][0]), store(to[1], held[k][1]);
      }
    }
  }
}

}  // namespace

void rope(Queue& queue, const Rope& op) {
  if (op.x.empty() || op.frequencies.empty()) return;
  Call call(queue, "rope");
  const AnyViewMut x = call.out(op.x);
  const Rotation rotation = rotation_of(call.in(op.positions), op.frequencies, op.inverse);
  const int64_t channels = x.cols / op.heads;
  const bool whole = rotation.pairs % 4 == 0 && channels % 8 == 0;  // vectors of rotary channels alone
  with_float_type(x.dtype, [&]<class A>(Type<A>) {
    with_width(whole ? common_width(x.cols, x) : 1, [&]<int Width>(std::integral_constant<int, Width>) {
      const int64_t items = int64_t(op.heads) * rotation.pairs / (Width == 8 ? 4 : 1);
      launch_early(call, rope_kernel<A, Width>, grid(x.rows), row_threads((items + kHeld - 1) / kHeld), 0,
                   rows_of<A>(x), op.heads, channels, rotation);
    });
  });
}

}  // namespace fathom::cuda
