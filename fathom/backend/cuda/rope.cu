// One block a row: the first threads take the row's cosines and sines, once for all heads, in double as the definition
// does (at positions near a million nothing less is right); then all threads turn pairs.
#include <algorithm>

#include "fathom/backend/cuda/device.cuh"
#include "fathom/backend/cuda/kernels.h"
#include "fathom/backend/cuda/launch.h"

namespace fathom::cuda {
namespace {

constexpr int kMostPairs = 128;

// Passed by value: frequencies are a few numbers in host memory.
struct Frequencies {
  float value[kMostPairs];
};

template <class A>
__global__ void rope_kernel(Rows<A> x, int heads, int64_t channels, View<const int64_t, 1> positions,
                            const __grid_constant__ Frequencies frequencies, int pairs, bool inverse) {
  __shared__ float cosine[kMostPairs], sine[kMostPairs];
  const int64_t r = blockIdx.x;
  const float position = float(positions.data[r * positions.stride[0]]);
  for (int i = threadIdx.x; i < pairs; i += blockDim.x) {
    double c, s;
    sincos(double(position * frequencies.value[i]), &s, &c);
    cosine[i] = float(c);
    sine[i] = inverse ? -float(s) : float(s);
  }
  __syncthreads();
  A* row = x.row(r);
  for (int n = threadIdx.x; n < heads * pairs; n += blockDim.x) {
    const int head = n / pairs, i = n % pairs;
    A* pair = row + (head + 1) * channels - 2 * pairs + 2 * i;
    const float a = load(pair[0]), b = load(pair[1]);
    store(pair[0], a * cosine[i] - b * sine[i]);
    store(pair[1], a * sine[i] + b * cosine[i]);
  }
}

}  // namespace

void rope(Queue& queue, const Rope& op) {
  if (op.x.empty() || op.frequencies.empty()) return;
  Call call(queue, "rope");
  const AnyViewMut x = call.out(op.x);
  const auto positions = call.in(op.positions);
  const int pairs = int(op.frequencies.size());
  check(pairs <= kMostPairs, "at most 128 rotary pairs");
  Frequencies frequencies{};
  std::copy(op.frequencies.begin(), op.frequencies.end(), frequencies.value);
  with_float_type(x.dtype, [&]<class A>(Type<A>) {
    rope_kernel<A><<<grid(x.rows), row_threads(int64_t(op.heads) * pairs), 0, call.stream()>>>(
        rows_of<A>(x), op.heads, x.cols / op.heads, positions, frequencies, pairs, op.inverse);
  });
}

}  // namespace fathom::cuda
