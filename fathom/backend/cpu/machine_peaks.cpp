// The loops behind machine_peaks.h. Reading adds up whole vectors in more accumulators than an addition takes cycles;
// arithmetic keeps independent sums in registers. Every loop returns a number of what it did, so that none is left out.
#include "fathom/backend/machine_peaks.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "fathom/backend/backend.h"
#include "fathom/backend/cpu/isa.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace fathom {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRuns = 5;                       // the best one counts
constexpr double kCacheSeconds = 4e-3;         // of a run over a cache, and of one of arithmetic
constexpr int64_t kRounds = int64_t(1) << 12;  // of the arithmetic loops, a call

double since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

std::string first_word(const std::string& file) {
  std::string word;
  std::ifstream(file) >> word;  // empty when there is no such file
  return word;
}

/// What the kernel says of cpu0's cache of a level that holds data: "32768K". (sysconf adds up those of other sockets
/// and of cores that a virtual machine does not have.)
int64_t cache_bytes(const char* level, int64_t fallback) {
  for (int i = 0; i < 8; ++i) {
    const std::string folder = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(i);
    if (first_word(folder + "/level") != level || first_word(folder + "/type") == "Instruction") continue;
    const std::string size = first_word(folder + "/size");
    const int64_t number = std::atoll(size.c_str());
    if (number > 0) return number << (size.ends_with('M') ? 20 : 10);
  }
  return fallback;
}

// ------------------------------------------------------------------------------------------------------------ reading
// Sums of the `bytes` at `data`: `Streams` parts of equal length side by side, each a multiple of 512 bytes.
using Read = uint64_t (*)(const uint8_t* data, int64_t bytes);

template <int Streams>
uint64_t read_portable(const uint8_t* data, int64_t bytes) {
  const int64_t part = bytes / Streams;
  uint64_t sum[8] = {};
  for (int64_t i = 0; i + 64 <= part; i += 64) {
    for (int s = 0; s < Streams; ++s) {
      uint64_t words[8];
      std::memcpy(words, data + s * part + i, 64);
      for (int k = 0; k < 8; ++k) sum[k] += words[k];
    }
  }
  return sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];
}

#if defined(__x86_64__)
template <int Streams>
[[gnu::target("avx2")]] uint64_t read_avx2(const uint8_t* data, int64_t bytes) {
  const int64_t part = bytes / Streams;
  __m256i sum[8] = {};
  for (int64_t i = 0; i + 256 <= part; i += 256) {
    for (int s = 0; s < Streams; ++s) {
      const auto* from = reinterpret_cast<const __m256i*>(data + s * part + i);
#pragma GCC unroll 8
      for (int k = 0; k < 8; ++k) sum[k] = _mm256_xor_si256(sum[k], _mm256_load_si256(from + k));
    }
  }
  for (int k = 1; k < 8; ++k) sum[0] = _mm256_xor_si256(sum[0], sum[k]);
  return uint64_t(_mm256_extract_epi64(sum[0], 0));
}

template <int Streams>
[[gnu::target("avx512f")]] uint64_t read_avx512(const uint8_t* data, int64_t bytes) {
  const int64_t part = bytes / Streams;
  __m512i sum[8] = {};
  for (int64_t i = 0; i + 512 <= part; i += 512) {
    for (int s = 0; s < Streams; ++s) {
      const uint8_t* from = data + s * part + i;
#pragma GCC unroll 8
      for (int k = 0; k < 8; ++k) sum[k] = _mm512_xor_si512(sum[k], _mm512_load_si512(from + 64 * k));
    }
  }
  for (int k = 1; k < 8; ++k) sum[0] = _mm512_xor_si512(sum[0], sum[k]);
  return uint64_t(_mm_cvtsi128_si64(_mm512_castsi512_si128(sum[0])));
}
#endif

std::vector<Read> read_loops(cpu::Isa isa) {
#if defined(__x86_64__)
  if (isa >= cpu::Isa::avx512) return {read_avx512<1>, read_avx512<2>, read_avx512<4>};
  if (isa >= cpu::Isa::avx2) return {read_avx2<1>, read_avx2<2>, read_avx2<4>};
#endif
  static_cast<void>(isa);
  return {read_portable<1>, read_portable<2>, read_portable<4>};
}

/// Bytes a second of all threads, each reading its own `part` bytes `times` times; the best run of the best loop.
double read_rate(ThreadPool& pool, const std::vector<Read>& loops, const uint8_t* data, int64_t part, double seconds) {
  const int threads = pool.threads();
  std::vector<uint64_t> sums(size_t(threads) * 16);  // a cache line apart
  double best = 0;
  for (const Read read : loops) {
    int64_t times = 1;
    for (int run = -1; run < kRuns; ++run) {
      const auto begin = Clock::now();
      pool.run(threads, 1, [&](int64_t first, int64_t last, int) {
        for (int64_t t = first; t < last; ++t) {
          uint64_t sum = 0;
          for (int64_t i = 0; i < times; ++i) sum += read(data + t * part, part);
          sums[size_t(t) * 16] += sum;
        }
      });
      const double took = since(begin), rate = double(times * threads * part) / took;
      if (run >= 0) best = std::max(best, rate);
      times = std::max<int64_t>(1, int64_t(seconds * rate / double(threads * part)));
    }
  }
  volatile uint64_t sink = sums[0];
  static_cast<void>(sink);
  return best;
}

// --------------------------------------------------------------------------------------------------------- arithmetic
/// kRounds rounds over kSums independent sums; the operations of a call come with it.
struct Arithmetic {
  double (*loop)() = nullptr;
  double operations = 0;
  const char* by = "";
};
constexpr int kSums = 12;  // more than latency times throughput of any of them; with two factors they fit 16 registers

double multiply_portable() {
  float sum[64];
  for (int i = 0; i < 64; ++i) sum[i] = float(i);
  for (int64_t round = 0; round < kRounds; ++round) {
    for (int i = 0; i < 64; ++i) sum[i] = sum[i] * 0.999f + 0.5f;
  }
  double all = 0;
  for (const float s : sum) all += double(s);
  return all;
}

#if defined(__x86_64__)
[[gnu::target("avx2,fma")]] double multiply_avx2() {
  __m256 sum[kSums] = {}, a = _mm256_set1_ps(0.999f), b = _mm256_set1_ps(0.5f);
  for (int i = 0; i < kSums; ++i) __asm__ volatile("" : "+x"(sum[i]));  // or equal sums would be one
  for (int64_t round = 0; round < kRounds; ++round) {
#pragma GCC unroll 12
    for (int i = 0; i < kSums; ++i) sum[i] = _mm256_fmadd_ps(sum[i], a, b);
  }
  for (int i = 1; i < kSums; ++i) sum[0] = _mm256_add_ps(sum[0], sum[i]);
  return double(_mm256_cvtss_f32(sum[0]));
}

// Without VNNI: bytes to pairs, pairs to sums of four, sums added up.
[[gnu::target("avx2")]] double bytes_avx2() {
  __m256i sum[kSums] = {}, a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(-2), one = _mm256_set1_epi16(1);
  for (int i = 0; i < kSums; ++i) __asm__ volatile("" : "+x"(sum[i]));  // or equal sums would be one
  for (int64_t round = 0; round < kRounds; ++round) {
#pragma GCC unroll 12
    for (int i = 0; i < kSums; ++i) {
      __asm__ volatile("" : "+x"(a));  // or the product would be made once
      sum[i] = _mm256_add_epi32(sum[i], _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), one));
    }
  }
  for (int i = 1; i < kSums; ++i) sum[0] = _mm256_add_epi32(sum[0], sum[i]);
  return double(_mm256_cvtsi256_si32(sum[0]));
}

[[gnu::target("avx512f")]] double multiply_avx512() {
  __m512 sum[kSums] = {}, a = _mm512_set1_ps(0.999f), b = _mm512_set1_ps(0.5f);
  for (int i = 0; i < kSums; ++i) __asm__ volatile("" : "+v"(sum[i]));  // or equal sums would be one
  for (int64_t round = 0; round < kRounds; ++round) {
#pragma GCC unroll 12
    for (int i = 0; i < kSums; ++i) sum[i] = _mm512_fmadd_ps(sum[i], a, b);
  }
  for (int i = 1; i < kSums; ++i) sum[0] = _mm512_add_ps(sum[0], sum[i]);
  return double(_mm512_cvtss_f32(sum[0]));
}

[[gnu::target("avx512f,avx512vnni")]] double bytes_avx512() {
  __m512i sum[kSums] = {}, a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(-2);
  for (int i = 0; i < kSums; ++i) __asm__ volatile("" : "+v"(sum[i]));  // or equal sums would be one
  for (int64_t round = 0; round < kRounds; ++round) {
#pragma GCC unroll 12
    for (int i = 0; i < kSums; ++i) sum[i] = _mm512_dpbusd_epi32(sum[i], a, b);
  }
  for (int i = 1; i < kSums; ++i) sum[0] = _mm512_add_epi32(sum[0], sum[i]);
  return double(_mm_cvtsi128_si32(_mm512_castsi512_si128(sum[0])));
}

[[gnu::target("avx512f,avx512bf16")]] double pairs_avx512() {
  const __m512 ones = _mm512_set1_ps(1.0f);
  const __m512bh a = _mm512_cvtne2ps_pbh(ones, ones), b = a;
  __m512 sum[kSums] = {};
  for (int i = 0; i < kSums; ++i) __asm__ volatile("" : "+v"(sum[i]));  // or equal sums would be one
  for (int64_t round = 0; round < kRounds; ++round) {
#pragma GCC unroll 12
    for (int i = 0; i < kSums; ++i) sum[i] = _mm512_dpbf16_ps(sum[i], a, b);
  }
  for (int i = 1; i < kSums; ++i) sum[0] = _mm512_add_ps(sum[0], sum[i]);
  return double(_mm512_cvtss_f32(sum[0]));
}
#endif

struct Loops {
  Arithmetic f32, bf16, int8;
};

Loops arithmetic_loops(const cpu::Processor& processor) {
  const auto of = [](double (*loop)(), int multiplies, const char* by) {
    return Arithmetic{loop, 2.0 * multiplies * double(kRounds), by};
  };
  Loops loops;
  loops.f32 = loops.int8 = of(multiply_portable, 64, "float, portable");
#if defined(__x86_64__)
  if (processor.isa >= cpu::Isa::avx512) {
    loops.f32 = of(multiply_avx512, 16 * kSums, "vfmadd, 512 bits");
    loops.int8 = of(bytes_avx2, 32 * kSums, "vpmaddubsw, 256 bits");
    if (__builtin_cpu_supports("avx512vnni")) loops.int8 = of(bytes_avx512, 64 * kSums, "vpdpbusd, 512 bits");
  } else if (processor.isa >= cpu::Isa::avx2) {
    loops.f32 = of(multiply_avx2, 8 * kSums, "vfmadd, 256 bits");
    loops.int8 = of(bytes_avx2, 32 * kSums, "vpmaddubsw, 256 bits");
  }
  if (processor.bf16_dot) loops.bf16 = of(pairs_avx512, 32 * kSums, "vdpbf16ps, 512 bits");
#endif
  if (loops.bf16.loop == nullptr) loops.bf16 = loops.f32;  // bf16 is decoded to float there
  return loops;
}

double operation_rate(ThreadPool& pool, const Arithmetic& arithmetic) {
  const int threads = pool.threads();
  std::vector<double> sums(size_t(threads) * 8);
  double best = 0;
  int64_t times = 1;
  for (int run = -2; run < kRuns; ++run) {  // two to find how often
    const auto begin = Clock::now();
    pool.run(threads, 1, [&](int64_t first, int64_t last, int) {
      for (int64_t t = first; t < last; ++t) {
        double sum = 0;
        for (int64_t i = 0; i < times; ++i) sum += arithmetic.loop();
        sums[size_t(t) * 8] += sum;
      }
    });
    const double rate = double(times * threads) / since(begin);
    if (run >= 0) best = std::max(best, rate);
    times = std::max<int64_t>(1, int64_t(kCacheSeconds * rate / threads));
  }
  volatile double sink = sums[0];
  static_cast<void>(sink);
  return best * arithmetic.operations;
}

}  // namespace

int64_t level1_bytes() { return cache_bytes("1", 32 << 10); }
int64_t level2_bytes() { return cache_bytes("2", 1 << 20); }
int64_t level3_bytes() { return cache_bytes("3", 32 << 20); }

Result<MachinePeaks> measure_peaks(ThreadPool& pool, int most_rounds) {
  const cpu::Processor processor = cpu::detected_processor();
  MachinePeaks peaks;
  peaks.threads = pool.threads();
  peaks.l1_bytes = level1_bytes();
  peaks.l2_bytes = level2_bytes();
  peaks.l3_bytes = level3_bytes();
  const int64_t threads = peaks.threads, page = 4096;
  const auto part_of = [&](int64_t bytes) { return std::max(page, bytes / page * page); };
  const int64_t memory_part = part_of(std::max<int64_t>(4 * peaks.l3_bytes, int64_t(256) << 20) / threads);
  const auto touched = [&](int advice) {
    auto buffer = reference_backend().memory.allocate(memory_part * threads);
    if (buffer.ok()) madvise(buffer->data(), size_t(buffer->bytes()), advice);
    if (buffer.ok()) std::memset(buffer->data(), 1, size_t(buffer->bytes()));
    return buffer;
  };
  Result<Buffer> small = touched(MADV_NOHUGEPAGE);
  if (!small) return small.error();
  const Result<Buffer> large = touched(MADV_HUGEPAGE);
  if (!large) return large.error();
  const std::vector<Read> loops = read_loops(processor.isa);
  const Loops arithmetic = arithmetic_loops(processor);
  peaks.f32_by = arithmetic.f32.by;
  peaks.bf16_by = arithmetic.bf16.by;
  peaks.int8_by = arithmetic.int8.by;
  // In the caches: half of a core's second one, three quarters of its first one, and of what the cores share half, but
  // more than their second ones.
  const int64_t l3_part = std::min(4 * peaks.l2_bytes, std::max(2 * peaks.l2_bytes, peaks.l3_bytes / 2 / threads));
  struct Level {
    double* rate;
    int64_t* read;
    int64_t part;
    const Buffer* from;
  };
  const Level levels[] = {{&peaks.memory, &peaks.memory_read, memory_part, &*small},
                          {&peaks.memory_large_pages, &peaks.memory_read, memory_part, &*large},
                          {&peaks.l3, &peaks.l3_read, part_of(l3_part), &*large},
                          {&peaks.l2, &peaks.l2_read, part_of(peaks.l2_bytes / 2), &*large},
                          {&peaks.l1, &peaks.l1_read, part_of(peaks.l1_bytes * 3 / 4), &*large}};
  for (int round = 0; round < most_rounds; ++round) {
    bool better = round == 0;
    if (round > 0) {  // other pages: what small ones reach depends on how they happen to lie
      small = Buffer();
      small = touched(MADV_NOHUGEPAGE);
      if (!small) return small.error();
    }
    const auto take = [&](double& peak, double rate) {
      if (rate > 1.02 * peak) better = true;
      peak = std::max(peak, rate);
    };
    for (const Level& level : levels) {
      take(*level.rate, read_rate(pool, loops, level.from->data(), level.part, kCacheSeconds));
      *level.read = level.part * threads;
    }
    take(peaks.f32, operation_rate(pool, arithmetic.f32));
    take(peaks.bf16, operation_rate(pool, arithmetic.bf16));
    take(peaks.int8, operation_rate(pool, arithmetic.int8));
    if (!better) break;
  }
  return peaks;
}

}  // namespace fathom
