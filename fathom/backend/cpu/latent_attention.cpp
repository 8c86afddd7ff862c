// Attention over window rows and selected entries. A row of the batch decodes its keys once (they are its values too),
// then takes its heads in groups of eight that lie side by side in vector lanes:
//   logits [keys][8]   each a sum over channels in rising order                                          (key_tile.h)
//   softmax            down the keys, all eight heads at once; the sink is in the denominator only
//   out [8][channels]  each a sum over keys in rising order, 16 channels at a time
// No sum crosses lanes and none is split, so a row has the same bits in any batch and on any thread.
#include "fathom/backend/cpu/key_tile.h"
#include "fathom/backend/cpu/row_operations.h"
#include "fathom/backend/cpu/scratch.h"

namespace fathom::cpu {
namespace {

// The entry of a window position: computed by this step, or kept in the ring.
inline const uint8_t* window_entry(const LatentAttention& op, int64_t sequence, int64_t position) {
  const int64_t begin = op.fresh_rows.begin[sequence];
  if (begin < op.fresh_rows.begin[sequence + 1]) {
    const int64_t ahead = position - op.fresh_rows.positions[begin];
    if (ahead >= 0) return op.fresh.data + (begin + ahead) * op.fresh.stride[0];
  }
  return op.ring.entry(sequence, position);
}

// Decodes row r's keys, window first; returns their number. Zeros fill the last tile.
template <class Tiles>
[[gnu::always_inline]] inline int64_t decode_keys(const LatentAttention& op, int64_t r, int64_t channels, float* keys) {
  const int64_t sequence = op.rows.sequence[r];
  int64_t n = 0;
  for (int64_t p = op.window_begin[r]; p < op.window_end[r]; ++p) {
    decode_key<Tiles>(op.window_format, window_entry(op, sequence, p), channels, keys + n++ * channels);
  }
  const int64_t entries = op.entries.empty() ? 0 : op.count[r];
  for (int64_t i = 0; i < entries; ++i) {
    decode_key<Tiles>(op.entry_format, op.latents.entry(sequence, op.entries(r, i)), channels, keys + n++ * channels);
  }
  const int64_t padded = (n + kKeys - 1) / kKeys * kKeys;
  for (int64_t i = n * channels; i < padded * channels; ++i) keys[i] = 0;
  return n;
}

// Logits [n][8] become weights; their sum and the sink's share go to `total`.
[[gnu::always_inline]] inline void softmax(float* logits, int64_t n, const float* sink, float scale, float* total) {
  float best[kHeads];
#pragma GCC unroll 1
  for (int h = 0; h < kHeads; ++h) best[h] = sink[h];
  for (int64_t k = 0; k < n; ++k) {
#pragma GCC unroll 1
    for (int h = 0; h < kHeads; ++h) best[h] = std::max(best[h], logits[k * kHeads + h] * scale);
  }
#pragma GCC unroll 1
  for (int h = 0; h < kHeads; ++h) total[h] = exp_of(sink[h] - best[h]);
  for (int64_t k = 0; k < n; ++k) {
#pragma GCC unroll 1
    for (int h = 0; h < kHeads; ++h) {
      const float p = exp_of(logits[k * kHeads + h] * scale - best[h]);
      logits[k * kHeads + h] = p;
      total[h] += p;
    }
  }
}

template <class T, class Tiles>
[[gnu::always_inline]] inline void rows(const LatentAttention& op, int64_t begin, int64_t end) {
  constexpr int Channels = Tiles::kChannels;
  static thread_local Scratch scratch;
  const int64_t channels = op.queries.cols / op.heads;
  int64_t most = 0;
  for (int64_t r = begin; r < end; ++r) {
    most = std::max(most, op.window_end[r] - op.window_begin[r] + (op.entries.empty() ? 0 : op.count[r]));
  }
  most = (most + kKeys - 1) / kKeys * kKeys;
  float* keys = scratch.get<float>(most * (channels + kHeads) + channels * kHeads);
  float* logits = keys + most * channels;
  float* query = logits + most * kHeads;
  for (int64_t r = begin; r < end; ++r) {
    const int64_t n = decode_keys<Tiles>(op, r, channels, keys);
    const T* q = row_of<T>(op.queries, r);
    T* out = row_of<T>(op.out, r);
    for (int64_t first = 0; first < op.heads; first += kHeads) {
      const int64_t heads = std::min<int64_t>(kHeads, op.heads - first);
      transpose_heads(q, op.heads, channels, first, query);
      for (int64_t k = 0; k < n; k += kKeys) Tiles::multiply(keys + k * channels, query, channels, logits + k * kHeads);
      float sink[kHeads] = {}, total[kHeads], part[kHeads * Channels];
      for (int64_t h = 0; h < heads; ++h) sink[h] = op.sink[first + h];
      softmax(logits, n, sink, op.scale, total);
      for (int64_t c = 0; c < channels; c += Channels) {
        Tiles::weigh(keys + c, n, channels, logits, part);
        for (int64_t h = 0; h < heads; ++h) {
          const float share = n == 0 ? 0 : 1 / total[h];
          for (int i = 0; i < Channels; ++i) put(out + (first + h) * channels + c, i, part[h * Channels + i] * share);
        }
      }
    }
  }
}

[[gnu::target("avx2,fma")]] void piece_avx2(const LatentAttention& op, int64_t b, int64_t e) {
  op.queries.dtype == DType::bf16 ? rows<uint16_t, Avx2Tiles>(op, b, e) : rows<float, Avx2Tiles>(op, b, e);
}
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]] void piece_avx512(const LatentAttention& op, int64_t b,
                                                                        int64_t e) {
  op.queries.dtype == DType::bf16 ? rows<uint16_t, Avx512Tiles>(op, b, e) : rows<float, Avx512Tiles>(op, b, e);
}

template <auto piece>
void run(Queue& queue, const LatentAttention& op) {
  const int64_t rows = op.rows.rows();
  if (rows == 0) return;
  // About 16 multiplications a nanosecond; the last row has as many keys as any.
  const int64_t keys =
      op.window_end[rows - 1] - op.window_begin[rows - 1] + (op.entries.empty() ? 0 : op.count[rows - 1]);
  for_row_pieces(queue, rows, 100 + keys * op.queries.cols / 8, [&](int64_t b, int64_t e) { piece(op, b, e); });
}

}  // namespace

const Variants<LatentAttention> kLatentAttention{run<piece_avx2>, run<piece_avx512>};

}  // namespace fathom::cpu
