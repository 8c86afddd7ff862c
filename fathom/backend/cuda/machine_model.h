// fathom/backend/cuda/machine_model.h
// A multiprocessor on the processor, for tests: what kernels of any chip share, so that a kernel's own text runs here,
// a thread of the process for each of the block's. Products are in warpgroup_model.h (sm_90a) and
// sm100/tensor_memory_model.h. Written from the PTX ISA (9.7.9.25 copies, 9.7.13 barriers), not from kernels. What is
// asynchronous happens as late as it may: copies when they are waited for, bulk copies in a thread that is in no hurry;
// and the place of a copy is rubbish from its beginning on. A wait of five minutes at a barrier ends the program.
//
// Not modelled: the order of memory between proxies (fences), and time.
#pragma once
#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "fathom/backend/cuda/tiles.h"
#include "fathom/tensor/dtype.h"
#include "fathom/tensor/number_formats.h"

// CUDA's words that are not functions.
#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __shared__ static  // of kernels of which one block runs at a time; else block_pair_model.h
#define __align__(bytes) __attribute__((aligned(bytes)))

namespace fathom::cuda_model {
using namespace fathom::cuda;  // tiles.h
}

namespace fathom::cuda_model::machine {

[[noreturn]] inline void stop(const char* what) {
  std::fprintf(stderr, "the model of the machine: %s\n", what);
  std::_Exit(1);
}

// ------------------------------------------------------------------------------------------------ threads
struct Index {
  unsigned x = 0, y = 0;
};
inline thread_local Index thread, block_index, grid;
inline int warp() { return int(thread.x / 32); }
inline int lane() { return int(thread.x % 32); }

/// So many threads wait for each other, asleep: there are more of them than processors. Without a lock, which all of
/// them would want when they wake.
class Meeting {
 public:
  void wait(int threads) {
    const uint32_t turn = turn_;
    if (++here_ == threads) {
      here_ = 0;
      ++turn_;
      turn_.notify_all();
      return;
    }
    while (turn_ == turn) turn_.wait(turn);
  }

 private:
  std::atomic<int> here_ = 0;
  std::atomic<uint32_t> turn_ = 0;
};

/// Does what it is told, in a thread of its own that is in no hurry: in the order of being told, or in any.
class Engine {
 public:
  explicit Engine(bool in_order) : in_order_(in_order), thread_([this] { work(); }) {}
  /// When all is done.
  ~Engine() {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    told_.notify_one();
    thread_.join();
  }
  void put(std::function<void()> task) {
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    told_.notify_one();
  }

 private:
  void work() {
    std::minstd_rand random(1);
    while (true) {
      std::unique_lock lock(mutex_);
      told_.wait(lock, [this] { return ended_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      const auto next = tasks_.begin() + (in_order_ ? 0 : long(random() % tasks_.size()));
      const std::function<void()> task = std::move(*next);
      tasks_.erase(next);
      lock.unlock();
      if (random() % (in_order_ ? 4 : 64) == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
      task();
    }
  }
  std::mutex mutex_;
  std::condition_variable told_;
  std::deque<std::function<void()>> tasks_;
  const bool in_order_;
  bool ended_ = false;
  std::thread thread_;
};

// ------------------------------------------------------------------------------------------------ blocks
constexpr size_t kSharedBytes = 227 * 1024;
struct Warp {
  Meeting lanes;
  // What lanes give each other: in turns, so that one meeting is enough.
  std::array<std::array<uint32_t, 32>, 2> given;
  std::array<const void*, 32> pointers;
};
struct Block {
  int threads, rank;
  std::vector<uint8_t> shared = std::vector<uint8_t>(kSharedBytes, 0x5a);
  Meeting all;
  std::array<Meeting, 16> some;  // named barriers
  std::array<Warp, 32> warps;
  std::atomic<int> registers = 0;  // that its threads have in the end
  std::atomic<int> running = 0;    // threads
};
/// The blocks that run at the same time.
struct Cluster {
  std::vector<std::unique_ptr<Block>> blocks;
  Meeting all;
  std::unique_ptr<Engine> copies = std::make_unique<Engine>(false);
};
inline std::unique_ptr<Cluster> cluster;
inline thread_local Block* own = nullptr;

inline Warp& own_warp() { return own->warps[size_t(warp())]; }
inline void meet_warp() { own_warp().lanes.wait(32); }
/// What each lane of the warp gives, until the next exchange but one.
inline thread_local size_t exchanges = 0;
inline const std::array<uint32_t, 32>& exchange(uint32_t v) {
  auto& given = own_warp().given[exchanges++ % 2];
  given[size_t(lane())] = v;
  meet_warp();
  return given;
}
inline uint32_t exchange(uint32_t v, int from) { return exchange(v)[size_t(from)]; }

/// Addresses of shared memory: the block's own from 0, those of block `rank` of the cluster from (rank + 1) << 24.
inline uint8_t* in_shared(uint32_t address, uint32_t bytes) {
  const uint32_t rank = address >> 24, inside = address & 0xffffff;
  if (rank > cluster->blocks.size() || inside % bytes != 0 || inside + bytes > kSharedBytes) {
    stop("an address of shared memory is wrong");
  }
  return (rank == 0 ? own : cluster->blocks[rank - 1].get())->shared.data() + inside;
}

// ------------------------------------------------------------------------------------------------ barriers
struct Barrier {
  int count = 0, pending = 0;
  int64_t bytes = 0;  // that are still to come
  uint32_t phase = 0;
  std::condition_variable changed;
};
/// What tells a barrier from others: its address in the cluster's shared memory, or where it is in this process.
using BarrierKey = uintptr_t;
inline std::mutex mutex;
inline std::map<BarrierKey, Barrier> barriers;
inline Barrier& barrier_at(BarrierKey at) {
  const auto found = barriers.find(at);
  if (found == barriers.end()) stop("a barrier was not made");
  return found->second;
}
inline void change(BarrierKey at, int arrivals, int64_t bytes) {
  if (at <= UINT32_MAX && cluster->blocks.at((at >> 24) - 1)->running == 0) stop("a block is reached that has ended");
  const std::lock_guard lock(mutex);
  Barrier& own_barrier = barrier_at(at);
  own_barrier.pending -= arrivals;
  own_barrier.bytes += bytes;
  if (own_barrier.pending < 0) stop("a barrier got more arrivals than it was made for");
  if (own_barrier.pending > 0 || own_barrier.bytes != 0) return;
  own_barrier.phase ^= 1;
  own_barrier.pending = own_barrier.count;
  own_barrier.changed.notify_all();
}
/// The warp of every four that is late wherever it has waited, so that others go as far ahead as they may. -1: none.
inline int late_warp = -1;
inline void wait_for(BarrierKey at, uint32_t parity) {
  std::unique_lock lock(mutex);
  Barrier& barrier = barrier_at(at);
  const bool in_time = barrier.changed.wait_for(lock, std::chrono::minutes(5), [&] { return barrier.phase != parity; });
  if (!in_time) stop("a wait of five minutes");
  lock.unlock();
  if (warp() % 4 == late_warp) std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

/// The variables of a block (`__shared__`) where several blocks run are a copy a thread, at the same distance from
/// `own` in each: the distance is their address, behind those of the launch's memory.
constexpr int64_t kVariableBytes = 1 << 16, kFirstVariable = 1 << 20;
inline int64_t distance(const void* at) {
  return static_cast<const uint8_t*>(at) - reinterpret_cast<const uint8_t*>(&own);
}
/// The launch's memory may lie beside a thread's variables.
inline bool is_variable(const void* at) {
  const uint8_t* first = own->shared.data();
  const bool of_launch = at >= first && at < first + kSharedBytes;
  return !of_launch && std::abs(distance(at)) < kVariableBytes;
}
inline uint32_t in_block(uint32_t address, int rank) { return uint32_t(rank + 1) << 24 | address; }
inline BarrierKey key_of(uint32_t address) { return address >> 24 == 0 ? in_block(address, own->rank) : address; }
inline BarrierKey key_of(const uint64_t& barrier) {
  if (!is_variable(&barrier)) return reinterpret_cast<BarrierKey>(&barrier);
  return key_of(uint32_t(kFirstVariable + kVariableBytes + distance(&barrier)));
}

// ------------------------------------------------------------------------------------------------ copies
/// What is there while a copy is under way.
inline void spoil(uint8_t* to, size_t bytes) { std::memset(to, 0xff, bytes); }
/// Asynchronous copies of this thread: groups, and what is not in one yet.
inline thread_local std::deque<std::vector<std::function<void()>>> groups;
inline thread_local std::vector<std::function<void()>> begun;

inline void copy_bulk(uint32_t address, const uint8_t* from, uint32_t bytes, BarrierKey barrier) {
  if (bytes % 16 != 0 || reinterpret_cast<uintptr_t>(from) % 16 != 0) stop("a bulk copy of odd bytes");
  uint8_t* to = in_shared(address, 16);
  in_shared(address + bytes - 16, 16);
  spoil(to, bytes);
  cluster->copies->put([=] {
    std::memcpy(to, from, bytes);
    change(barrier, 0, -int64_t(bytes));
  });
}

inline void arrive_after_copies(BarrierKey barrier) {
  if (!groups.empty()) stop("copies are waited for in groups and by a barrier");
  cluster->copies->put([copies = std::move(begun), barrier] {
    for (const auto& copy : copies) copy();
    change(barrier, 1, 0);
  });
  begun.clear();
}

// ------------------------------------------------------------------------------------------------ launches
struct Launch {
  unsigned blocks, threads, cluster = 1;
};
/// Runs `kernel`, one cluster after the other, each with fresh memory full of rubbish. around(run) calls run().
template <class Kernel, class Around>
void run(const Launch& launch, const Kernel& kernel, const Around& around) {
  for (unsigned first = 0; first < launch.blocks; first += launch.cluster) {
    cluster = std::make_unique<Cluster>();
    barriers.clear();
    for (unsigned rank = 0; rank < launch.cluster; ++rank) {
      cluster->blocks.push_back(std::make_unique<Block>());
      cluster->blocks.back()->threads = int(launch.threads);
      cluster->blocks.back()->rank = int(rank);
      cluster->blocks.back()->running = int(launch.threads);
    }
    around([&] {
      std::vector<std::thread> threads;
      for (unsigned t = 0; t < launch.threads * launch.cluster; ++t) {
        threads.emplace_back([&kernel, &launch, t, first] {
          const unsigned rank = t / launch.threads;
          thread.x = t % launch.threads, block_index.x = first + rank, grid.x = launch.blocks;
          own = cluster->blocks[rank].get();
          // The blocks of a cluster run at the same time, but one may begin late.
          const bool late = launch.cluster > 1 && (first / launch.cluster + 1) % launch.cluster == rank;
          if (late) std::this_thread::sleep_for(std::chrono::milliseconds(20));
          kernel();
          if (!groups.empty() || !begun.empty()) stop("a thread ends with copies under way");
          --own->running;
        });
      }
      for (std::thread& one : threads) one.join();
    });
    cluster->copies.reset();
    for (const auto& [at, barrier] : barriers) {
      if (barrier.bytes != 0) stop("a block ends with bulk copies under way");
    }
  }
}

}  // namespace fathom::cuda_model::machine

// ------------------------------------------------------------------------------------------------ CUDA's names
#define threadIdx fathom::cuda_model::machine::thread
#define blockIdx fathom::cuda_model::machine::block_index
#define gridDim fathom::cuda_model::machine::grid

namespace fathom::cuda_model {

using std::max;
using std::min;
struct uint4 {
  uint32_t x, y, z, w;
};
struct float2 {
  float x, y;
};
inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) { return {x, y, z, w}; }
struct __nv_bfloat162 {
  uint32_t pair;
};
inline uint32_t bf16_pair(float low, float high) { return float_to_bf16(low) | uint32_t(float_to_bf16(high)) << 16; }
inline __nv_bfloat162 __floats2bfloat162_rn(float low, float high) { return {bf16_pair(low, high)}; }
inline float __uint_as_float(uint32_t v) { return std::bit_cast<float>(v); }
inline uint32_t __float_as_uint(float v) { return std::bit_cast<uint32_t>(v); }
/// 1 for the lowest bit; 0: none is set.
inline int __ffs(int v) { return v == 0 ? 0 : std::countr_zero(unsigned(v)) + 1; }
[[noreturn]] inline void __trap() { machine::stop("a kernel gives up"); }
inline unsigned atomicAdd(unsigned* at, unsigned v) { return std::atomic_ref(*at).fetch_add(v); }
inline unsigned long long atomicAdd(unsigned long long* at, unsigned long long v) {
  return std::atomic_ref(*at).fetch_add(v);
}
template <class T>
T __ldg(const T* at) {
  T v;
  std::memcpy(&v, at, sizeof v);
  return v;
}
inline void __syncthreads() { machine::own->all.wait(machine::own->threads); }
inline void __syncwarp() { machine::meet_warp(); }
inline uint32_t __shfl_xor_sync(unsigned, uint32_t v, int with) { return machine::exchange(v, machine::lane() ^ with); }
inline float __shfl_xor_sync(unsigned all, float v, int with) {
  return std::bit_cast<float>(__shfl_xor_sync(all, std::bit_cast<uint32_t>(v), with));
}
inline int __shfl_sync(unsigned, int v, int from) { return int(machine::exchange(uint32_t(v), from)); }
inline int __shfl_up_sync(unsigned, int v, int by) {
  const int from = machine::lane() - by;
  return int(machine::exchange(uint32_t(v), from < 0 ? machine::lane() : from));
}
inline bool __any_sync(unsigned, bool v) {
  const auto& all = machine::exchange(v);
  return std::any_of(all.begin(), all.end(), [](uint32_t one) { return one != 0; });
}
inline unsigned __ballot_sync(unsigned, bool v) {
  const auto& all = machine::exchange(v);
  unsigned out = 0;
  for (size_t i = 0; i < all.size(); ++i) out |= all[i] << i;
  return out;
}

// ------------------------------------------------------------------------------------------------ the room's names
/// product.h and product_tensor.cuh, as far as kernels look.
struct WeightPointers {
  const uint8_t *values, *scales;
};
struct Product {
  const uint8_t* x = nullptr;
  int64_t x_stride = 0;
  const uint8_t* x_scales = nullptr;
  int64_t x_scale_stride = 0, rows = 0;
  const int32_t* x_row = nullptr;
  WeightPointers weight{};
  const WeightPointers* experts = nullptr;
  const int32_t* begin = nullptr;
  int expert_count = 0;
  int64_t weight_stride = 0, scale_stride = 0;
  int scale_rows = 1;
  int64_t n = 0, k = 0;
  int groups = 1;
  bool beside = false;
  int parts = 0;
  uint8_t* out = nullptr;
  DType out_type = DType::f32;
  int64_t out_stride = 0;
};
struct Place {
  WeightPointers weight;
  int64_t n_first, n_end, first, end, begin, x_column;
};

/// device.cuh. Nothing runs ahead or behind.
inline void wait_for_kernel_ahead() {}
inline void let_kernel_behind_start() {}
struct Bf16 {
  uint16_t code;
};
inline float __bfloat162float(Bf16 v) { return bf16_to_float(v.code); }

/// tensor_core.cuh.
inline float above_zero(float dot) { return dot < 0 ? 0 : dot; }
inline uint32_t times(uint32_t pair, uint32_t factors) {
  const auto half = [](uint32_t v, int i) { return bf16_to_float(uint16_t(v >> (16 * i))); };
  return bf16_pair(half(pair, 0) * half(factors, 0), half(pair, 1) * half(factors, 1));
}
struct Factors {
  uint32_t first, second;
  bool two;
};
inline Factors factors_of(uint32_t scale_code, uint32_t lacking) {
  const uint32_t field = scale_code + lacking, one = 127u << 7 | 127u << 23;
  if (field <= 254) return {field << 7 | field << 23, one, false};
  return {254u << 7 | 254u << 23, (field - 127) << 7 | (field - 127) << 23, true};
}
inline uint32_t shared_address(const void* at) {
  // The launch's memory first: it may lie next to a thread's own variables.
  const int64_t offset = static_cast<const uint8_t*>(at) - machine::own->shared.data();
  if (offset >= 0 && offset < int64_t(machine::kSharedBytes)) return uint32_t(offset);
  if (!machine::is_variable(at)) machine::stop("an address is not in shared memory");
  return uint32_t(machine::kFirstVariable + machine::kVariableBytes + machine::distance(at));
}
template <uint32_t Bytes>
void copy_async(uint32_t address, const uint8_t* from) {
  if (reinterpret_cast<uintptr_t>(from) % Bytes != 0) machine::stop("a copy from an odd address");
  uint8_t* to = machine::in_shared(address, Bytes);
  machine::spoil(to, Bytes);
  machine::begun.push_back([=] { std::memcpy(to, from, Bytes); });
}
inline void commit_copies() {
  machine::groups.push_back(std::move(machine::begun));
  machine::begun.clear();
}
template <size_t Pending>
void wait_copies() {
  for (; machine::groups.size() > Pending; machine::groups.pop_front()) {
    for (const auto& copy : machine::groups.front()) copy();
  }
}

/// warpgroup.cuh: barriers and bulk copies.
inline void init_barrier(uint64_t& barrier, uint32_t arrivals) {
  const std::lock_guard lock(machine::mutex);
  machine::Barrier& own = machine::barriers[machine::key_of(barrier)];
  own.count = own.pending = int(arrivals);
}
inline void publish_barriers() {}
inline void publish_to_products() {}
inline void arrive(uint64_t& barrier) { machine::change(machine::key_of(barrier), 1, 0); }
inline void expect_bytes(uint64_t& barrier, uint32_t bytes) { machine::change(machine::key_of(barrier), 1, bytes); }
/// The thread does not wait for these copies otherwise.
inline void arrive_after_copies(uint64_t& barrier) { machine::arrive_after_copies(machine::key_of(barrier)); }
inline void wait_phase(uint64_t& barrier, uint32_t parity) { machine::wait_for(machine::key_of(barrier), parity); }
inline void copy_bulk(uint32_t address, const uint8_t* from, uint32_t bytes, uint64_t& barrier) {
  machine::copy_bulk(address, from, bytes, machine::key_of(barrier));
}

}  // namespace fathom::cuda_model
