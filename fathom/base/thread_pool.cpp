#include "fathom/base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "fathom/base/check.h"

namespace fathom {
namespace {

// About 10 us: longer than the gap between two operations of a step, shorter than a time slice.
constexpr int kSpins = 2000;

constexpr uint32_t kOpen = 1u << 31;

void pause() { __builtin_ia32_pause(); }

int affinity_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return int(std::max(1u, std::thread::hardware_concurrency()));
  return std::max(1, CPU_COUNT(&set));
}

// cgroup v2 writes "max 100000" or "200000 100000"; v1 has the same numbers in two files (-1 = no limit).
double quota_cpus() {
  double quota = -1, period = 0;
  if (std::FILE* file = std::fopen("/sys/fs/cgroup/cpu.max", "r")) {
    const int read = std::fscanf(file, "%lf %lf", &quota, &period);
    std::fclose(file);
    return read == 2 && quota > 0 && period > 0 ? quota / period : 0;
  }
  std::FILE* q = std::fopen("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "r");
  std::FILE* p = std::fopen("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "r");
  const bool both = q && p && std::fscanf(q, "%lf", &quota) == 1 && std::fscanf(p, "%lf", &period) == 1;
  if (q) std::fclose(q);
  if (p) std::fclose(p);
  return both && quota > 0 && period > 0 ? quota / period : 0;
}

}  // namespace

int usable_cpus() {
  const int cpus = affinity_cpus();
  const double quota = quota_cpus();
  if (quota <= 0) return cpus;
  return std::clamp(int(quota + 0.999), 1, cpus);
}

ThreadPool::ThreadPool(int threads) : shares_(std::make_unique<Share[]>(size_t(std::max(threads, 1)))) {
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { work(i); });
}

ThreadPool::~ThreadPool() {
  stop_.store(true);
  epoch_.fetch_add(1);
  epoch_.notify_all();
  for (auto& worker : workers_) worker.join();
}

void ThreadPool::take_pieces(int thread) {
  const int all = threads();
  for (int i = 0; i < all; ++i) {
    Share& share = shares_[size_t((thread + i) % all)];
    for (;;) {
      const int64_t begin = share.next.fetch_add(grain_, std::memory_order_relaxed);
      if (begin >= share.end) break;
      piece_(context_, begin, std::min(begin + grain_, share.end), thread);
    }
  }
}

void ThreadPool::work(int thread) {
  uint32_t seen = 0;
  for (;;) {
    for (int i = 0; i < kSpins && epoch_.load(std::memory_order_acquire) == seen; ++i) pause();
    epoch_.wait(seen, std::memory_order_acquire);
    if (epoch_.load(std::memory_order_acquire) == seen) continue;
    seen = epoch_.load(std::memory_order_acquire);
    if (stop_.load()) return;
    if (!enter()) continue;
    take_pieces(thread);
    leave();
  }
}

// A loop waits for the workers that are inside, not for those that were called: on a busy machine a sleeper may need
// longer to come than the whole loop takes. Who comes late finds the door closed, or takes part in the next loop.
bool ThreadPool::enter() {
  uint32_t door = door_.load(std::memory_order_relaxed);
  while (door & kOpen) {
    if (door_.compare_exchange_weak(door, door + 1, std::memory_order_acquire, std::memory_order_relaxed)) return true;
  }
  return false;
}

void ThreadPool::leave() {
  if (door_.fetch_sub(1, std::memory_order_acq_rel) == 1) door_.notify_one();  // the last one, and it is closed
}

void ThreadPool::run_pieces(int64_t count, int64_t grain, Piece piece, void* context) {
  if (count <= 0) return;
  check(grain > 0, "a loop's grain is positive");
  if (workers_.empty() || count <= grain) {
    for (int64_t begin = 0; begin < count; begin += grain) piece(context, begin, std::min(begin + grain, count), 0);
    return;
  }
  piece_ = piece;
  context_ = context;
  grain_ = grain;
  // The parts do not depend on the grain: a thread meets the rows again that it had in the loop before, in its cache.
  const int64_t all = threads();
  for (int64_t t = 0; t < all; ++t) {
    shares_[size_t(t)].next.store(count * t / all, std::memory_order_relaxed);
    shares_[size_t(t)].end = count * (t + 1) / all;
  }
  door_.store(kOpen, std::memory_order_release);
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  take_pieces(0);
  door_.fetch_and(~kOpen, std::memory_order_acq_rel);
  for (int i = 0; i < kSpins && door_.load(std::memory_order_acquire) != 0; ++i) pause();
  for (uint32_t inside = door_.load(std::memory_order_acquire); inside != 0;
       inside = door_.load(std::memory_order_acquire)) {
    door_.wait(inside, std::memory_order_acquire);
  }
}

}  // namespace fathom
