// Operations at the model's shapes on the device: time, bytes and operations that are needed, per second. Launches
// follow each other in one queue and are timed by twenties, so what the processor does for a launch counts where it is
// longer. Without a device every benchmark says so.
#include <benchmark/benchmark.h>

#include <chrono>
#include <memory>
#include <vector>

#include "fathom/backend/backend.h"
#include "fathom/backend/owned_values.h"

namespace fathom {
namespace {

constexpr int64_t kHidden = 5120, kInner = 2304, kVocabulary = 129280;
constexpr int kLaunches = 20;

// The device, its queue, and memory full of random bytes.
struct Device {
  Result<Backend> backend = cuda_backend();
  std::unique_ptr<Queue> queue;
  std::vector<Buffer> owned;
  std::vector<uint8_t> noise_bytes;

  bool present(benchmark::State& state) {
    if (!backend.ok()) state.SkipWithError(to_string(backend.error()).c_str());
    return backend.ok();
  }
  /// Not batch-invariant: products with many rows by the kernels that the engine does not take (product.cpp).
  explicit Device(bool batch_invariant = true) {
    if (!backend.ok()) return;
    queue = std::move(*backend->open_queue(1));
    queue->batch_invariant = batch_invariant;
    noise_bytes.resize(size_t(1) << 22);
    for (size_t i = 0; i < noise_bytes.size(); i += 4) {
      const uint32_t word = philox(1, {uint32_t(i), 0, 0, 0})[0];
      std::memcpy(noise_bytes.data() + i, &word, 4);
    }
  }
  uint8_t* take(int64_t bytes) {
    auto memory = backend->memory.allocate(bytes);
    check(memory.ok(), "the GPU has memory for a benchmark");
    owned.push_back(std::move(*memory));
    return owned.back().data();
  }
  uint8_t* upload(const void* data, int64_t bytes) {
    uint8_t* at = take(bytes);
    backend->memory.copy(at, data, bytes);
    return at;
  }
  template <class T>
  T* upload(const std::vector<T>& values) {
    return reinterpret_cast<T*>(upload(values.data(), int64_t(values.size() * sizeof(T))));
  }
  // Random bytes; `mask` and `set` keep codes away from NaN or scales near one.
  uint8_t* random(int64_t bytes, uint8_t mask = 0xff, uint8_t set = 0) {
    std::vector<uint8_t> piece = noise_bytes;
    for (uint8_t& b : piece) b = uint8_t((b & mask) + set);
    uint8_t* at = take(bytes);
    for (int64_t i = 0; i < bytes; i += int64_t(piece.size())) {
      backend->memory.copy(at + i, i == 0 ? piece.data() : at, std::min<int64_t>(int64_t(piece.size()), bytes - i));
    }
    return at;
  }
  // Index entries or queries: Q4I of numbers in [-1, 1).
  uint8_t* random_entries(int64_t count, uint64_t seed) {
    constexpr int64_t kPiece = 16381, kChannels = 128;
    const int64_t bytes = row_bytes(RowFormat::q4i, kChannels);
    std::vector<uint8_t> piece(size_t(kPiece * bytes));
    for (int64_t i = 0; i < kPiece; ++i) {
      encode_row(RowFormat::q4i, noise(kChannels, seed + uint64_t(i)), piece.data() + i * bytes);
    }
    uint8_t* at = take(count * bytes);
    for (int64_t i = 0; i < count; i += kPiece) {
      backend->memory.copy(at + i * bytes, i == 0 ? piece.data() : at, std::min(kPiece, count - i) * bytes);
    }
    return at;
  }
  uint8_t* random_bf16(int64_t count) {  // magnitudes 2^-3 to 2
    std::vector<uint16_t> values(size_t(1) << 21);
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = uint16_t((noise_bytes[2 * i] << 8 & 0x8100) | 0x3e00 | noise_bytes[2 * i + 1]);
    }
    uint8_t* at = take(count * 2);
    const int64_t piece = int64_t(values.size()) * 2;
    for (int64_t i = 0; i < count * 2; i += piece) {
      backend->memory.copy(at + i, i == 0 ? reinterpret_cast<uint8_t*>(values.data()) : at,
                           std::min(piece, count * 2 - i));
    }
    return at;
  }
  Matrix q8(int64_t rows, int64_t cols) {
    return Matrix(AnyView(random(rows * cols, 0xbf), DType::f8_e4m3, rows, cols),
                  AnyView(random(rows * cols / 32, 3, 120), DType::f8_e8m0, rows, cols / 32), 1);
  }
  Matrix fp8(int64_t rows, int64_t cols) {
    return Matrix(AnyView(random(rows * cols, 0xbf), DType::f8_e4m3, rows, cols),
                  AnyView(random((rows + 31) / 32 * cols / 32, 3, 120), DType::f8_e8m0, (rows + 31) / 32, cols / 32),
                  32);
  }
  Matrix fp4(int64_t rows, int64_t cols) {
    return Matrix(AnyView(random(rows * cols / 2), DType::f4_e2m1, rows, cols),
                  AnyView(random(rows * cols / 32, 3, 120), DType::f8_e8m0, rows, cols / 32), 1);
  }
  AnyViewMut rows(DType dtype, int64_t count, int64_t cols) {
    return {take(bytes_of(dtype, count * cols)), dtype, count, cols};
  }
};

template <class Launch>
void time(benchmark::State& state, Device& device, double bytes, double operations, const Launch& launch) {
  // A GPU that was idle takes a while to raise its clocks.
  const auto warm = std::chrono::steady_clock::now() + std::chrono::milliseconds(150);
  for (int i = 0; i < 3 || std::chrono::steady_clock::now() < warm; ++i) {
    launch(i);
    if (i % kLaunches == 0) device.queue->wait();
  }
  device.queue->wait();
  for (auto _ : state) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kLaunches; ++i) launch(i);
    device.queue->wait();
    state.SetIterationTime(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / kLaunches);
  }
  state.counters["TB/s"] = benchmark::Counter(bytes * 1e-12, benchmark::Counter::kIsIterationInvariantRate);
  state.counters["TFLOP/s"] = benchmark::Counter(operations * 1e-12, benchmark::Counter::kIsIterationInvariantRate);
}

void settle(benchmark::internal::Benchmark* b) { b->UseManualTime()->Iterations(5)->Unit(benchmark::kMicrosecond); }

void fp8_linear(benchmark::State& state, bool batch_invariant) {
  Device device(batch_invariant);
  if (!device.present(state)) return;
  const int64_t rows = state.range(0), n = state.range(1), k = state.range(2);
  std::vector<Matrix> weights;  // more of them than the L2 cache holds
  for (int i = 0; i < (rows > 512 ? 1 : 8); ++i) weights.push_back(device.fp8(n, k));
  const Matrix x = device.q8(rows, k);
  const AnyViewMut out = device.rows(DType::bf16, rows, n);
  time(state, device, double(n * k) * 33 / 32 + double(rows * (k + 2 * n)), 2.0 * double(rows) * double(n) * double(k),
       [&](int i) {
         device.backend->ops.linear(*device.queue, {x, weights[size_t(i) % weights.size()], out, 1});
       });
}
void Fp8Linear(benchmark::State& state) { fp8_linear(state, true); }
void Fp8LinearMany(benchmark::State& state) { fp8_linear(state, false); }
BENCHMARK(Fp8Linear)
    ->ArgNames({"rows", "N", "K"})
    ->ArgsProduct({{1, 8, 16, 64, 128, 256, 512, 2048, 8192}, {4608}, {5120}})
    ->Apply(settle);
BENCHMARK(Fp8LinearMany)
    ->ArgNames({"rows", "N", "K"})
    ->ArgsProduct({{256, 512, 2048, 8192}, {4608}, {5120}})
    ->Apply(settle);

void bf16_linear(benchmark::State& state, bool batch_invariant, int64_t n, DType out_type) {
  Device device(batch_invariant);
  if (!device.present(state)) return;
  const int64_t rows = state.range(0), k = kHidden;
  const Matrix w(AnyView(device.random_bf16(n * k), DType::bf16, n, k));
  const Matrix x(AnyView(device.random_bf16(rows * k), DType::bf16, rows, k));
  const AnyViewMut out = device.rows(out_type, rows, n);
  time(state, device, double(n * k * 2 + rows * 2 * k + bytes_of(out_type, rows * n)),
       2.0 * double(rows) * double(n) * double(k), [&](int) {
         device.backend->ops.linear(*device.queue, {x, w, out, 1});
       });
}
void Bf16Head(benchmark::State& state) { bf16_linear(state, true, kVocabulary, DType::f32); }
void Bf16HeadMany(benchmark::State& state) { bf16_linear(state, false, kVocabulary, DType::f32); }
void Bf16LinearMany(benchmark::State& state) { bf16_linear(state, false, 4608, DType::bf16); }
BENCHMARK(Bf16Head)->ArgName("rows")->Arg(1)->Arg(64)->Arg(256)->Apply(settle);
BENCHMARK(Bf16HeadMany)->ArgName("rows")->Arg(256)->Apply(settle);
BENCHMARK(Bf16LinearMany)->ArgName("rows")->Arg(8192)->Apply(settle);

// The expert of each assignment, six of 384 a row: one after the other, so that all have equally many; at random, as a
// router may give them; or from 16 rows (the first expert) to 240, of 128 on average.
enum class Routing { even, random, uneven };
constexpr int64_t kExperts = 384, kChosen = 6;
std::vector<int64_t> routed(Routing routing, int64_t assignments) {
  std::vector<int64_t> out;
  if (routing == Routing::uneven) {
    double share = 0;  // of all assignments, up to and with expert e
    for (int64_t e = 0; e < kExperts; ++e) {
      share += (16 + 224 * double(e) / double(kExperts - 1)) / (128 * double(kExperts));
      out.resize(size_t(share * double(assignments)), e);
    }
    out.resize(size_t(assignments), kExperts - 1);
    return out;
  }
  for (int64_t a = 0; a < assignments; ++a) {
    // At random: a row's six are different, because the experts are dealt to six piles.
    const int64_t drawn = int64_t(philox(9, {uint32_t(a), 0, 0, 0})[0]) % (kExperts / kChosen);
    out.push_back(routing == Routing::even ? a * 97 % kExperts : drawn * kChosen + a % kChosen);
  }
  return out;
}

// A projection of 384 experts. Up (and gate): experts find their rows among all; down: the rows are the assignments
// themselves.
void experts(benchmark::State& state, int64_t n, int64_t k, bool gathered, Routing routing, bool batch_invariant) {
  Device device(batch_invariant);
  if (!device.present(state)) return;
  const int64_t rows = state.range(0), experts = kExperts, assignments = rows * kChosen;
  const Matrix all = device.fp4(experts * n, k);
  std::vector<Matrix> weights;
  for (int64_t e = 0; e < experts; ++e) weights.push_back(all.slice(e * n, n));
  std::vector<int32_t> begin(size_t(experts) + 1, 0), x_row;
  std::vector<std::vector<int32_t>> of(static_cast<size_t>(experts));
  const std::vector<int64_t> expert = routed(routing, assignments);
  for (int64_t a = 0; a < assignments; ++a) of[size_t(expert[size_t(a)])].push_back(int32_t(a / kChosen));
  int64_t used = 0;
  for (int64_t e = 0; e < experts; ++e) {
    x_row.insert(x_row.end(), of[size_t(e)].begin(), of[size_t(e)].end());
    begin[size_t(e) + 1] = int32_t(x_row.size());
    used += !of[size_t(e)].empty();
  }
  const int64_t x_rows = gathered ? rows : assignments;
  GroupedLinear op;
  op.x = device.q8(x_rows, k);
  if (gathered) op.x_row = View<const int32_t, 1>(device.upload(x_row), {assignments});
  op.begin = View<const int32_t, 1>(device.upload(begin), {experts + 1});
  op.weights = weights;
  op.out = device.rows(DType::bf16, assignments, n);
  time(state, device, double(used * n * k) * (0.5 + 1.0 / 32) + double(x_rows * k + assignments * 2 * n),
       2.0 * double(assignments) * double(n) * double(k),
       [&](int) { device.backend->ops.grouped_linear(*device.queue, op); });
}
void Fp4Experts(benchmark::State& state) { experts(state, kInner, kHidden, true, Routing::even, true); }
void Fp4ExpertsRandom(benchmark::State& state) { experts(state, kInner, kHidden, true, Routing::random, true); }
void Fp4ExpertsDown(benchmark::State& state) { experts(state, kHidden, kInner, false, Routing::even, true); }
void Fp4ExpertsMany(benchmark::State& state) { experts(state, kInner, kHidden, true, Routing::even, false); }
void Fp4ExpertsDownMany(benchmark::State& state) { experts(state, kHidden, kInner, false, Routing::even, false); }
void Fp4ExpertsUnevenMany(benchmark::State& state) { experts(state, kInner, kHidden, true, Routing::uneven, false); }
BENCHMARK(Fp4Experts)
    ->ArgName("rows")
    ->Arg(1)
    ->Arg(8)
    ->Arg(64)
    ->Arg(256)
    ->Arg(1024)
    ->Arg(2048)
    ->Arg(8192)
    ->Apply(settle);
BENCHMARK(Fp4ExpertsRandom)->ArgName("rows")->Arg(64)->Arg(256)->Apply(settle);
BENCHMARK(Fp4ExpertsDown)->ArgName("rows")->Arg(64)->Arg(1024)->Arg(2048)->Arg(8192)->Apply(settle);
BENCHMARK(Fp4ExpertsMany)->ArgName("rows")->Arg(2048)->Arg(8192)->Apply(settle);
BENCHMARK(Fp4ExpertsDownMany)->ArgName("rows")->Arg(8192)->Apply(settle);
BENCHMARK(Fp4ExpertsUnevenMany)->ArgName("rows")->Arg(8192)->Apply(settle);

void LatentAttentionDecode(benchmark::State& state) {
  Device device;
  if (!device.present(state)) return;
  const int64_t rows = state.range(0), heads = 64, d = 512, window = 128, top = 512, blocks = 256;
  std::vector<int64_t> positions, begin, end;
  std::vector<int32_t> sequence, offsets{0}, slots, entries, count, tables;
  for (int64_t r = 0; r < rows; ++r) {
    positions.push_back(32000);
    begin.push_back(32000 - window + 1);
    end.push_back(32001);
    sequence.push_back(int32_t(r));
    offsets.push_back(int32_t(r + 1));
    slots.push_back(int32_t(r));
    count.push_back(int32_t(top));
    for (int64_t i = 0; i < top; ++i) entries.push_back(int32_t(31 * i + r % 31));
    for (int64_t b = 0; b < blocks; ++b) tables.push_back(int32_t((r * blocks + b * 37 % blocks) % 16384));
  }
  LatentAttention op;
  op.rows = {View<const int64_t, 1>(device.upload(positions), {rows}),
             View<const int32_t, 1>(device.upload(sequence), {rows}),
             View<const int32_t, 1>(device.upload(offsets), {rows + 1})};
  op.fresh_rows = op.rows;
  op.queries = AnyView(device.random_bf16(rows * heads * d), DType::bf16, rows, heads * d);
  op.heads = int(heads);
  op.fresh = View<const uint8_t, 2>(device.random(rows * 528, 0x77), {rows, 528});
  op.window_format = RowFormat::q8;
  op.ring = {device.random(rows * 134 * 528, 0x77), 134 * 528, 134, 528,
             View<const int32_t, 1>(device.upload(slots), {rows})};
  op.window_begin = View<const int64_t, 1>(device.upload(begin), {rows});
  op.window_end = View<const int64_t, 1>(device.upload(end), {rows});
  op.entry_format = RowFormat::q4k;
  op.latents = {device.random(16384 * int64_t(64 * 288), 0x37), 64 * 288, 64, 288,
                View<const int32_t, 2>(device.upload(tables), {rows, blocks})};
  op.entries = View<const int32_t, 2>(device.upload(entries), {rows, top});
  op.count = View<const int32_t, 1>(device.upload(count), {rows});
  op.sink = View<const float, 1>(reinterpret_cast<const float*>(device.take(heads * 4)), {heads});
  op.scale = 0.04f;
  op.out = device.rows(DType::bf16, rows, heads * d);
  time(state, device, double(rows) * (128 * 528 + 512 * 288 + 2 * 2 * 64 * 512), double(rows) * 2 * 2 * 64 * 640 * 512,
       [&](int) { device.backend->ops.latent_attention(*device.queue, op); });
}
BENCHMARK(LatentAttentionDecode)
    ->ArgName("rows")
    ->Arg(1)
    ->Arg(64)
    ->Arg(256)
    ->Arg(512)
    ->Arg(2048)
    ->Arg(4096)
    ->Apply(settle);

// Decode: every row is a sequence of its own with `keys` visible entries.
void Select(benchmark::State& state) {
  Device device;
  if (!device.present(state)) return;
  const int64_t rows = state.range(0), keys = state.range(1), blocks = keys / 128, heads = 32, channels = 128;
  std::vector<int64_t> positions(size_t(rows), keys - 1);
  std::vector<int32_t> sequence, offsets{0}, tables;
  for (int64_t r = 0; r < rows; ++r) {
    sequence.push_back(int32_t(r));
    offsets.push_back(int32_t(r + 1));
    for (int64_t b = 0; b < blocks; ++b) tables.push_back(int32_t(r * blocks + b));
  }
  SelectRows op;
  op.rows = {View<const int64_t, 1>(device.upload(positions), {rows}),
             View<const int32_t, 1>(device.upload(sequence), {rows}),
             View<const int32_t, 1>(device.upload(offsets), {rows + 1})};
  op.queries = View<const uint8_t, 2>(device.random_entries(rows * heads, 1), {rows, heads * 68});
  op.head_weights = AnyView(device.random_bf16(rows * heads), DType::bf16, rows, heads);
  op.weight_scale = 0.01f;
  op.heads = int(heads);
  op.channels = int(channels);
  op.format = RowFormat::q4i;
  op.keys = {device.random_entries(rows * keys, 100000), 128 * 68, 128, 68,
             View<const int32_t, 2>(device.upload(tables), {rows, blocks})};
  op.top_k = 512;
  op.entries = View<int32_t, 2>(reinterpret_cast<int32_t*>(device.take(rows * 512 * 4)), {rows, 512});
  op.count = View<int32_t, 1>(reinterpret_cast<int32_t*>(device.take(rows * 4)), {rows});
  op.block_size = 8;
  op.top_blocks = 2048;
  op.candidate_source = true;
  op.blocks = View<int32_t, 2>(reinterpret_cast<int32_t*>(device.take(rows * 2048 * 4)), {rows, 2048});
  op.block_count = View<int32_t, 1>(reinterpret_cast<int32_t*>(device.take(rows * 4)), {rows});
  time(state, device, double(rows * keys) * 68, double(rows * keys) * 2 * double(heads * channels),
       [&](int) { device.backend->ops.select_rows(*device.queue, op); });
}
BENCHMARK(Select)
    ->ArgNames({"rows", "keys"})
    ->Args({1, 131072})
    ->Args({16, 131072})
    ->Args({256, 32768})
    ->Args({1, 1048576})
    ->Args({16, 1048576})
    ->Apply(settle);

void StreamMixesOf(benchmark::State& state) {
  Device device;
  if (!device.present(state)) return;
  const int64_t rows = state.range(0);
  StreamMixes op;
  op.streams = AnyView(device.random_bf16(rows * 4 * kHidden), DType::bf16, rows, 4 * kHidden);
  op.fn = AnyView(device.random(24 * 4 * kHidden * 4, 0x3e), DType::f32, 24, 4 * kHidden);
  op.scale = View<const float, 1>(reinterpret_cast<const float*>(device.take(12)), {3});
  op.base = View<const float, 1>(reinterpret_cast<const float*>(device.take(96)), {24});
  const auto table = [&](int64_t cols) {
    return View<float, 2>(reinterpret_cast<float*>(device.take(rows * cols * 4)), {rows, cols});
  };
  op.pre = table(4), op.post = table(4), op.comb = table(16);
  time(state, device, double(rows * 4 * kHidden * 2 + 24 * 4 * kHidden * 4), double(rows) * 2 * 24 * 4 * kHidden,
       [&](int) { device.backend->ops.stream_mixes(*device.queue, op); });
}
BENCHMARK(StreamMixesOf)->ArgName("rows")->Arg(1)->Arg(256)->Arg(8192)->Apply(settle);

void RmsNormOf(benchmark::State& state) {
  Device device;
  if (!device.present(state)) return;
  const int64_t rows = state.range(0);
  const AnyView x(device.random_bf16(rows * kHidden), DType::bf16, rows, kHidden);
  const AnyView weight(device.random_bf16(kHidden), DType::bf16, 1, kHidden);
  const AnyViewMut out = device.rows(DType::bf16, rows, kHidden);
  time(state, device, double(rows * kHidden * 4), double(rows * kHidden * 4), [&](int) {
    device.backend->ops.rms_norm(*device.queue, {x, weight, out, 1e-20f});
  });
}
BENCHMARK(RmsNormOf)->ArgName("rows")->Arg(1)->Arg(256)->Arg(8192)->Apply(settle);

void QuantizeRowsOf(benchmark::State& state) {
  Device device;
  if (!device.present(state)) return;
  const int64_t rows = state.range(0);
  const AnyView x(device.random_bf16(rows * kHidden), DType::bf16, rows, kHidden);
  const AnyViewMut codes = device.rows(DType::f8_e4m3, rows, kHidden),
                   scales = device.rows(DType::f8_e8m0, rows, kHidden / 32);
  time(state, device, double(rows * kHidden) * 3.03, 0, [&](int) {
    device.backend->ops.quantize_rows(*device.queue, {x, codes, scales});
  });
}
BENCHMARK(QuantizeRowsOf)->ArgName("rows")->Arg(256)->Arg(8192)->Apply(settle);

void StreamSpreadOf(benchmark::State& state) {
  Device device;
  if (!device.present(state)) return;
  const int64_t rows = state.range(0);
  StreamSpread op;
  op.y = AnyView(device.random_bf16(rows * kHidden), DType::bf16, rows, kHidden);
  op.post = View<const float, 2>(reinterpret_cast<const float*>(device.take(rows * 16)), {rows, 4});
  op.comb = View<const float, 2>(reinterpret_cast<const float*>(device.take(rows * 64)), {rows, 16});
  op.streams = device.rows(DType::bf16, rows, 4 * kHidden);
  time(state, device, double(rows * kHidden * 2) * 9, 0,
       [&](int) { device.backend->ops.stream_spread(*device.queue, op); });
}
BENCHMARK(StreamSpreadOf)->ArgName("rows")->Arg(256)->Arg(8192)->Apply(settle);

void GateOf(benchmark::State& state) {
  Device device;
  if (!device.present(state)) return;
  const int64_t rows = state.range(0);
  Gate op;
  op.x = AnyView(device.random_bf16(rows * kHidden), DType::bf16, rows, kHidden);
  op.weight = AnyView(device.random_bf16(384 * kHidden), DType::bf16, 384, kHidden);
  op.bias = op.bias_image = View<const float, 1>(reinterpret_cast<const float*>(device.take(384 * 4)), {384});
  op.experts = View<int32_t, 2>(reinterpret_cast<int32_t*>(device.take(rows * 24)), {rows, 6});
  op.weights = View<float, 2>(reinterpret_cast<float*>(device.take(rows * 24)), {rows, 6});
  time(state, device, double((rows + 384) * kHidden * 2), double(rows) * 2 * 384 * kHidden,
       [&](int) { device.backend->ops.gate(*device.queue, op); });
}
BENCHMARK(GateOf)->ArgName("rows")->Arg(1)->Arg(256)->Arg(8192)->Apply(settle);

void GroupByExpertOf(benchmark::State& state) {
  Device device;
  if (!device.present(state)) return;
  const int64_t rows = state.range(0), all = rows * 6;
  std::vector<int32_t> experts;
  for (int64_t a = 0; a < all; ++a) experts.push_back(int32_t(a * 97 % 384));
  const auto ints = [&](int64_t n) { return reinterpret_cast<int32_t*>(device.take(n * 4)); };
  GroupByExpert op;
  op.experts = View<const int32_t, 2>(device.upload(experts), {rows, 6});
  op.weights = View<const float, 2>(reinterpret_cast<const float*>(device.take(all * 4)), {rows, 6});
  op.begin = View<int32_t, 1>(ints(385), {385});
  op.row = View<int32_t, 1>(ints(all), {all});
  op.weight = View<float, 1>(reinterpret_cast<float*>(device.take(all * 4)), {all});
  op.place = View<int32_t, 2>(ints(all), {rows, 6});
  time(state, device, double(all * 20), 0, [&](int) { device.backend->ops.group_by_expert(*device.queue, op); });
}
BENCHMARK(GroupByExpertOf)->ArgName("rows")->Arg(1)->Arg(256)->Arg(8192)->Apply(settle);

void SampleOf(benchmark::State& state) {
  Device device;
  if (!device.present(state)) return;
  const int64_t rows = state.range(0), vocabulary = kVocabulary;
  std::vector<float> logits = noise(vocabulary, 3);
  for (float& v : logits) v *= 12;
  std::vector<RowSampling> settings(static_cast<size_t>(rows));
  for (RowSampling& row : settings) {
    row.top_p = state.range(1) ? 0.95f : 1.0f;
    row.seed = 5;
  }
  Sample op;
  op.logits = View<const float, 2>(device.upload(logits), {rows, vocabulary}, {0, 1});
  op.rows = {reinterpret_cast<const RowSampling*>(device.upload(settings)), size_t(rows)};
  op.ids = View<int32_t, 1>(reinterpret_cast<int32_t*>(device.take(rows * 4)), {rows});
  time(state, device, double(rows * vocabulary * 4), 0, [&](int) { device.backend->ops.sample(*device.queue, op); });
}
BENCHMARK(SampleOf)->ArgNames({"rows", "top_p"})->Args({1, 0})->Args({1, 1})->Args({256, 1})->Apply(settle);

}  // namespace
}  // namespace fathom
