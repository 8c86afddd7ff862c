#include "fathom/backend/kernel_cases.h"

#include <gtest/gtest.h>

#include "fathom/backend/cpu/isa.h"
#include "fathom/backend/instruments.h"
#include "fathom/backend/recorder.h"

namespace fathom {
namespace {

// Round numbers: a second is 1,000 bytes of memory, or 8,000 bytes of the first cache, or 10,000 operations of bf16.
MachinePeaks round_peaks() {
  MachinePeaks peaks;
  peaks.l1_bytes = 100;
  peaks.l2_bytes = 1000;
  peaks.l3_bytes = 10000;
  peaks.memory = 1000;
  peaks.memory_large_pages = 1250;
  peaks.l3 = 2000;
  peaks.l2 = 4000;
  peaks.l1 = 8000;
  peaks.f32 = 5000;
  peaks.bf16 = 10000;
  peaks.int8 = 20000;
  return peaks;
}

TEST(KernelBound, IsTheLongestOfMemoryCacheAndArithmetic) {
  KernelWork work{.memory_bytes = 500, .cache_bytes = 50, .cache_footprint = 50, .operations = 2000};
  EXPECT_EQ(bound_of(work, round_peaks()).by, KernelBound::By::memory);
  EXPECT_DOUBLE_EQ(bound_of(work, round_peaks()).seconds, 0.5);
  work.operations = 3000;
  EXPECT_EQ(bound_of(work, round_peaks()).by, KernelBound::By::compute);
  EXPECT_DOUBLE_EQ(bound_of(work, round_peaks()).seconds, 0.6);
  work.arithmetic = Arithmetic::bf16;
  EXPECT_DOUBLE_EQ(bound_of(work, round_peaks()).seconds, 0.5);
  work.large_pages = true;
  EXPECT_DOUBLE_EQ(bound_of(work, round_peaks()).seconds, 0.4);
  work = {.cache_bytes = 50, .cache_footprint = 50};
  EXPECT_EQ(bound_of(work, round_peaks()).by, KernelBound::By::cache);
  EXPECT_DOUBLE_EQ(bound_of(work, round_peaks()).seconds, 50 / 8000.0);
}

TEST(KernelBound, AFootprintLiesInTheNearestCachesAndWhatDoesNotFitInMemory) {
  const auto cache_seconds = [](int64_t bytes, int threads) {
    MachinePeaks peaks = round_peaks();
    peaks.threads = threads;
    return bound_of({.cache_bytes = bytes, .cache_footprint = bytes}, peaks).seconds;
  };
  EXPECT_DOUBLE_EQ(cache_seconds(100, 1), 100 / 8000.0);
  EXPECT_DOUBLE_EQ(cache_seconds(500, 1), 100 / 8000.0 + 400 / 4000.0);
  EXPECT_DOUBLE_EQ(cache_seconds(500, 2), 200 / 8000.0 + 300 / 4000.0);  // each core has caches of its own
  EXPECT_DOUBLE_EQ(cache_seconds(5000, 1), 100 / 8000.0 + 900 / 4000.0 + 4000 / 2000.0);
  // 11,000 bytes are in caches, 29,000 are not: they take 29 s of memory, longer than the caches' share.
  EXPECT_DOUBLE_EQ(cache_seconds(40000, 1), 29.0);
}

KernelWork work_of(const std::string& op, const std::string& weights, const std::string& place, int64_t rows) {
  for (const KernelCase& c : kernel_cases(0, 0)) {
    if (c.op != op || c.weights != weights || c.model != "flash" || c.place.find(place) == std::string::npos) continue;
    const auto make = c.open();
    const auto run = make.ok() ? (*make)(rows) : Result<KernelRun>(make.error());
    EXPECT_TRUE(run.ok());
    return run.ok() ? run->work : KernelWork{};
  }
  ADD_FAILURE() << "no case of " << op << " " << weights << " " << place;
  return {};
}

// spec/memory.md 3: a routed expert takes 18,800,640 bytes, a shared one 35,424,000: three matrices of one size.
TEST(KernelCases, WeightsAreCountedWithTheirScales) {
  EXPECT_EQ(work_of("linear", "mxfp4", "expert w1", 1).memory_bytes, 18800640 / 3);
  EXPECT_EQ(work_of("linear", "mxfp4", "expert w2", 1).memory_bytes, 18800640 / 3);
  EXPECT_EQ(work_of("linear", "fp8", "shared w2", 1).memory_bytes, 35424000 / 3);
  EXPECT_EQ(work_of("gate", "bf16", "", 3).memory_bytes, 384 * 5120 * 2);
  EXPECT_EQ(work_of("stream_mixes", "f32", "", 1).memory_bytes, 24 * 20480 * 4);
}

// spec/memory.md 5 and 6: 131,072 operations a key, 288 bytes a latent and 528 a window row; 8,192 operations and 68
// bytes an index key.
TEST(KernelCases, KeysAreCountedAsTheSpecificationCountsThem) {
  const KernelWork attention = work_of("latent_attention", "q4k+q8", "", 2);
  EXPECT_DOUBLE_EQ(attention.operations, 2 * 131072.0 * (128 + 512));
  EXPECT_EQ(attention.memory_bytes, 2 * (128 * 528 + 512 * 288));
  const KernelWork index = work_of("select_rows", "q4i", "4096 keys", 1);
  EXPECT_DOUBLE_EQ(index.operations, 8192.0 * 4096);
  EXPECT_EQ(index.memory_bytes, 68 * 4096);
}

// Products and rows alone read 5,120 values and write 2,304: 5,280 bytes of Q8 and 4,608 of bf16.
TEST(KernelCases, RowsOfAProductAreReadAsQ8AndWrittenAsBf16) {
  const KernelWork work = work_of("linear", "mxfp4", "expert w1", 16);
  EXPECT_EQ(work.cache_bytes, 16 * (5280 + 4608));
  EXPECT_DOUBLE_EQ(work.operations, 2.0 * 16 * 2304 * 5120);
}

TEST(KernelCases, EveryOperationOfTheMiniatureRunsWithAnyNumberOfRows) {
  const Operations ops = cpu::cpu_operations(cpu::detected_processor());
  Queue queue(2);
  int64_t cases = 0;
  for (const KernelCase& c : kernel_cases(0, 1 << 20)) {
    if (c.model != "miniature") continue;
    const auto make = c.open();
    ASSERT_TRUE(make.ok()) << c.op;
    for (const int64_t rows : {1, 2, 5}) {
      const auto run = (*make)(rows);
      ASSERT_TRUE(run.ok()) << c.op;
      for (int i = 0; i < 3; ++i) run->call(ops, queue);
      EXPECT_GT(run->work.memory_bytes + run->work.cache_bytes, 0) << c.op;
    }
    ++cases;
  }
  EXPECT_GT(cases, 20);
}

// Its memory is what the device reads: a recording refuses views of any other.
TEST(KernelCases, EveryOperationOfTheMiniatureCanBeRecordedOnADevice) {
  const auto backend = cuda_backend();
  if (!backend) GTEST_SKIP() << to_string(backend.error());
  const Instruments instruments = instruments_of(*backend);
  const Recorder recorder = recorder_of(*backend);
  const auto queue = std::move(*backend->open_queue(1));
  for (const KernelCase& c : kernel_cases(0, 1 << 20, false, instruments.allocate_migrating)) {
    if (c.model != "miniature") continue;
    const auto make = c.open();
    ASSERT_TRUE(make.ok()) << c.op;
    for (const int64_t rows : {1, 70}) {
      const auto run = (*make)(rows);
      ASSERT_TRUE(run.ok()) << c.op;
      instruments.settle(*queue);
      for (int i = 0; i < 3; ++i) run->call(backend->ops, *queue);
      recorder.begin(*queue);
      for (int i = 0; i < 3; ++i) run->call(backend->ops, *queue);
      const auto recording = recorder.end(*queue);
      recording->run();
      queue->wait();
    }
  }
}

TEST(KernelCases, TellTheSizesThatOtherLibrariesNeed) {
  for (const KernelCase& c : kernel_cases(0, 0)) {
    if (c.op == "linear" && c.place == "wq_b" && c.model == "flash") {
      EXPECT_EQ(c.size("n"), 32768);
      EXPECT_EQ(c.size("k"), 1280);
      EXPECT_EQ(c.size("experts"), 0);
    }
    if (c.op == "grouped_linear" && c.model == "flash") {
      EXPECT_EQ(c.size("n") * c.size("k"), 2304 * 5120);
      EXPECT_EQ(c.size("experts"), 384);
    }
    if (c.op == "latent_attention" && c.model == "flash") {
      EXPECT_EQ(c.size("keys"), 640);
    }
  }
}

TEST(MachinePeaks, CachesHaveSizesThatRise) {
  EXPECT_GT(level1_bytes(), 0);
  EXPECT_GT(level2_bytes(), level1_bytes());
  EXPECT_GT(level3_bytes(), level2_bytes());
}

}  // namespace
}  // namespace fathom
