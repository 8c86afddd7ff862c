// fathom/backend/cuda/sm100/machine_model.h
// A multiprocessor of sm_100a on the processor, for tests: every name that product_memory.cuh uses, so that the
// kernel's own text runs here, a thread of the process for each of the block's. Written from the PTX ISA (9.7.16 and,
// for barriers, 9.7.13.15), not from the kernel. What is asynchronous happens as late as it may: copies when they are
// waited for, products and their arrivals in a thread that is in no hurry. A wait of five minutes ends the program.
//
// Not modelled: the order of memory between proxies (fences), how sums round (they are double), and time.
#pragma once
#include <array>
#include <atomic>
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

#include "fathom/backend/cuda/sm100/descriptors.h"
#include "fathom/backend/cuda/sm100/tensor_core_model.h"
#include "fathom/backend/cuda/tiles.h"
#include "fathom/tensor/dtype.h"

// CUDA's words that are not functions.
#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __shared__ static  // one block runs at a time

namespace fathom::cuda_model {
using namespace fathom::cuda;  // tiles.h
namespace sm100 {
using namespace fathom::cuda::sm100;  // descriptors.h, tensor_core_model.h
}
}  // namespace fathom::cuda_model

namespace fathom::cuda_model::sm100::model {

[[noreturn]] inline void stop(const char* what) {
  std::fprintf(stderr, "the model of sm_100a: %s\n", what);
  std::_Exit(1);
}

// ------------------------------------------------------------------------------------------------ threads
constexpr int kModelThreads = 288;
struct Index {
  unsigned x = 0;
};
inline thread_local Index thread, block, grid;
inline int warp() { return int(thread.x / 32); }
inline int lane() { return int(thread.x % 32); }

/// So many threads wait for each other, asleep: there are more of them than processors. Without a lock, which all of
/// them would want when they wake.
class Meeting {
 public:
  explicit Meeting(int threads) : threads_(threads) {}
  void wait() {
    const uint32_t turn = turn_;
    if (++here_ == threads_) {
      here_ = 0;
      ++turn_;
      turn_.notify_all();
      return;
    }
    while (turn_ == turn) turn_.wait(turn);
  }

 private:
  const int threads_;
  std::atomic<int> here_ = 0;
  std::atomic<uint32_t> turn_ = 0;
};
constexpr size_t kWarps = kModelThreads / 32;
struct Meetings {
  Meeting all{kModelThreads};
  std::vector<std::unique_ptr<Meeting>> warps;
  // What lanes give each other: in turns, so that one meeting is enough.
  std::array<std::array<std::array<uint32_t, 32>, 2>, kWarps> given;
  Meetings() {
    for (size_t w = 0; w < kWarps; ++w) warps.push_back(std::make_unique<Meeting>(32));
  }
};
inline std::unique_ptr<Meetings> meetings;
inline thread_local size_t exchanges = 0;
inline void meet_warp() { meetings->warps[size_t(warp())]->wait(); }
/// What lane `from` of the warp gives.
inline uint32_t exchange(uint32_t v, int from) {
  auto& given = meetings->given[size_t(warp())][exchanges++ % 2];
  given[size_t(lane())] = v;
  meet_warp();
  return given[size_t(from)];
}

// ------------------------------------------------------------------------------------------------ barriers
struct Barrier {
  int count = 0, pending = 0;
  int64_t bytes = 0;  // that are still to come
  uint32_t phase = 0;
  std::condition_variable changed;
};
inline std::mutex mutex;
inline std::map<const uint64_t*, Barrier> barriers;
inline void settle(Barrier& barrier) {
  if (barrier.pending < 0) stop("a barrier got more arrivals than it was made for");
  if (barrier.pending > 0 || barrier.bytes != 0) return;
  barrier.phase ^= 1;
  barrier.pending = barrier.count;
  barrier.changed.notify_all();
}
inline void change(const uint64_t& barrier, int arrivals, int64_t bytes) {
  const std::lock_guard lock(mutex);
  Barrier& own = barriers.at(&barrier);
  own.pending -= arrivals;
  own.bytes += bytes;
  settle(own);
}

// ------------------------------------------------------------------------------------------------ the tensor core
/// Does what it is told in the order of being told, in a thread of its own.
class Core {
 public:
  Core() : thread_([this] { work(); }) {}
  ~Core() {
    put(nullptr);
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
      told_.wait(lock, [this] { return !tasks_.empty(); });
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      if (!task) return;
      if (random() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
      task();
    }
  }
  std::mutex mutex_;
  std::condition_variable told_;
  std::deque<std::function<void()>> tasks_;
  std::thread thread_;
};
inline std::unique_ptr<Core> core;
inline std::unique_ptr<TensorCore> memory;  // and the shared memory
inline bool taken = false;                  // the columns of tensor memory

/// Asynchronous copies of this thread: groups, and what is not in one yet.
inline thread_local std::deque<std::vector<std::function<void()>>> groups;
inline thread_local std::vector<std::function<void()>> begun;

template <class T>
T* in_shared(uint32_t address, uint32_t bytes) {
  if (address % bytes != 0 || address + bytes > memory->shared.size()) stop("an address of shared memory is wrong");
  return reinterpret_cast<T*>(memory->shared.data() + address);
}

/// Runs `kernel` as `blocks` blocks, one after the other, each with fresh memory full of rubbish.
template <class Kernel>
void run_blocks(unsigned blocks, const Kernel& kernel) {
  for (unsigned b = 0; b < blocks; ++b) {
    memory = std::make_unique<TensorCore>();
    meetings = std::make_unique<Meetings>();
    core = std::make_unique<Core>();
    barriers.clear();
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < unsigned(kModelThreads); ++t) {
      threads.emplace_back([&kernel, t, b, blocks] {
        thread.x = t, block.x = b, grid.x = blocks;
        kernel();
        if (!groups.empty() || !begun.empty()) stop("a thread ends with copies under way");
      });
    }
    for (std::thread& one : threads) one.join();
    core.reset();
    if (taken) stop("a block keeps its tensor memory");
  }
}

}  // namespace fathom::cuda_model::sm100::model

// ------------------------------------------------------------------------------------------------ CUDA's names
#define threadIdx fathom::cuda_model::sm100::model::thread
#define blockIdx fathom::cuda_model::sm100::model::block
#define gridDim fathom::cuda_model::sm100::model::grid

namespace fathom::cuda_model {

using std::min;
struct uint4 {
  uint32_t x, y, z, w;
};
struct __nv_bfloat162 {
  uint16_t x, y;
};
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return {float_to_bf16(x), float_to_bf16(y)}; }
inline float __uint_as_float(uint32_t v) { return std::bit_cast<float>(v); }
template <class T>
T __ldg(const T* at) {
  T v;
  std::memcpy(&v, at, sizeof v);
  return v;
}
inline void __syncthreads() { sm100::model::meetings->all.wait(); }
inline void __syncwarp() { sm100::model::meet_warp(); }
inline uint32_t __shfl_xor_sync(unsigned, uint32_t v, int with) {
  return sm100::model::exchange(v, sm100::model::lane() ^ with);
}
inline int __shfl_sync(unsigned, int v, int from) { return int(sm100::model::exchange(uint32_t(v), from)); }
inline int __shfl_up_sync(unsigned, int v, int by) {
  const int from = sm100::model::lane() - by;
  return int(sm100::model::exchange(uint32_t(v), from < 0 ? sm100::model::lane() : from));
}

// ------------------------------------------------------------------------------------------------ the room's names
/// product.h and product_tensor.cuh, as far as the kernel looks.
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
  uint8_t* out = nullptr;
  DType out_type = DType::f32;
  int64_t out_stride = 0;
};
struct Place {
  WeightPointers weight;
  int64_t n_first, n_end, first, end, begin, x_column;
};

/// decode_codes.cuh: pairs of bf16 whose exponents are too small by 126 and 120, (2 which, + 4) and the next of eight
/// codes, (0, 2) and (1, 3) of four.
inline uint32_t bf16_pair(float low, float high) { return float_to_bf16(low) | uint32_t(float_to_bf16(high)) << 16; }
inline void pairs_of_e2m1(uint32_t codes, int which, uint32_t& first, uint32_t& second) {
  const auto value = [codes](int i) { return e2m1_to_float(uint8_t(codes >> (4 * i) & 15)) * 0x1p-126f; };
  first = bf16_pair(value(2 * which), value(2 * which + 4));
  second = bf16_pair(value(2 * which + 1), value(2 * which + 5));
}
inline void pairs_of_e4m3(uint32_t codes, uint32_t& even, uint32_t& odd) {
  const auto value = [codes](int i) { return e4m3_to_float(uint8_t(codes >> (8 * i))) * 0x1p-120f; };
  even = bf16_pair(value(0), value(2));
  odd = bf16_pair(value(1), value(3));
}
/// tensor_core.cuh.
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

/// warpgroup.cuh and tensor_core.cuh: barriers and copies.
inline uint32_t shared_address(const uint8_t* at) { return uint32_t(at - sm100::model::memory->shared.data()); }
inline void init_barrier(uint64_t& barrier, uint32_t arrivals) {
  const std::lock_guard lock(sm100::model::mutex);
  sm100::model::Barrier& own = sm100::model::barriers[&barrier];
  own.count = own.pending = int(arrivals);
}
inline void publish_barriers() {}
inline void publish_to_products() {}
inline void arrive(uint64_t& barrier) { sm100::model::change(barrier, 1, 0); }
inline void expect_bytes(uint64_t& barrier, uint32_t bytes) { sm100::model::change(barrier, 1, bytes); }
inline void wait_phase(uint64_t& barrier, uint32_t parity) {
  std::unique_lock lock(sm100::model::mutex);
  sm100::model::Barrier& own = sm100::model::barriers.at(&barrier);
  const bool in_time = own.changed.wait_for(lock, std::chrono::minutes(5), [&] { return own.phase != parity; });
  if (!in_time) sm100::model::stop("a wait of five minutes");
}
inline void copy_bulk(uint32_t to, const uint8_t* from, uint32_t bytes, uint64_t& barrier) {
  if (bytes % 16 != 0 || reinterpret_cast<uintptr_t>(from) % 16 != 0) sm100::model::stop("a bulk copy of odd bytes");
  for (uint32_t i = 0; i < bytes; i += 16) std::memcpy(sm100::model::in_shared<uint8_t>(to + i, 16), from + i, 16);
  sm100::model::change(barrier, 0, -int64_t(bytes));
}
template <uint32_t Bytes>
void copy_async(uint32_t to, const uint8_t* from) {
  if (reinterpret_cast<uintptr_t>(from) % Bytes != 0) sm100::model::stop("a copy from an odd address");
  sm100::model::begun.push_back([=] { std::memcpy(sm100::model::in_shared<uint8_t>(to, Bytes), from, Bytes); });
}
inline void commit_copies() {
  sm100::model::groups.push_back(std::move(sm100::model::begun));
  sm100::model::begun.clear();
}
template <size_t Pending>
void wait_copies() {
  for (; sm100::model::groups.size() > Pending; sm100::model::groups.pop_front()) {
    for (const auto& copy : sm100::model::groups.front()) copy();
  }
}

/// tensor_memory.cuh.
namespace sm100 {
inline uint8_t* dynamic_memory() { return model::memory->shared.data() + 48; }  // not at a multiple of 1,024
inline void store_piece(uint32_t to, const uint32_t (&v)[4]) { std::memcpy(model::in_shared<uint8_t>(to, 16), v, 16); }
template <int Columns>
void take_columns(uint32_t& address) {
  model::meet_warp();
  if (model::lane() == 0) {
    if (model::taken) model::stop("tensor memory is taken twice");
    model::taken = true;
    address = 0;
  }
  model::meet_warp();
}
template <int Columns>
void give_columns(uint32_t address) {
  model::meet_warp();
  if (model::lane() == 0) {
    if (!model::taken || address != 0) model::stop("tensor memory is given back that was not taken");
    model::taken = false;
  }
  model::meet_warp();
}
inline void end_before_meeting() {}
inline void begin_after_meeting() {}
inline bool elected() {
  model::meet_warp();
  return model::lane() == 0;
}
inline uint32_t of_warp(uint32_t v) { return model::exchange(v, 0); }
inline void load_sums(uint32_t (&v)[32], uint32_t address) {
  if (int(address >> 16) != 32 * (model::warp() % 4)) model::stop("a warp reaches lanes that are not its own");
  for (size_t i = 0; i < 32; ++i) {
    const double sum = model::memory->sums.at((address & 0xffff) + i)[(address >> 16) + size_t(model::lane())];
    v[i] = std::bit_cast<uint32_t>(float(sum));
  }
}
inline void multiply_bf16(uint32_t sums, uint64_t a, uint64_t b, uint32_t instruction, bool add) {
  model::core->put([=] { model::memory->multiply(sums, a, b, instruction, false, 0, 0, add); });
}
inline void multiply_scaled(uint32_t sums, uint64_t a, uint64_t b, uint32_t instruction, uint32_t a_scales,
                            uint32_t b_scales, bool add) {
  model::core->put([=] { model::memory->multiply(sums, a, b, instruction, true, a_scales, b_scales, add); });
}
inline void copy_scales(uint32_t columns, uint64_t scales) {
  model::core->put([=] { model::memory->copy_scales(columns, scales); });
}
inline void arrive_after_products(uint64_t& barrier) {
  model::core->put([&barrier] { model::change(barrier, 1, 0); });
}
}  // namespace sm100

}  // namespace fathom::cuda_model
