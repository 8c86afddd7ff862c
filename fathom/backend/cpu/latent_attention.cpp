// Attention over window rows and selected entries. Keys (they are the values too) are decoded once for neighbouring
// rows of a sequence (decoded_keys.h); a row takes its heads in groups of eight:
//   logits   of a tile of keys with the heads of a group                                    (key_tile.h, pair_tile.h)
//   softmax  down the keys, all eight heads at once; the sink is in the denominator only
//   outputs  each a sum over keys in rising order, a few channels at a time
// A sum does not depend on the batch, nor on who computes the other heads, so a row has the same bits always.
//
// What bounds it: V4.1 Flash has 64 heads of 512 channels; with 640 keys that is 84 MFLOP a row and 216 KB of cache,
// 390 FLOP a byte: arithmetic, which is why the products are those of bf16 pairs where the processor has them. Decoding
// costs 2 % of it, so each thread that takes some of a row's heads decodes the keys anew.
#include "fathom/backend/cpu/attention_keys.h"
#include "fathom/backend/cpu/pair_tile.h"
#include "fathom/backend/cpu/row_operations.h"
#include "fathom/backend/cpu/scratch.h"

namespace fathom::cpu {
namespace {

// Rows [begin, end), heads [first_head, end_head): a multiple of a group, or to the last one.
struct Part {
  int64_t begin, end, first_head, end_head;
};

template <class Tiles>
struct Memory {
  DecodedKeys<Tiles> decoded;
  Scratch keys, numbers;
};

// ------------------------------------------------------------------------------------------ products of floats
template <class T, class Tiles>
[[gnu::always_inline]] inline void attend(const LatentAttention& op, const Part& part, int64_t r,
                                          const float* const* keys, int64_t n, Scratch& memory) {
  constexpr int Channels = Tiles::kChannels;
  const int64_t channels = op.queries.cols / op.heads;
  float* const logits = memory.get<float>((n + 2 * kKeys + channels) * kHeads);
  float* const query = logits + (n + kKeys) / kKeys * kKeys * kHeads;
  const T* q = row_of<T>(op.queries, r);
  T* out = row_of<T>(op.out, r);
  for (int64_t first = part.first_head; first < part.end_head; first += kHeads) {
    const int64_t heads = std::min<int64_t>(kHeads, part.end_head - first);
    Tiles::transpose_heads(q, op.heads, channels, first, query);
    for (int64_t k = 0; k < n; k += kKeys) Tiles::multiply(keys + k, query, channels, logits + k * kHeads);
    float sink[kHeads] = {}, share[kHeads], sums[kHeads * Channels];
    for (int64_t h = 0; h < heads; ++h) sink[h] = op.sink[first + h];
    Tiles::softmax(logits, n, sink, op.scale, share);
    for (int64_t c = 0; c < channels; c += Channels) {
      Tiles::weigh(keys, n, c, logits, share, sums);
      for (int64_t h = 0; h < heads; ++h) {
        T* to = out + (first + h) * channels + c;
#pragma GCC unroll 1
        for (int i = 0; i < Channels; ++i) put(to, i, sums[h * Channels + i]);
      }
    }
  }
}

template <class T>
void write_zeros(const LatentAttention& op, const Part& part, int64_t r) {
  const int64_t channels = op.queries.cols / op.heads;
  T* out = row_of<T>(op.out, r);
  std::fill(out + part.first_head * channels, out + part.end_head * channels, T(0));
}

template <class T, class Tiles>
[[gnu::always_inline]] inline void rows(const LatentAttention& op, const Part& part) {
  static thread_local Memory<Tiles> memory;
  for_rows_with_keys<Tiles>(op, part.begin, part.end, memory.decoded, memory.keys,
                            [&](int64_t r, const float* const* keys, int64_t n) {
                              if (n == 0) return write_zeros<T>(op, part, r);
                              attend<T, Tiles>(op, part, r, keys, n, memory.numbers);
                            });
}

[[gnu::target("avx2,fma")]] void part_avx2(const LatentAttention& op, const Part& part) {
  op.queries.dtype == DType::bf16 ? rows<uint16_t, Avx2Tiles>(op, part) : rows<float, Avx2Tiles>(op, part);
}
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]] void part_avx512(const LatentAttention& op, const Part& part) {
  op.queries.dtype == DType::bf16 ? rows<uint16_t, Avx512Tiles>(op, part) : rows<float, Avx512Tiles>(op, part);
}

// ------------------------------------------------------------------------------------- products of bf16 pairs
// Keys whose values stay in the first-level cache while all heads meet them.
constexpr int64_t kKeyBlock = 256;

// Weights [groups][keys / 2][8] and their shares from the logits of two groups at a time.
void weights_of_heads(const LatentAttention& op, const Part& part, int64_t r, const uint16_t* const* keys, int64_t n,
                      int64_t padded, float* logits, uint16_t* query, uint16_t* weights, float* shares) {
  constexpr int kGroup = PairTiles::kHeads;
  const int64_t channels = op.queries.cols / op.heads;
  const uint16_t* q = row_of<uint16_t>(op.queries, r);
  for (int64_t first = part.first_head; first < part.end_head; first += 2 * kGroup) {
    const int groups = part.end_head - first > kGroup ? 2 : 1;
    for (int g = 0; g < groups; ++g) {
      PairTiles::transpose_heads(q, op.heads, channels, first + g * kGroup, query + g * channels * kGroup);
    }
    const auto multiply = groups == 2 ? PairTiles::multiply<2> : PairTiles::multiply<1>;
    for (int64_t k = 0; k < n; k += PairTiles::kKeys) {
      multiply(keys + k, query, channels * kGroup, channels, logits + k * kGroup, padded * kGroup);
    }
    for (int g = 0; g < groups; ++g) {
      const int64_t head = first + g * kGroup;
      float sink[kGroup] = {};
      for (int64_t h = head; h < std::min<int64_t>(head + kGroup, op.heads); ++h) sink[h - head] = op.sink[h];
      PairTiles::softmax(logits + g * padded * kGroup, n, sink, op.scale, weights + (head - part.first_head) * padded,
                         shares + (head - part.first_head));
    }
  }
}

void outputs_of_heads(const LatentAttention& op, const Part& part, int64_t r, const uint16_t* const* keys, int64_t n,
                      int64_t padded, const uint16_t* weights, const float* shares, float* sums) {
  constexpr int kGroup = PairTiles::kHeads, kWidth = PairTiles::kWidth;
  const int64_t channels = op.queries.cols / op.heads;
  for (int64_t begin = 0; begin < n; begin += kKeyBlock) {
    const int64_t count = std::min(kKeyBlock, n - begin);
    for (int64_t c = 0; c < channels; c += kWidth) {
      for (int64_t head = part.first_head; head < part.end_head; head += kGroup) {
        const int64_t h = head - part.first_head;
        uint16_t* out = begin + count == n ? row_of<uint16_t>(op.out, r) + head * channels : nullptr;
        PairTiles::outputs(keys + begin, count, c, weights + h * padded + begin * kGroup, begin == 0,
                           sums + h * channels + c * kGroup, shares + h, part.end_head - head, out, channels);
      }
    }
  }
}

void part_avx512_bf16(const LatentAttention& op, const Part& part) {
  const int64_t channels = op.queries.cols / op.heads, heads = (part.end_head - part.first_head + 7) / 8 * 8;
  const bool entries_fit = op.entries.empty() || PairTiles::fits(op.entry_format, channels);
  if (op.queries.dtype != DType::bf16 || !entries_fit || !PairTiles::fits(op.window_format, channels)) {
    return part_avx512(op, part);
  }
  static thread_local Memory<PairTiles> memory;
  for_rows_with_keys<PairTiles>(
      op, part.begin, part.end, memory.decoded, memory.keys, [&](int64_t r, const uint16_t* const* keys, int64_t n) {
        if (n == 0) return write_zeros<uint16_t>(op, part, r);
        const int64_t padded = (n + PairTiles::kKeys) / PairTiles::kKeys * PairTiles::kKeys;
        // Floats: logits of two groups, sums and shares of all; behind them bf16: queries of two groups, weights.
        float* logits = memory.numbers.get<float>(2 * padded * kHeads + heads * (channels + 1) + channels * kHeads +
                                                  heads * padded / 2);
        float* sums = logits + 2 * padded * kHeads;
        float* shares = sums + heads * channels;
        uint16_t* query = reinterpret_cast<uint16_t*>(shares + heads);
        uint16_t* weights = query + 2 * channels * kHeads;
        weights_of_heads(op, part, r, keys, n, padded, logits, query, weights, shares);
        outputs_of_heads(op, part, r, keys, n, padded, weights, shares, sums);
      });
}

// ------------------------------------------------------------------------------------------------------- threads
// Pieces of rows; where rows are few, of the groups of their heads too.
template <auto part>
void run(Queue& queue, const LatentAttention& op) {
  const int64_t rows = op.rows.rows(), threads = queue.pool.threads();
  if (rows == 0) return;
  const int64_t groups = (op.heads + kHeads - 1) / kHeads, parts = rows < 4 * threads ? std::min(groups, threads) : 1;
  // About 40 multiplications a nanosecond; the last row has as many keys as any.
  const int64_t row_ns = 300 + keys_of_row(op, rows - 1) * op.queries.cols / 20;
  for_row_pieces(queue, parts * rows, row_ns / parts, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end;) {
      const int64_t p = i / rows, stop = std::min(end, (p + 1) * rows);
      part(op, {i - p * rows, stop - p * rows, groups * p / parts * kHeads,
                std::min<int64_t>(op.heads, groups * (p + 1) / parts * kHeads)});
      i = stop;
    }
  });
}

}  // namespace

const Variants<LatentAttention> kLatentAttention{run<part_avx2>, run<part_avx512>, run<part_avx512_bf16>};

}  // namespace fathom::cpu
