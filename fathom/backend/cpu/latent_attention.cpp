// Attention over window rows and selected entries. Keys (they are the values too) are decoded once for neighbouring
// rows of a sequence (decoded_keys.h); a row takes its heads in groups of eight that lie side by side in vector lanes:
//   logits [keys][8]   each a sum over channels in rising order                                          (key_tile.h)
//   softmax            down the keys, all eight heads at once; the sink is in the denominator only
//   out [8][channels]  each a sum over keys in rising order, 16 channels at a time
// No sum crosses lanes and none is split, so a row has the same bits in any batch and on any thread.
#include "fathom/backend/cpu/decoded_keys.h"
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

int64_t keys_of_row(const LatentAttention& op, int64_t r) {
  return op.window_end[r] - op.window_begin[r] + (op.entries.empty() ? 0 : op.count[r]);
}

// Finds or decodes row r's keys, window first; returns their number, or -1 when there is no room for them.
template <class Tiles>
[[gnu::always_inline]] inline int64_t collect_keys(const LatentAttention& op, int64_t r, DecodedKeys& decoded,
                                                   const float** keys) {
  const int64_t sequence = op.rows.sequence[r];
  int64_t n = 0;
  for (int64_t p = op.window_begin[r]; p < op.window_end[r]; ++p) {
    const float* key = decoded.find<Tiles>(0, p, op.window_format, [&] { return window_entry(op, sequence, p); });
    if (key == nullptr) return -1;
    keys[n++] = key;
  }
  const int64_t entries = op.entries.empty() ? 0 : op.count[r];
  for (int64_t i = 0; i < entries; ++i) {
    const int64_t e = op.entries(r, i);
    const float* key = decoded.find<Tiles>(1, e, op.entry_format, [&] { return op.latents.entry(sequence, e); });
    if (key == nullptr) return -1;
    keys[n++] = key;
  }
  return n;
}

struct Memory {
  DecodedKeys decoded;
  Scratch keys, numbers;
};

template <class T, class Tiles>
[[gnu::always_inline]] inline void attend(const LatentAttention& op, int64_t r, const float** keys, int64_t n,
                                          float* logits, float* query) {
  constexpr int Channels = Tiles::kChannels;
  const int64_t channels = op.queries.cols / op.heads;
  const T* q = row_of<T>(op.queries, r);
  T* out = row_of<T>(op.out, r);
  if (n == 0) return std::fill(out, out + op.queries.cols, T(0));
  for (int64_t k = n; k % kKeys != 0; ++k) keys[k] = keys[0];  // the last tile is a whole one
  for (int64_t first = 0; first < op.heads; first += kHeads) {
    const int64_t heads = std::min<int64_t>(kHeads, op.heads - first);
    if constexpr (Tiles::kPairs) {  // pairs stay together
      Tiles::transpose_heads(reinterpret_cast<const float*>(q), op.heads, channels / 2, first, query);
    } else {
      Tiles::transpose_heads(q, op.heads, channels, first, query);
    }
    for (int64_t k = 0; k < n; k += kKeys) Tiles::multiply(keys + k, query, channels, logits + k * kHeads);
    float sink[kHeads] = {}, share[kHeads], part[kHeads * Channels];
    for (int64_t h = 0; h < heads; ++h) sink[h] = op.sink[first + h];
    Tiles::softmax(logits, n, sink, op.scale, share);
    for (int64_t c = 0; c < channels; c += Channels) {
      Tiles::weigh(keys, n, c, logits, share, part);
      for (int64_t h = 0; h < heads; ++h) {
        T* to = out + (first + h) * channels + c;
#pragma GCC unroll 1
        for (int i = 0; i < Channels; ++i) put(to, i, part[h * Channels + i]);
      }
    }
  }
}

template <class T, class Tiles>
[[gnu::always_inline]] inline void rows(const LatentAttention& op, int64_t begin, int64_t end) {
  static thread_local Memory memory;
  const int64_t channels = op.queries.cols / op.heads;
  for (int64_t r = begin; r < end;) {
    int64_t stop = r, most = 0, origin = op.window_begin[r];
    for (; stop < end && op.rows.sequence[stop] == op.rows.sequence[r]; ++stop) {
      most = std::max(most, keys_of_row(op, stop));
      origin = std::min(origin, op.window_begin[stop]);
    }
    const int64_t padded = (most + kKeys - 1) / kKeys * kKeys;
    const float** keys = memory.keys.get<const float*>(padded + kKeys);
    float* logits = memory.numbers.get<float>((padded + channels) * kHeads);
    float* query = logits + padded * kHeads;
    memory.decoded.begin<Tiles>(channels, most, stop - r, origin);
    for (; r < stop; ++r) {
      int64_t n = collect_keys<Tiles>(op, r, memory.decoded, keys);
      if (n < 0) {
        memory.decoded.forget();
        n = collect_keys<Tiles>(op, r, memory.decoded, keys);
      }
      attend<T, Tiles>(op, r, keys, n, logits, query);
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
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]] void piece_avx512_bf16(const LatentAttention& op,
                                                                                        int64_t b, int64_t e) {
  const int64_t channels = op.queries.cols / op.heads;
  const bool entries_fit = op.entries.empty() || fits_pairs(op.entry_format, channels);
  if (op.queries.dtype != DType::bf16 || !entries_fit || !fits_pairs(op.window_format, channels)) {
    return piece_avx512(op, b, e);
  }
  rows<uint16_t, Avx512Bf16Tiles>(op, b, e);
}

template <auto piece>
void run(Queue& queue, const LatentAttention& op) {
  const int64_t rows = op.rows.rows();
  if (rows == 0) return;
  // About 16 multiplications a nanosecond; the last row has as many keys as any.
  for_row_pieces(queue, rows, 100 + keys_of_row(op, rows - 1) * op.queries.cols / 8,
                 [&](int64_t b, int64_t e) { piece(op, b, e); });
}

}  // namespace

const Variants<LatentAttention> kLatentAttention{run<piece_avx2>, run<piece_avx512>, run<piece_avx512_bf16>};

}  // namespace fathom::cpu
