#include "fathom/backend/operation_work.h"

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace fathom {
namespace {

// Rows as they are stored; gaps between them are not counted.
int64_t bytes_in(const AnyView& view) { return view.empty() ? 0 : bytes_of(view.dtype, view.rows * view.cols); }
int64_t bytes_in(const AnyViewMut& view) { return bytes_in(AnyView(view)); }
int64_t bytes_in(const Matrix& matrix) { return bytes_in(matrix.values) + bytes_in(matrix.scales); }
template <class T, int Rank>
int64_t bytes_in(const View<T, Rank>& view) {
  return view.empty() ? 0 : view.size() * int64_t(sizeof(T));
}

template <class... Views>
KernelWork on_activations(double operations, const Views&... views) {
  const int64_t bytes = (bytes_in(views) + ... + 0);
  return {.cache_bytes = bytes, .cache_footprint = bytes, .operations = operations};
}

// Multiply-adds and the like of an element, of steps that operations take with them.
constexpr double kRounding = 3;  // a comparison for the largest, a product and a rounding
constexpr double kNorm = 4;      // a square and its sum, two products
constexpr double kTurn = 3;      // four products and two sums a pair, beside sine and cosine once a row
double steps_of(const Q8Rows& q8) { return q8.wanted() ? kRounding * double(q8.codes.rows * q8.codes.cols) : 0; }
double steps_of(const Norm& norm, int64_t rows) { return norm.wanted() ? kNorm * double(rows * norm.weight.cols) : 0; }
double steps_of(const Turn& turn, int64_t heads_in_all) {
  return kTurn * double(heads_in_all * 2 * int64_t(turn.frequencies.size()));
}

// FP8 and FP4 codes are exact in bf16; so is a bf16 weight against bf16 rows.
Arithmetic arithmetic_of(DType x, DType weight) {
  return x == DType::f32 || weight == DType::f32 ? Arithmetic::f32 : Arithmetic::bf16;
}

// The numbers of a view that may lie where only the device reads.
template <class T>
std::vector<std::remove_const_t<T>> read(const Memory& memory, const View<T, 1>& view) {
  std::vector<std::remove_const_t<T>> out(size_t(view.shape[0]));
  if (view.stride[0] == 1) {
    memory.copy(out.data(), view.data, int64_t(out.size() * sizeof(T)));
  } else {
    for (size_t i = 0; i < out.size(); ++i) memory.copy(&out[i], &view[int64_t(i)], int64_t(sizeof(T)));
  }
  return out;
}

int64_t sum(const std::vector<int32_t>& counts) {
  int64_t total = 0;
  for (const int32_t count : counts) total += count;
  return total;
}

}  // namespace

const char* name_of(Arithmetic arithmetic) {
  switch (arithmetic) {
    case Arithmetic::f32: return "f32";
    case Arithmetic::bf16: return "bf16";
    case Arithmetic::int8: return "int8";
  }
  return "";
}

const char* name_of(KernelBound::By by) {
  switch (by) {
    case KernelBound::By::memory: return "memory";
    case KernelBound::By::cache: return "cache";
    case KernelBound::By::compute: return "compute";
  }
  return "";
}

KernelBound bound_of(const KernelWork& work, const MachinePeaks& peaks) {
  const double peak = work.arithmetic == Arithmetic::int8   ? peaks.int8
                      : work.arithmetic == Arithmetic::bf16 ? peaks.bf16
                                                            : peaks.f32;
  // What the calls go over again and again lies in the caches as far as they reach, at best the nearest ones.
  double cache = 0, memory_bytes = 0;
  const auto read = [&](int64_t bytes, int64_t again) {
    const double footprint = double(std::max<int64_t>(again, 1));
    double left = footprint;
    const auto take = [&](int64_t size, double rate) {
      const double part = std::min(left, double(size));
      if (part <= 0) return;  // the machine has no such cache, or nothing is left
      cache += double(bytes) * part / footprint / rate;
      left -= part;
    };
    take(peaks.l1_bytes * peaks.threads, peaks.l1);
    take((peaks.l2_bytes - peaks.l1_bytes) * peaks.threads, peaks.l2);
    take(peaks.l3_bytes, peaks.l3);
    memory_bytes += double(bytes) * left / footprint;
  };
  read(work.cache_bytes, work.cache_footprint);
  if (work.memory_footprint > 0) {
    read(work.memory_bytes, work.memory_footprint);
  } else {
    memory_bytes += double(work.memory_bytes);
  }
  KernelBound bound{KernelBound::By::memory,
                    memory_bytes / (work.large_pages ? peaks.memory_large_pages : peaks.memory)};
  const auto at_least = [&](KernelBound::By by, double seconds) {
    if (seconds > bound.seconds) bound = {by, seconds};
  };
  at_least(KernelBound::By::cache, cache);
  at_least(KernelBound::By::compute, work.operations / peak);
  return bound;
}

KernelWork WorkReader::operator()(const Embed& op) const {
  KernelWork work = on_activations(0, op.ids, op.out);
  work.memory_bytes = bytes_of(op.table.dtype, op.ids.shape[0] * op.table.cols);
  return work;
}

KernelWork WorkReader::operator()(const GatherRows& op) const {
  return on_activations(0, op.index, op.out, op.out);  // read and written
}

KernelWork WorkReader::operator()(const AddRows& op) const {
  return on_activations(double(op.out.size()), op.a, op.b, op.out);
}

KernelWork WorkReader::operator()(const QuantizeRows& op) const {
  return on_activations(kRounding * double(op.x.rows * op.x.cols) + steps_of(op.turn, op.x.rows * op.heads), op.x,
                        op.codes, op.scales);
}

KernelWork WorkReader::operator()(const Linear& op) const {
  KernelWork work = on_activations(2.0 * double(op.x.rows() * op.weight.rows() * op.weight.cols()), op.x, op.out);
  work.memory_bytes = bytes_in(op.weight);
  work.arithmetic = arithmetic_of(op.x.dtype(), op.weight.dtype());
  return work;
}

KernelWork WorkReader::operator()(const GroupedLinear& op) const {
  if (op.weights.empty()) return {};
  const Matrix& first = op.weights[0];
  KernelWork work = on_activations(2.0 * double(op.out.rows * first.rows() * first.cols()), op.x, op.x_row, op.out);
  const auto begin = read(memory_, op.begin);
  for (size_t e = 0; e + 1 < begin.size(); ++e) {
    if (begin[e] < begin[e + 1]) work.memory_bytes += bytes_in(op.weights[e]);
  }
  work.arithmetic = arithmetic_of(op.x.dtype(), first.dtype());
  return work;
}

KernelWork WorkReader::operator()(const RmsNorm& op) const {
  return on_activations(kNorm * double(op.x.rows * op.x.cols) + steps_of(op.q8), op.x, op.weight, op.out, op.q8.codes,
                        op.q8.scales);
}

// Turned channels are read and written.
KernelWork WorkReader::operator()(const Rope& op) const {
  const int64_t turned = op.x.rows * op.heads * 2 * int64_t(op.frequencies.size());
  const int64_t bytes = 2 * bytes_of(op.x.dtype, turned);
  return {.cache_bytes = bytes, .cache_footprint = bytes, .operations = kTurn * double(turned)};
}

KernelWork WorkReader::operator()(const EncodeRows& op) const {
  const double steps = steps_of(op.norm, op.x.rows) + steps_of(op.turn, op.x.rows * op.heads);
  return on_activations(kRounding * double(op.x.rows * op.x.cols) + steps, op.x, op.norm.weight, op.out);
}

KernelWork WorkReader::operator()(const StoreRing& op) const { return on_activations(0, op.entries, op.entries); }
KernelWork WorkReader::operator()(const StorePaged& op) const { return on_activations(0, op.entries, op.entries); }

// Two products and a sum, beside the exponentials.
KernelWork WorkReader::operator()(const Compress& op) const {
  return on_activations(4.0 * double(op.out.rows * op.out.cols), op.projected, op.group_row, op.out);
}

// The rows of a sequence share one scan of its keys; candidates are each row's own.
KernelWork WorkReader::operator()(const SelectRows& op) const {
  KernelWork work = on_activations(0, op.queries, op.head_weights, op.entries, op.count);
  const auto positions = read(memory_, op.rows.positions);
  const auto begin = read(memory_, op.rows.begin);
  const bool inside = op.block_size > 0 && !op.candidate_source;
  const auto blocks = inside ? read(memory_, op.block_count) : std::vector<int32_t>();
  double scored = 0;
  int64_t keys = 0;
  for (size_t s = 0; s + 1 < begin.size(); ++s) {
    int64_t most = 0;
    for (int32_t r = begin[s]; r < begin[s + 1]; ++r) {
      const int64_t visible = (positions[size_t(r)] + 1) / op.ratio;
      const int64_t own = inside ? std::min(visible, int64_t(blocks[size_t(r)]) * op.block_size) : visible;
      scored += double(own);
      if (inside) keys += own;
      most = std::max(most, visible);
    }
    if (!inside) keys += most;
  }
  work.operations = 2.0 * scored * double(op.heads) * double(op.channels);
  work.memory_bytes = keys * row_bytes(op.format, op.channels);
  work.arithmetic = op.format == RowFormat::q4i ? Arithmetic::int8 : Arithmetic::f32;
  return work;
}

// A key is a product with the query and one with the weight, for each channel. Rows of a sequence that look at the same
// window read it once; entries are each row's own choice.
KernelWork WorkReader::operator()(const LatentAttention& op) const {
  KernelWork work = on_activations(0, op.queries, op.out, op.fresh);
  const auto from = read(memory_, op.window_begin), to = read(memory_, op.window_end);
  const auto begin = read(memory_, op.rows.begin), fresh_begin = read(memory_, op.fresh_rows.begin);
  const auto fresh_positions = read(memory_, op.fresh_rows.positions);
  const int64_t channels = op.queries.cols / op.heads;
  const int64_t chosen = op.entries.empty() ? 0 : sum(read(memory_, op.count));
  double keys = double(chosen);
  int64_t ring_rows = 0;
  for (size_t s = 0; s + 1 < begin.size(); ++s) {
    const int32_t first = fresh_begin[s];
    // Positions from here on are of this step.
    const int64_t ring_end = first < fresh_begin[s + 1] ? fresh_positions[size_t(first)] : INT64_MAX;
    int64_t low = INT64_MAX, high = 0;
    for (int32_t r = begin[s]; r < begin[s + 1]; ++r) {
      keys += double(to[size_t(r)] - from[size_t(r)]);
      low = std::min(low, from[size_t(r)]);
      high = std::max(high, std::min(to[size_t(r)], ring_end));
    }
    ring_rows += std::max<int64_t>(0, high - std::min(low, high));
  }
  work.operations = 4.0 * keys * double(op.heads) * double(channels);
  work.memory_bytes = ring_rows * op.ring.entry_bytes + chosen * op.latents.entry_bytes;
  work.arithmetic = op.queries.dtype == DType::bf16 ? Arithmetic::bf16 : Arithmetic::f32;
  return work;
}

KernelWork WorkReader::operator()(const Gate& op) const {
  KernelWork work =
      on_activations(2.0 * double(op.x.rows * op.weight.rows * op.weight.cols), op.x, op.experts, op.weights);
  work.memory_bytes = bytes_in(op.weight);
  work.arithmetic = arithmetic_of(op.x.dtype, op.weight.dtype);
  return work;
}

// Read: expert and weight; written: row, weight, place; and the beginnings.
KernelWork WorkReader::operator()(const GroupByExpert& op) const {
  return on_activations(0, op.experts, op.weights, op.begin, op.row, op.weight, op.place, op.number);
}

// Three products and a sum, beside the exponential.
KernelWork WorkReader::operator()(const SwiGlu& op) const {
  return on_activations(4.0 * double(op.gate.rows * op.gate.cols) + steps_of(op.q8), op.gate, op.up, op.out,
                        op.q8.codes, op.q8.scales);
}

KernelWork WorkReader::operator()(const Combine& op) const {
  return on_activations(double(op.routed.rows * op.routed.cols), op.routed, op.place, op.shared, op.out);
}

KernelWork WorkReader::operator()(const NgramHash& op) const {
  return on_activations(0, op.ids, op.history, op.out);  // integers, counted as nothing
}

KernelWork WorkReader::operator()(const EngramGather& op) const {
  KernelWork work = on_activations(0, op.index, op.codes, op.scales);
  work.memory_bytes = bytes_in(op.codes) + bytes_in(op.scales);
  return work;
}

// A stream: squares of both sides and their product with two weights summed, and the gated value added.
KernelWork WorkReader::operator()(const EngramMix& op) const {
  const double channels = double(op.streams.rows * op.streams.cols);
  return on_activations(channels * (2 + 2 + 4 + 2), op.streams, op.streams, op.key_value);
}

// The products, the sum of squares, and the rounds over a C x C matrix: a sum and a division each way.
KernelWork WorkReader::operator()(const StreamMixes& op) const {
  const double width = double(op.streams.cols), mixes = double(op.fn.rows);
  const double rounds = double(op.iterations) * 4 * double(op.comb.shape[1]);
  KernelWork work = on_activations(double(op.streams.rows) * (2 * mixes * width + 2 * width + rounds), op.streams,
                                   op.pre, op.post, op.comb);
  work.memory_bytes = bytes_in(op.fn);
  return work;
}

KernelWork WorkReader::operator()(const StreamCollapse& op) const {
  const double steps = steps_of(op.norm, op.streams.rows) + steps_of(op.q8);
  return on_activations(2.0 * double(op.streams.rows * op.streams.cols) + steps, op.streams, op.pre, op.norm.weight,
                        op.out, op.q8.codes, op.q8.scales);
}

// Streams that are collapsed at once need not be read again.
KernelWork WorkReader::operator()(const StreamSpread& op) const {
  const double streams = double(op.post.shape[1]), all = double(op.streams.rows * op.streams.cols);
  KernelWork work = on_activations(2 * all * (streams + 1) + double(op.routed.rows * op.routed.cols), op.y, op.post,
                                   op.comb, op.streams, op.streams, op.routed, op.place);
  if (op.next.pre.empty()) return work;
  StreamCollapse collapse = op.next;
  collapse.streams = op.streams;
  const KernelWork next = (*this)(collapse);
  work.operations += next.operations;
  work.cache_bytes += next.cache_bytes - bytes_in(op.streams);
  work.cache_footprint += next.cache_footprint - bytes_in(op.streams);
  return work;
}

KernelWork WorkReader::operator()(const StreamMean& op) const {
  return on_activations(double(op.streams.rows * op.streams.cols), op.streams, op.out);
}

KernelWork WorkReader::operator()(const Sample& op) const { return on_activations(0, op.logits, op.ids, op.laws); }
KernelWork WorkReader::operator()(const Accept& op) const { return on_activations(0, op.target_laws, op.draft_laws); }

}  // namespace fathom
