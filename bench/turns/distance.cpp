// How far apart two processors lie: the median time in ns that a cache line takes from one to the other and is seen.
// About 25 where they share a cache, 160 where lines go through the fabric between chiplets.
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

namespace {

alignas(64) std::atomic<long> line{0};

void stay_on(int processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(processor, &set);
  if (sched_setaffinity(0, sizeof set, &set) == 0) return;
  std::perror("distance: processors 0 and 1 are needed");
  std::exit(1);
}

}  // namespace

int main() {
  using Clock = std::chrono::steady_clock;
  constexpr long kTurns = 40000, kSample = 200;
  std::thread other([] {
    stay_on(1);
    for (long i = 1; i < kTurns; i += 2) {
      while (line.load(std::memory_order_acquire) != i) {
      }
      line.store(i + 1, std::memory_order_release);
    }
  });
  stay_on(0);
  std::vector<double> samples;
  auto begin = Clock::now();
  for (long i = 0; i < kTurns; i += 2) {
    line.store(i + 1, std::memory_order_release);
    while (line.load(std::memory_order_acquire) != i + 2) {
    }
    if ((i + 2) % kSample != 0) continue;
    const auto now = Clock::now();
    samples.push_back(std::chrono::duration<double, std::nano>(now - begin).count() / kSample);
    begin = now;
  }
  other.join();
  std::nth_element(samples.begin(), samples.begin() + long(samples.size() / 2), samples.end());
  std::printf("%.0f\n", samples[samples.size() / 2]);
}
