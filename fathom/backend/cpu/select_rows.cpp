// Scores of cached entries, and the choice of the best.
//   scores   heads side by side in lanes (key_tile.h): a score is the sum over heads, in rising order, of sums over
//   channels
//            in rising order. Keys are decoded once for up to eight rows of a sequence.
//   choice   scores become integers that sort as (falling score, rising entry), so the worst of the chosen is found
//   without
//            sorting; one more pass over the entries, in rising order, writes those that are not worse.
#include "fathom/backend/cpu/decoded_keys.h"
#include "fathom/backend/cpu/row_operations.h"
#include "fathom/backend/cpu/scratch.h"

namespace fathom::cpu {
namespace {

constexpr int64_t kRowBlock = 8;
constexpr int64_t kKeyBlock = 64;

struct Memory {
  Scratch queries, keys, scores, ranks, entries;
};
Memory& memory() {
  static thread_local Memory own;
  return own;
}
template <class Tiles>
DecodedKeys<Tiles>& decoded_keys() {
  static thread_local DecodedKeys<Tiles> own;
  return own;
}

// What a row may choose from and whether it has to look at it.
struct Row {
  int64_t visible = 0;
  int64_t choices = 0;
  bool inside = false;      // only entries of the candidate blocks
  bool everything = false;  // who takes all need not look
};

Row row_at(const SelectRows& op, int64_t r) {
  Row row;
  row.visible = (op.rows.positions[r] + 1) / op.ratio;
  row.inside = op.block_size > 0 && !op.candidate_source;
  row.choices = row.visible;
  if (row.inside) {
    row.choices = 0;
    for (int64_t b = 0; b < op.block_count[r]; ++b) {
      const int64_t first = int64_t(op.blocks(r, b)) * op.block_size;
      row.choices += std::max<int64_t>(0, std::min<int64_t>(op.block_size, row.visible - first));
    }
  }
  const bool all_blocks = !op.candidate_source || row.visible <= int64_t(op.top_blocks) * op.block_size;
  row.everything = row.choices <= op.top_k && all_blocks && op.scores.empty();
  return row;
}

// The candidate entries of a row, in rising order.
void list_candidates(const SelectRows& op, int64_t r, int64_t visible, int32_t* out) {
  for (int64_t b = 0; b < op.block_count[r]; ++b) {
    const int64_t first = int64_t(op.blocks(r, b)) * op.block_size;
    for (int64_t e = first; e < std::min(first + op.block_size, visible); ++e) *out++ = int32_t(e);
  }
}

// Smaller is better: falling score, then rising index. -inf and NaN are the worst there is.
constexpr uint64_t kNever = ~uint64_t(0);
[[gnu::always_inline]] inline uint64_t rank_of(float score, int64_t index) {
  const uint32_t bits = std::bit_cast<uint32_t>(score + 0.0f);  // -0 becomes +0
  const uint32_t rising = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return score > -INFINITY ? uint64_t(~rising) << 32 | uint64_t(uint32_t(index)) : kNever;
}

// Writes the indices of the `count` best of n values, in rising order and -1 behind them; `name` turns an index into
// what is written. Returns how many there are.
template <class Name>
[[gnu::always_inline]] inline int32_t write_best(const float* value, int64_t n, int64_t count, int32_t* out,
                                                 const Name& name) {
  constexpr int64_t kFew = 64;  // so many are counted against each other faster than they are parted
  uint64_t* const ranks = memory().ranks.get<uint64_t>(2 * n);
  uint64_t worst = kNever - 1;
  for (int64_t i = 0; i < n; ++i) ranks[i] = rank_of(value[i], i);
  if (n > count && n <= kFew) {
    for (int64_t i = 0; i < n; ++i) {
      int64_t better = 0;
      for (int64_t j = 0; j < n; ++j) better += ranks[j] < ranks[i];
      worst = better == count - 1 ? std::min(worst, ranks[i]) : worst;
    }
  } else if (n > count) {
    uint64_t* const parted = std::copy(ranks, ranks + n, ranks + n) - n;
    std::nth_element(parted, parted + count - 1, parted + n);
    worst = std::min(worst, parted[count - 1]);
  }
  int64_t written = 0;
  for (int64_t i = 0; i < n && written < count; ++i) {
    out[written] = name(i);
    written += ranks[i] <= worst;  // else the next one takes its place
  }
  std::fill(out + written, out + count, -1);
  return int32_t(written);
}

// A block is worth its best entry; the one with the newest visible entry always stays.
[[gnu::always_inline]] inline void choose_blocks(const SelectRows& op, int64_t r, int64_t visible,
                                                 const float* scores) {
  const int64_t n = (visible + op.block_size - 1) / op.block_size;
  float* worth = memory().entries.get<float>(n);
  for (int64_t b = 0; b < n; ++b) {
    const int64_t first = b * op.block_size, end = std::min(first + op.block_size, visible);
    float best = -INFINITY;
    for (int64_t e = first; e < end; ++e) best = std::max(best, scores[e]);
    worth[b] = best;
  }
  if (n > 0) worth[n - 1] = INFINITY;
  op.block_count[r] =
      write_best(worth, n, op.top_blocks, op.blocks.row(r).data(), [](int64_t i) { return int32_t(i); });
}

// Queries of row r as [groups of 8 heads][channels][8], weights as [groups][8].
template <class Tiles>
[[gnu::always_inline]] inline void decode_query(const SelectRows& op, int64_t r, float* query, float* weights) {
  const int64_t bytes = row_bytes(op.format, op.channels), groups = (op.heads + kHeads - 1) / kHeads;
  const uint8_t* in = op.queries.data + r * op.queries.stride[0];
  std::fill(weights, weights + groups * kHeads, 0.0f);
  const int64_t row = op.heads * op.channels;
  float* decoded = memory().ranks.get<float>(Tiles::key_elements(row));
  for (int64_t h = 0; h < op.heads; ++h) {
    decode_key<Avx2Tiles>(op.format, in + h * bytes, op.channels, decoded + h * op.channels);
    const float weight = op.head_weights.dtype == DType::bf16 ? number(row_of<uint16_t>(op.head_weights, r), h)
                                                              : number(row_of<float>(op.head_weights, r), h);
    weights[h] = weight * op.weight_scale;
  }
  int64_t width = op.channels;  // of a head in floats
  if constexpr (Tiles::kPairs) {
    Tiles::pairs_of(decoded, row, decoded + row);
    decoded += row;
    width /= 2;
  }
  for (int64_t group = 0; group < groups; ++group) {
    Tiles::transpose_heads(decoded, op.heads, width, group * kHeads, query + group * op.channels * kHeads);
  }
}

// scores[k] of 8 decoded keys.
template <class Tiles>
[[gnu::always_inline]] inline void score_tile(const SelectRows& op, const float* const* keys, const float* query,
                                              const float* weights, float* scores) {
  float sum[kKeys] = {}, dots[kKeys * kHeads], by_head[kHeads * kKeys];
  for (int64_t group = 0; group < (op.heads + kHeads - 1) / kHeads; ++group) {
    Tiles::multiply(keys, query + group * op.channels * kHeads, op.channels, dots);
    Tiles::transpose_heads(dots, kKeys, kHeads, 0, by_head);
    const float* weight = weights + group * kHeads;
    for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 1
      for (int k = 0; k < kKeys; ++k) sum[k] = std::fma(weight[h], std::max(by_head[h * kKeys + k], 0.0f), sum[k]);
    }
  }
  for (int k = 0; k < kKeys; ++k) scores[k] = sum[k];
}

// Rows [first, first + count) of one sequence that look at all their visible entries. scores [count][stride].
template <class Tiles>
[[gnu::always_inline]] inline void score_visible(const SelectRows& op, int64_t first, int64_t count, const Row* rows,
                                                 float* scores, int64_t stride) {
  const int64_t groups = (op.heads + kHeads - 1) / kHeads, per_query = groups * (op.channels + 1) * kHeads;
  float* queries = memory().queries.get<float>(count * per_query);
  const int64_t stride_of_key = Tiles::key_elements(op.channels);
  float* keys = memory().keys.get<float>(kKeyBlock * stride_of_key);
  const float* key[kKeyBlock];
  for (int64_t k = 0; k < kKeyBlock; ++k) key[k] = keys + k * stride_of_key;
  int64_t most = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (rows[i].everything) continue;
    most = std::max(most, rows[i].visible);
    float* query = queries + i * per_query;
    decode_query<Tiles>(op, first + i, query, query + groups * op.channels * kHeads);
  }
  const int64_t sequence = op.rows.sequence[first];
  for (int64_t begin = 0; begin < most; begin += kKeyBlock) {
    const int64_t n = std::min(kKeyBlock, most - begin), padded = (n + kKeys - 1) / kKeys * kKeys;
    for (int64_t k = 0; k < n; ++k) {
      decode_key<Tiles>(op.format, op.keys.entry(sequence, begin + k), op.channels, keys + k * stride_of_key);
    }
    std::fill(keys + n * stride_of_key, keys + padded * stride_of_key, 0.0f);
    for (int64_t i = 0; i < count; ++i) {
      if (rows[i].everything) continue;
      const float* query = queries + i * per_query;
      for (int64_t k = 0; k < n && begin + k < rows[i].visible; k += kKeys) {
        score_tile<Tiles>(op, key + k, query, query + groups * op.channels * kHeads, scores + i * stride + begin + k);
      }
    }
  }
}

// Row r's candidate entries. scores [choices, rounded up to 8].
template <class Tiles>
[[gnu::always_inline]] inline void score_candidates(const SelectRows& op, int64_t r, int64_t choices,
                                                    const int32_t* entries, float* scores) {
  const int64_t groups = (op.heads + kHeads - 1) / kHeads;
  float* query = memory().queries.get<float>(groups * (op.channels + 1) * kHeads);
  DecodedKeys<Tiles>& decoded = decoded_keys<Tiles>();
  decode_query<Tiles>(op, r, query, query + groups * op.channels * kHeads);
  for (int64_t begin = 0; begin < choices; begin += kKeys) {
    const float* keys[kKeys];
    const int64_t n = std::min<int64_t>(kKeys, choices - begin);
    for (int64_t k = 0; k < n; ++k) {
      const int64_t e = entries[begin + k];
      keys[k] = decoded.find(1, e, op.format, [&] { return op.keys.entry(op.rows.sequence[r], e); });
      if (keys[k] == nullptr) {  // no room: the tile from its beginning, there is always room for one
        decoded.forget();
        k = -1;
      }
    }
    for (int64_t k = n; k < kKeys; ++k) keys[k] = keys[0];  // the last tile is a whole one
    score_tile<Tiles>(op, keys, query, query + groups * op.channels * kHeads, scores + begin);
  }
}

void publish_scores(const SelectRows& op, int64_t r, int64_t choices, const int32_t* entries, const float* scores) {
  if (op.scores.empty()) return;
  const auto out = op.scores.row(r);
  std::fill(out.begin(), out.end(), -1e30f);
  for (int64_t i = 0; i < choices; ++i) out[size_t(entries ? entries[i] : i)] = scores[i];
}

template <class Tiles>
[[gnu::always_inline]] inline void row_inside_candidates(const SelectRows& op, int64_t r, const Row& row) {
  int32_t* entries = memory().entries.get<int32_t>(row.choices);
  float* scores = memory().scores.get<float>(row.choices + kKeys);
  list_candidates(op, r, row.visible, entries);
  if (row.everything) {
    std::fill(scores, scores + row.choices, 0.0f);
  } else {
    score_candidates<Tiles>(op, r, row.choices, entries, scores);
  }
  op.count[r] =
      write_best(scores, row.choices, op.top_k, op.entries.row(r).data(), [entries](int64_t i) { return entries[i]; });
  publish_scores(op, r, row.choices, entries, scores);
}

// The rows from `first` that are of its sequence; returns one past the last. They share decoded keys.
template <class Tiles>
[[gnu::always_inline]] inline int64_t rows_inside_candidates(const SelectRows& op, int64_t first, int64_t end) {
  int64_t stop = first;
  while (stop < end && op.rows.sequence[stop] == op.rows.sequence[first]) ++stop;
  decoded_keys<Tiles>().begin(op.channels, kKeys, stop - first, 0);
  for (int64_t r = first; r < stop; ++r) row_inside_candidates<Tiles>(op, r, row_at(op, r));
  return stop;
}

template <class Tiles>
[[gnu::always_inline]] inline void rows_over_all(const SelectRows& op, int64_t first, int64_t count, const Row* rows) {
  int64_t stride = 0;
  for (int64_t i = 0; i < count; ++i) stride = std::max(stride, rows[i].visible + kKeys);
  float* scores = memory().scores.get<float>(count * stride);
  score_visible<Tiles>(op, first, count, rows, scores, stride);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t r = first + i, visible = rows[i].visible;
    float* own = scores + i * stride;
    if (rows[i].everything) std::fill(own, own + visible, 0.0f);
    if (op.candidate_source) choose_blocks(op, r, visible, own);
    op.count[r] = write_best(own, visible, op.top_k, op.entries.row(r).data(), [](int64_t e) { return int32_t(e); });
    publish_scores(op, r, visible, nullptr, own);
  }
}

template <class Tiles>
[[gnu::always_inline]] inline void piece(const SelectRows& op, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end;) {
    Row rows[kRowBlock];
    rows[0] = row_at(op, r);
    if (rows[0].inside) {
      r = rows_inside_candidates<Tiles>(op, r, end);
      continue;
    }
    int64_t count = 1;
    while (count < kRowBlock && r + count < end && op.rows.sequence[r + count] == op.rows.sequence[r]) {
      rows[count] = row_at(op, r + count);
      ++count;
    }
    rows_over_all<Tiles>(op, r, count, rows);
    r += count;
  }
}

[[gnu::target("avx2,fma")]] void piece_avx2(const SelectRows& op, int64_t b, int64_t e) { piece<Avx2Tiles>(op, b, e); }
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]] void piece_avx512(const SelectRows& op, int64_t b, int64_t e) {
  piece<Avx512Tiles>(op, b, e);
}
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]] void piece_avx512_bf16(const SelectRows& op, int64_t b,
                                                                                        int64_t e) {
  fits_pairs(op.format, op.channels) ? piece<Avx512Bf16Tiles>(op, b, e) : piece<Avx512Tiles>(op, b, e);
}

template <auto piece>
void run(Queue& queue, const SelectRows& op) {
  const int64_t rows = op.rows.rows();
  if (rows == 0) return;
  const Row last = row_at(op, rows - 1);
  const int64_t row_ns = last.everything ? 50 + last.choices : 100 + last.choices * (8 + op.heads * op.channels / 24);
  for_row_pieces(queue, rows, row_ns, [&](int64_t b, int64_t e) { piece(op, b, e); });
}

}  // namespace

const Variants<SelectRows> kSelectRows{run<piece_avx2>, run<piece_avx512>, run<piece_avx512_bf16>};

}  // namespace fathom::cpu
