// Products of the shapes of the miniature (hidden 256) and of the real model (hidden 5120), in products and in bytes of
// weights a second. FATHOM_CPU_ISA does not matter here: the best variant of the processor runs.
//   backend_bench --benchmark_filter=Linear/mini
#include <benchmark/benchmark.h>

#include <cstring>
#include <string>
#include <vector>

#include "fathom/backend/backend.h"
#include "fathom/backend/cpu/isa.h"

namespace fathom::cpu {
namespace {

struct Shape {
  const char* name;
  DType x, weight;
  int64_t n, k;
  int groups;
};
constexpr Shape kShapes[] = {
    {"mini/wq_a", DType::f8_e4m3, DType::f8_e4m3, 128, 256, 1},
    {"mini/wq_b", DType::f8_e4m3, DType::f8_e4m3, 512, 128, 1},
    {"mini/wo_a", DType::bf16, DType::f8_e4m3, 256, 128, 4},
    {"mini/expert_w1", DType::f8_e4m3, DType::f4_e2m1, 96, 256, 1},
    {"mini/expert_w2", DType::f8_e4m3, DType::f4_e2m1, 256, 96, 1},
    {"mini/head", DType::bf16, DType::bf16, 2880, 256, 1},
    {"real/wq_a", DType::f8_e4m3, DType::f8_e4m3, 1280, 5120, 1},
    {"real/wq_b", DType::f8_e4m3, DType::f8_e4m3, 32768, 1280, 1},
    {"real/wo_b", DType::f8_e4m3, DType::f8_e4m3, 5120, 8192, 1},
    {"real/expert_w1", DType::f8_e4m3, DType::f4_e2m1, 2304, 5120, 1},
    {"real/expert_w2", DType::f8_e4m3, DType::f4_e2m1, 5120, 2304, 1},
    {"real/head", DType::bf16, DType::bf16, 129280, 5120, 1},
};

/// Bytes without NaN in any format; bf16 numbers from 2^-7 on.
std::vector<uint8_t> bytes_of_matrix(DType dtype, int64_t count) {
  std::vector<uint8_t> bytes(size_t(bytes_of(dtype, count)));
  uint32_t state = 1;
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = uint8_t((state = state * 1664525 + 1013904223) >> 26);  // < 64
    if (dtype == DType::bf16 && i % 2 == 1) bytes[i] = uint8_t(0x3c + bytes[i] % 4);
  }
  return bytes;
}

void run_linear_bench(benchmark::State& state, const Shape& shape, int64_t rows, int threads) {
  const int64_t x_cols = shape.k * shape.groups;
  const auto x = bytes_of_matrix(shape.x, rows * x_cols), w = bytes_of_matrix(shape.weight, shape.n * shape.k);
  const std::vector<uint8_t> x_scales(size_t(rows * x_cols / 32), 125), w_scales(size_t(shape.n * shape.k / 32), 125);
  std::vector<uint8_t> out(size_t(rows * shape.n * 2));
  Linear op;
  op.x = Matrix(AnyView(x.data(), shape.x, rows, x_cols));
  op.weight = Matrix(AnyView(w.data(), shape.weight, shape.n, shape.k));
  if (shape.x == DType::f8_e4m3) op.x = Matrix(op.x.values, {x_scales.data(), DType::f8_e8m0, rows, x_cols / 32}, 1);
  int64_t scale_bytes = 0;
  if (shape.weight != DType::bf16) {
    const int tile = shape.weight == DType::f8_e4m3 ? 32 : 1;
    op.weight = Matrix(op.weight.values, {w_scales.data(), DType::f8_e8m0, shape.n / tile, shape.k / 32}, tile);
    scale_bytes = shape.n / tile * shape.k / 32;
  }
  op.out = {out.data(), DType::bf16, rows, shape.n};
  op.groups = shape.groups;
  const Operations ops = cpu_operations(detected_processor());
  Queue queue{threads};
  for (auto _ : state) {
    ops.linear(queue, op);
    benchmark::ClobberMemory();
  }
  const double calls = double(state.iterations());
  state.counters["GFLOP/s"] =
      benchmark::Counter(calls * 2e-9 * double(rows * shape.n * shape.k), benchmark::Counter::kIsRate);
  state.counters["GB/s"] =
      benchmark::Counter(calls * 1e-9 * double(int64_t(w.size()) + scale_bytes), benchmark::Counter::kIsRate);
}

const bool kRegistered = [] {
  for (const Shape& shape : kShapes) {
    const bool real = std::strncmp(shape.name, "real", 4) == 0;
    for (const int64_t rows : {1, 2, 6, 16, 64, 512}) {
      if (real && (rows == 2 || rows == 16)) continue;
      for (const int threads : {1, 2}) {
        const std::string name = std::string("Linear/") + shape.name + "/rows:" + std::to_string(rows) +
                                 "/threads:" + std::to_string(threads);
        benchmark::RegisterBenchmark(name.c_str(), [&shape, rows, threads](benchmark::State& state) {
          run_linear_bench(state, shape, rows, threads);
        })->UseRealTime();
      }
    }
  }
  return true;
}();

}  // namespace
}  // namespace fathom::cpu
