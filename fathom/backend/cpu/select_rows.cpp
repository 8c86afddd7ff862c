// Scores of cached entries, and the choice of the best.
//   scores   a tile of keys is decoded once for up to eight rows of a sequence. With AVX512-VNNI and FP4 the products
//            are integers (index_tile.h); else floats, heads side by side in lanes (key_tile.h): a score is the sum
//            over heads, in rising order, of sums over channels in rising order
//   choice   best_of.h
// Rows are shared among threads; where they are few and see many entries, their entries are.
#include "fathom/backend/cpu/attention_keys.h"
#include "fathom/backend/cpu/best_of.h"
#include "fathom/backend/cpu/index_tile.h"
#include "fathom/backend/cpu/row_operations.h"
#include "fathom/backend/cpu/scratch.h"
#include "fathom/backend/element.h"

namespace fathom::cpu {
namespace {

constexpr int64_t kRowBlock = 8;
constexpr int64_t kKeyBlock = 64;  // so many decoded keys stay in the first-level cache

struct Memory {
  Scratch queries, keys, scores, entries, worth;
};
Memory& memory() {
  static thread_local Memory own;
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

// ------------------------------------------------------------------------------------------------- scores in floats
// Sixteen keys in two tiles of eight.
template <class Tiles>
struct FloatIndex {
  static constexpr int kTile = 16;
  static constexpr bool kWide = Tiles::kChannels == 16;
  static constexpr auto best_of = kWide ? best_of_avx512 : best_of_avx2;
  static constexpr auto best_of_blocks = kWide ? best_of_blocks_avx512 : best_of_blocks_avx2;
  static int64_t cost_ns(const SelectRows& op) { return 8 + op.heads * op.channels / 24; }
  static int64_t tile_floats(const SelectRows& op) { return kTile * op.channels; }
  static int64_t query_floats(const SelectRows& op) {
    return (op.heads + kHeads - 1) / kHeads * kHeads * (op.channels + 1);
  }

  // As [groups of 8 heads][channels][8], then weights as [groups][8].
  [[gnu::always_inline]] static inline void prepare(const SelectRows& op, int64_t r, float* query) {
    const int64_t bytes = row_bytes(op.format, op.channels), groups = (op.heads + kHeads - 1) / kHeads;
    const uint8_t* in = op.queries.data + r * op.queries.stride[0];
    float* const weights = query + groups * kHeads * op.channels;
    std::fill(weights, weights + groups * kHeads, 0.0f);
    static thread_local Scratch scratch;
    float* decoded = scratch.get<float>(op.heads * op.channels);
    for (int64_t h = 0; h < op.heads; ++h) {
      decode_key<Tiles>(op.format, in + h * bytes, op.channels, decoded + h * op.channels);
      weights[h] = load(op.head_weights.dtype, op.head_weights.row(r), h) * op.weight_scale;
    }
    for (int64_t group = 0; group < groups; ++group) {
      Tiles::transpose_heads(decoded, op.heads, op.channels, group * kHeads, query + group * op.channels * kHeads);
    }
  }

  [[gnu::always_inline]] static inline void decode(const SelectRows& op, const uint8_t* const* places, float* tile) {
    for (int k = 0; k < kTile; ++k) decode_key<Tiles>(op.format, places[k], op.channels, tile + k * op.channels);
  }

  [[gnu::always_inline]] static inline void score(const SelectRows& op, const float* query, const float* tile,
                                                  float* scores) {
    const int64_t groups = (op.heads + kHeads - 1) / kHeads;
    const float* const weights = query + groups * kHeads * op.channels;
    for (int first = 0; first < kTile; first += kKeys) {
      const float* keys[kKeys];
      for (int k = 0; k < kKeys; ++k) keys[k] = tile + (first + k) * op.channels;
      float sum[kKeys] = {}, dots[kKeys * kHeads], by_head[kHeads * kKeys];
      for (int64_t group = 0; group < groups; ++group) {
        Tiles::multiply(keys, query + group * op.channels * kHeads, op.channels, dots);
        Tiles::transpose_heads(dots, kKeys, kHeads, 0, by_head);
        const float* weight = weights + group * kHeads;
        for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 1
          for (int k = 0; k < kKeys; ++k) sum[k] = std::fma(weight[h], std::max(by_head[h * kKeys + k], 0.0f), sum[k]);
        }
      }
      for (int k = 0; k < kKeys; ++k) scores[first + k] = sum[k];
    }
  }
};

// ----------------------------------------------------------------------------------------------- scores in integers
struct IntegerIndex {
  static constexpr int kTile = IndexTile::kKeys;
  static constexpr auto best_of = best_of_avx512;
  static constexpr auto best_of_blocks = best_of_blocks_avx512;
  static int64_t cost_ns(const SelectRows& op) { return 3 + op.heads * op.channels / 200; }
  static int64_t tile_floats(const SelectRows&) { return int64_t(sizeof(IndexTile::Keys) / sizeof(float)); }
  static int64_t query_floats(const SelectRows& op) { return IndexTile::query_floats(op); }
  static void prepare(const SelectRows& op, int64_t r, float* query) { IndexTile::prepare(op, r, query); }
  static void decode(const SelectRows& op, const uint8_t* const* places, float* tile) {
    IndexTile::decode(places, op.channels, *reinterpret_cast<IndexTile::Keys*>(tile));
  }
  static void score(const SelectRows& op, const float* query, const float* tile, float* scores) {
    IndexTile::score(op, query, *reinterpret_cast<const IndexTile::Keys*>(tile), scores);
  }
};

// ------------------------------------------------------------------------------------------------ rows with scores
// Up to kRowBlock rows of one sequence that look at the same list of entries.
struct RowBlock {
  int64_t first = 0, count = 0;  // rows
  Row rows[kRowBlock];
  const int32_t* entries = nullptr;  // [choices of the one row]; null: all visible ones
  float* queries = nullptr;
  int64_t query_stride = 0;
  float* scores = nullptr;  // [count][stride]
  int64_t stride = 0, most = 0;
};

// Reads the queries and finds memory; what is in it stays until this thread's next block.
template <class Index>
[[gnu::always_inline]] inline void begin_block(const SelectRows& op, RowBlock& block) {
  for (int64_t i = 0; i < block.count; ++i) {
    if (!block.rows[i].everything) block.most = std::max(block.most, block.rows[i].choices);
  }
  block.stride = (block.most + 2 * kKeyBlock - 1) / kKeyBlock * kKeyBlock;
  block.scores = memory().scores.get<float>(block.count * block.stride);
  block.query_stride = (Index::query_floats(op) + 15) / 16 * 16;
  block.queries = memory().queries.get<float>(block.count * block.query_stride);
  for (int64_t i = 0; i < block.count; ++i) {
    if (!block.rows[i].everything) Index::prepare(op, block.first + i, block.queries + i * block.query_stride);
  }
  if (!block.rows[0].inside) return;
  int32_t* const entries = memory().entries.get<int32_t>(block.rows[0].choices + 1);
  list_candidates(op, block.first, block.rows[0].visible, entries);
  block.entries = entries;
}

// Scores of the choices [begin, end) of a block's rows; begin is a multiple of kKeyBlock.
template <class Index>
[[gnu::always_inline]] inline void score_choices(const SelectRows& op, const RowBlock& block, int64_t begin,
                                                 int64_t end) {
  constexpr int kTile = Index::kTile;
  const int64_t tile_floats = Index::tile_floats(op);
  float* const tiles = memory().keys.get<float>(kKeyBlock / kTile * tile_floats);
  const PagePlaces pages(op.keys, op.rows.sequence[block.first]);
  for (int64_t from = begin; from < end; from += kKeyBlock) {
    const int64_t to = std::min(from + kKeyBlock, end);
    for (int64_t k = from; k < to; k += kTile) {
      const uint8_t* places[kTile];
      for (int64_t i = 0; i < kTile; ++i) {
        const int64_t choice = std::min(k + i, to - 1);  // the last tile is a whole one
        places[i] = pages[block.entries ? block.entries[choice] : choice];
      }
      Index::decode(op, places, tiles + (k - from) / kTile * tile_floats);
    }
    for (int64_t i = 0; i < block.count; ++i) {
      if (block.rows[i].everything) continue;
      const float* query = block.queries + i * block.query_stride;
      for (int64_t k = from; k < std::min(to, block.rows[i].choices); k += kTile) {
        Index::score(op, query, tiles + (k - from) / kTile * tile_floats, block.scores + i * block.stride + k);
      }
    }
  }
}

// A block is worth its best entry; the one with the newest visible entry always stays.
template <class Index>
[[gnu::always_inline]] inline void choose_blocks(const SelectRows& op, int64_t r, int64_t visible,
                                                 const float* scores) {
  const int64_t n = (visible + op.block_size - 1) / op.block_size;
  float* worth = memory().worth.get<float>(n);
  Index::best_of_blocks(scores, visible, op.block_size, worth);
  if (n > 0) worth[n - 1] = INFINITY;
  op.block_count[r] = Index::best_of(worth, n, op.top_blocks, nullptr, op.blocks.row(r).data());
}

// 0, 1, 2 ... or what they are called, and -1 behind them.
int32_t write_all(int64_t n, std::span<int32_t> out, const int32_t* names) {
  for (int64_t i = 0; i < n; ++i) out[size_t(i)] = int32_t(names ? names[i] : i);
  std::fill(out.begin() + n, out.end(), -1);
  return int32_t(n);
}

template <class Index>
[[gnu::always_inline]] inline void choose(const SelectRows& op, const RowBlock& block, int64_t i) {
  const int64_t r = block.first + i;
  const Row& row = block.rows[i];
  if (row.everything) {
    if (op.candidate_source) {
      op.block_count[r] = write_all((row.visible + op.block_size - 1) / op.block_size, op.blocks.row(r), nullptr);
    }
    op.count[r] = write_all(row.choices, op.entries.row(r), block.entries);
    return;
  }
  const float* scores = block.scores + i * block.stride;
  if (op.candidate_source) choose_blocks<Index>(op, r, row.visible, scores);
  op.count[r] = Index::best_of(scores, row.choices, op.top_k, block.entries, op.entries.row(r).data());
  if (op.scores.empty()) return;
  const auto out = op.scores.row(r);
  std::fill(out.begin(), out.end(), -1e30f);
  for (int64_t k = 0; k < row.choices; ++k) out[size_t(block.entries ? block.entries[k] : k)] = scores[k];
}

// The block that begins at row `first` and ends before `end`. Rows inside candidates have lists of their own.
RowBlock block_at(const SelectRows& op, int64_t first, int64_t end) {
  RowBlock block;
  block.first = first;
  do {
    block.rows[block.count] = row_at(op, first + block.count);
    ++block.count;
  } while (block.count < kRowBlock && first + block.count < end && !block.rows[0].inside &&
           op.rows.sequence[first + block.count] == op.rows.sequence[first]);
  return block;
}

template <class Index>
[[gnu::always_inline]] inline void piece(const SelectRows& op, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end;) {
    RowBlock block = block_at(op, r, end);
    begin_block<Index>(op, block);
    score_choices<Index>(op, block, 0, block.most);
    for (int64_t i = 0; i < block.count; ++i) choose<Index>(op, block, i);
    r += block.count;
  }
}

// The same with the choices of each block shared among threads.
template <class Index, class Score>
[[gnu::always_inline]] inline void by_entries(Queue& queue, const SelectRows& op, const Score& score) {
  for (int64_t r = 0; r < op.rows.rows();) {
    RowBlock block = block_at(op, r, op.rows.rows());
    begin_block<Index>(op, block);
    const int64_t blocks = (block.most + kKeyBlock - 1) / kKeyBlock;
    const int64_t grain = std::max<int64_t>(1, blocks / (16 * queue.pool.threads()));
    queue.pool.run(blocks, grain, [&](int64_t begin, int64_t end, int) {
      score(op, block, begin * kKeyBlock, std::min(end * kKeyBlock, block.most));
    });
    for (int64_t i = 0; i < block.count; ++i) choose<Index>(op, block, i);
    r += block.count;
  }
}

template <class Index, class Piece, class Score>
void share(Queue& queue, const SelectRows& op, const Piece& piece, const Score& score) {
  constexpr int64_t kManyNs = 30000;  // of a row: worth a call of the threads for each block of rows
  const int64_t rows = op.rows.rows();
  if (rows == 0) return;
  const Row last = row_at(op, rows - 1);
  const int64_t row_ns = last.everything ? 50 + last.choices / 4 : 300 + last.choices * Index::cost_ns(op);
  if (queue.pool.threads() > 1 && rows < 4 * queue.pool.threads() && row_ns > kManyNs) {
    return by_entries<Index>(queue, op, score);
  }
  for_row_pieces(queue, rows, row_ns, [&](int64_t b, int64_t e) { piece(op, b, e); });
}

using Avx2Index = FloatIndex<Avx2Tiles>;
using Avx512Index = FloatIndex<Avx512Tiles>;

[[gnu::target("avx2,fma")]] void piece_avx2(const SelectRows& op, int64_t b, int64_t e) { piece<Avx2Index>(op, b, e); }
[[gnu::target("avx2,fma")]] void score_avx2(const SelectRows& op, const RowBlock& block, int64_t b, int64_t e) {
  score_choices<Avx2Index>(op, block, b, e);
}
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]] void piece_avx512(const SelectRows& op, int64_t b, int64_t e) {
  piece<Avx512Index>(op, b, e);
}
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]] void score_avx512(const SelectRows& op, const RowBlock& block,
                                                                        int64_t b, int64_t e) {
  score_choices<Avx512Index>(op, block, b, e);
}
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]] void piece_vnni(const SelectRows& op, int64_t b, int64_t e) {
  piece<IntegerIndex>(op, b, e);
}
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]] void score_vnni(const SelectRows& op, const RowBlock& block,
                                                                      int64_t b, int64_t e) {
  score_choices<IntegerIndex>(op, block, b, e);
}

void run_avx2(Queue& queue, const SelectRows& op) { share<Avx2Index>(queue, op, piece_avx2, score_avx2); }
void run_avx512(Queue& queue, const SelectRows& op) { share<Avx512Index>(queue, op, piece_avx512, score_avx512); }
void run_vnni(Queue& queue, const SelectRows& op) {
  if (!IndexTile::fits(op)) return run_avx512(queue, op);
  share<IntegerIndex>(queue, op, piece_vnni, score_vnni);
}

}  // namespace

const Variants<SelectRows> kSelectRows{run_avx2, run_avx512, run_vnni};

}  // namespace fathom::cpu
