// One block a row: the first threads take the row's cosines and sines, then all threads turn pairs.
#include "fathom/backend/cuda/kernels.h"
#include "fathom/backend/cuda/rotation.cuh"

namespace fathom::cuda {
namespace {

template <class A>
__global__ void rope_kernel(Rows<A> x, int heads, int64_t channels, const __grid_constant__ Rotation rotation) {
  __shared__ Turns turns;
  let_kernel_behind_start();
  wait_for_kernel_ahead();
  const int64_t r = blockIdx.x;
  const int pairs = rotation.pairs;
  take_turns(rotation, r, turns);
  __syncthreads();
  A* row = x.row(r);
  for (int n = threadIdx.x; n < heads * pairs; n += blockDim.x) {
    const int head = n / pairs, i = n % pairs;
    A* pair = row + (head + 1) * channels - 2 * pairs + 2 * i;
    float a = load(pair[0]), b = load(pair[1]);
    turn_pair(a, b, turns.cosine[i], turns.sine[i]);
    store(pair[0], a);
    store(pair[1], b);
  }
}

}  // namespace

void rope(Queue& queue, const Rope& op) {
  if (op.x.empty() || op.frequencies.empty()) return;
  Call call(queue, "rope");
  const AnyViewMut x = call.out(op.x);
  const Rotation rotation = rotation_of(call.in(op.positions), op.frequencies, op.inverse);
  with_float_type(x.dtype, [&]<class A>(Type<A>) {
    launch_early(call, rope_kernel<A>, grid(x.rows), row_threads(int64_t(op.heads) * rotation.pairs), 0, rows_of<A>(x),
                 op.heads, x.cols / op.heads, rotation);
  });
}

}  // namespace fathom::cuda
