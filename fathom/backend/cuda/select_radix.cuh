// fathom/backend/cuda/select_radix.cuh
// The K-th best of many keys by one block: counts of a few bits at a time, from the upper ones down. Exact; of equal
// keys the lower indices are the better ones. Every thread of the block calls these and gets the result.
#pragma once
#include <type_traits>

#include "fathom/backend/cuda/block_scan.cuh"

namespace fathom::cuda::radix {

constexpr int kThreads = 512, kWarps = kThreads / 32;  // of the block

/// The bin, from above, in which `wanted` are reached, what is counted above it, and its own count. -1: there are
/// fewer.
struct Reached {
  int bin, above, count;
};
template <int Bins, class Count>
__device__ Reached reach(int wanted, const Count& count) {
  __shared__ int lanes[kWarps];
  __shared__ Reached found;
  constexpr int kEach = (Bins + kThreads - 1) / kThreads;
  int of_bin[kEach], own = 0, total = 0;
  // Thread 0 has the highest bins.
#pragma unroll
  for (int b = 0; b < kEach; ++b) {
    const int bin = Bins - 1 - int(threadIdx.x) * kEach - b;
    of_bin[b] = bin >= 0 ? count(bin) : 0;
    own += of_bin[b];
  }
  int above = before_in_block(own, lanes, total);
  if (threadIdx.x == 0 && total < wanted) found = {-1, total, 0};
  if (above < wanted && wanted <= above + own) {
#pragma unroll
    for (int b = 0; b < kEach; ++b) {
      if (above < wanted && wanted <= above + of_bin[b]) {
        found = {Bins - 1 - int(threadIdx.x) * kEach - b, above, of_bin[b]};
      }
      above += of_bin[b];
    }
  }
  __syncthreads();
  const Reached result = found;
  __syncthreads();
  return result;
}

/// One level of `Bits` bits of a radix search over numbers that `each` hands to its argument.
template <int Bits, class Each>
__device__ Reached reach_level(int* bins, int wanted, const Each& each) {
  for (int b = threadIdx.x; b < 1 << Bits; b += kThreads) bins[b] = 0;
  __syncthreads();
  each([&](uint32_t digit) { atomicAdd(&bins[digit & ((1u << Bits) - 1)], 1); });
  __syncthreads();
  return reach<(1 << Bits)>(wanted, [&](int b) { return bins[b]; });
}

/// The least key that is chosen, and of those that have it the last index.
struct Threshold {
  uint32_t key = 0, last_tie = ~0u;
};
/// Of what `pass` visits (key, index); there are at least `wanted`.
template <class Pass>
__device__ Threshold find_threshold(const Pass& pass, int wanted, int* bins) {
  uint32_t prefix = 0;
  Reached at{};
  const auto keys = [&]<int Shift, int Bits>(std::integral_constant<int, Shift>, std::integral_constant<int, Bits>) {
    at = reach_level<Bits>(bins, wanted, [&](const auto& add) {
      pass([&](uint32_t key, uint32_t) {
        if (Shift + Bits == 32 || key >> (Shift + Bits) % 32 == prefix) add(key >> Shift);
      });
    });
    prefix = prefix << Bits | uint32_t(at.bin);
    wanted -= at.above;
  };
  keys(std::integral_constant<int, 21>{}, std::integral_constant<int, 11>{});
  keys(std::integral_constant<int, 10>{}, std::integral_constant<int, 11>{});
  keys(std::integral_constant<int, 0>{}, std::integral_constant<int, 10>{});
  Threshold found;
  found.key = prefix;
  if (wanted < at.count) {  // the lower ones of the equal: the largest of the inverted indices
    uint32_t digits = 0;
    const auto ties = [&]<int Shift, int Bits>(std::integral_constant<int, Shift>, std::integral_constant<int, Bits>) {
      at = reach_level<Bits>(bins, wanted, [&](const auto& add) {
        pass([&](uint32_t key, uint32_t i) {
          if (key == found.key && (Shift + Bits == 32 || ~i >> (Shift + Bits) % 32 == digits)) add(~i >> Shift);
        });
      });
      digits = digits << Bits | uint32_t(at.bin);
      wanted -= at.above;
    };
    ties(std::integral_constant<int, 21>{}, std::integral_constant<int, 11>{});
    ties(std::integral_constant<int, 10>{}, std::integral_constant<int, 11>{});
    ties(std::integral_constant<int, 0>{}, std::integral_constant<int, 10>{});
    found.last_tie = ~digits;
  }
  return found;
}

}  // namespace fathom::cuda::radix
