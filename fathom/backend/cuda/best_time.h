// fathom/backend/cuda/best_time.h
// How long work on a stream takes when nothing disturbs it: for the device's peaks.
#pragma once
#include "fathom/backend/cuda/device_memory.h"

namespace fathom::cuda {

/// The best of five runs, after one that warms up.
template <class Launch>
double best_seconds(cudaStream_t stream, const Launch& launch) {
  cudaEvent_t begin, end;
  expect(cudaEventCreate(&begin), "an event");
  expect(cudaEventCreate(&end), "an event");
  constexpr int kRuns = 5;
  double best = 1e30;
  for (int run = 0; run <= kRuns; ++run) {  // the first one warms up
    expect(cudaEventRecord(begin, stream), "an event");
    launch();
    expect(cudaGetLastError(), "the device's peaks");
    expect(cudaEventRecord(end, stream), "an event");
    expect(cudaEventSynchronize(end), "the device's peaks");
    float ms = 0;
    expect(cudaEventElapsedTime(&ms, begin, end), "an event");
    if (run > 0 && double(ms) * 1e-3 < best) best = double(ms) * 1e-3;
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return best;
}

}  // namespace fathom::cuda
