#include "fathom/cli/stream_speed.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <span>

#include "fathom/backend/copy_lane.h"
#include "fathom/base/philox.h"
#include "fathom/cli/median.h"

namespace fathom::cli {
namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

/// Bytes without NaN in any format, random enough that nothing compresses.
std::vector<uint8_t> weights_of(int64_t bytes) {
  std::vector<uint8_t> out(size_t(bytes), 0);
  const size_t first = std::min<size_t>(out.size(), 1 << 16);
  for (size_t i = 0; i < first; ++i) out[i] = uint8_t(philox(7, {uint32_t(i), 0, 0, 0})[0] & 0x3f);
  for (size_t done = first; done < out.size(); done += first) {
    std::memcpy(out.data() + done, out.data(), std::min(first, out.size() - done));
  }
  return out;
}

ProductSpeed measure(const Backend& backend, Queue& queue, DType dtype) {
  // Widths of Flash: an expert has 2304 x 5120, the head 129,280 x 5120. For one row so many outputs that the weights
  // are several times the last cache.
  constexpr int64_t kCols = 5120, kMost = 512;
  const int64_t row_bytes = bytes_of(dtype, kCols);
  const int64_t outputs = (int64_t(128) << 20) / row_bytes / 32 * 32;
  const auto codes = weights_of(outputs * row_bytes), x = weights_of(kMost * kCols * 2);
  const std::vector<uint8_t> scales(size_t(outputs * kCols / 32), 125), x_scales(size_t(kMost * kCols / 32), 125);
  std::vector<uint8_t> out(size_t(std::max(outputs, kMost * 2304) * 4));
  const bool quantised = dtype != DType::bf16;
  ProductSpeed speed;
  for (size_t i = 0; i < speed.at.size(); ++i) {
    const auto rows = int64_t(ProductSpeed::kRows[i]);
    const int64_t n = rows == 1 ? outputs : 2304;
    Linear op;
    op.x = Matrix(AnyView(x.data(), quantised ? DType::f8_e4m3 : DType::bf16, rows, kCols));
    op.weight = Matrix(AnyView(codes.data(), dtype, n, kCols));
    if (quantised) {
      const int tile = dtype == DType::f8_e4m3 ? 32 : 1;
      op.x = Matrix(op.x.values, AnyView(x_scales.data(), DType::f8_e8m0, rows, kCols / 32), 1);
      op.weight = Matrix(op.weight.values, AnyView(scales.data(), DType::f8_e8m0, n / tile, kCols / 32), tile);
    }
    op.out = AnyViewMut(out.data(), DType::bf16, rows, n);
    std::vector<double> seconds;
    for (int repeat = 0; repeat < 5; ++repeat) {
      const auto begin = Clock::now();
      backend.ops.linear(queue, op);
      seconds.push_back(since(begin));
    }
    speed.at[i] = median(std::move(seconds)) / double(n * kCols);
  }
  return speed;
}

}  // namespace

Result<void> measure_products(const std::string& backend, int threads, StreamHardware& hardware) {
  const auto opened = open_backend(backend);
  if (!opened) return opened.error();
  const auto queue = opened->open_queue(threads);
  if (!queue) return queue.error();
  hardware.fp4 = measure(*opened, **queue, DType::f4_e2m1);
  hardware.fp8 = measure(*opened, **queue, DType::f8_e4m3);
  hardware.bf16 = measure(*opened, **queue, DType::bf16);
  return {};
}

double measure_piece_reads(const std::vector<std::vector<MappedRange>>& pieces) {
  constexpr size_t kAtOnce = 6;  // what a gate chooses
  constexpr double kSeconds = 1;
  std::vector<int32_t> order(pieces.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = int32_t(i);
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[philox(3, {uint32_t(i), 0, 0, 0})[0] % i]);
  int64_t largest = 0;
  for (const auto& piece : pieces) largest = std::max(largest, piece_page_bytes(piece));
  PieceStream stream(pieces, {int64_t(kAtOnce) * largest, true});
  double seconds = 0;
  for (size_t at = 0; at < order.size() && seconds < kSeconds; at += kAtOnce) {
    const std::span<const int32_t> some(order.data() + at, std::min(kAtOnce, order.size() - at));
    for (const int32_t piece : some) {
      for (const MappedRange& range : pieces[size_t(piece)]) range.file->drop(range.bytes, true);
    }
    const auto begin = Clock::now();
    stream.want(some);
    for (int32_t piece = stream.next(); piece >= 0; piece = stream.next()) stream.release(piece);
    seconds += since(begin);
  }
  return double(stream.statistics().loaded_bytes) / std::max(seconds, 1e-9);
}

Result<double> measure_host_link(const Backend& backend) {
  constexpr int64_t kBytes = int64_t(128) << 20, kCopies = 8;
  const auto host = allocate_host(backend.memory, kBytes), device = backend.memory.allocate(kBytes);
  for (const auto* memory : {&host, &device}) {
    if (!*memory) return memory->error();
  }
  std::memset(host->data(), 1, size_t(kBytes));
  const auto queue = backend.open_queue(1);
  if (!queue) return queue.error();
  auto lane = open_copy_lane(backend);
  if (!lane) return lane.error();
  double best = 0;
  for (int round = 0; round < 3; ++round) {  // the first one wakes the bus
    const auto begin = Clock::now();
    int64_t last = 0;
    for (int64_t i = 0; i < kCopies; ++i) last = (*lane)->copy(device->data(), host->data(), kBytes, 0);
    (*lane)->await(**queue, last);
    (*queue)->wait();
    best = std::max(best, double(kCopies * kBytes) / since(begin));
  }
  return best;
}

}  // namespace fathom::cli
