// fathom/backend/ops.h
// Every operation that a backend may provide: one plain struct of views each, and the table of functions that run them.
// `reference/` defines what each one means; a faster variant is tested against it. Source: spec/model.md, by section.
//
// Conventions
//   A        the activation type of the run, f32 or bf16: what an operation stores into an A view is rounded to it
//   once,
//            at the end; inside, everything is float (the reference: double).
//   rows     all positions of the step, of all sequences; the rows of a sequence are neighbours with rising positions.
//   A row's result depends on that row and on its sequence's past only, never on its neighbours in the batch
//   (spec/engine.md R-36): fixed order of summation, no splits that depend on the number of rows.
// Views do not overlap unless a comment says that they may be the same.
//
// Some operations take a step of another one with them (Norm, Turn, Q8Rows, StreamSpread): what they do is by
// definition both operations in turn, with the rounding to A between them, bit for bit. It saves a launch on a device,
// and a row's way to memory and back everywhere. decisions/0016
#pragma once
#include <cstdint>
#include <span>

#include "fathom/tensor/row_format.h"
#include "fathom/tensor/view.h"

namespace fathom {

struct Queue;

// ------------------------------------------------------------------------------------------- where rows and pages lie
/// Rows of a step and their owners.
struct RowSet {
  View<const int64_t, 1> positions;  // [rows] place in the sequence, from 0
  View<const int32_t, 1> sequence;   // [rows] index among the step's sequences
  View<const int32_t, 1> begin;      // [sequences + 1] offsets into rows
  int64_t rows() const { return positions.shape[0]; }
  int64_t sequences() const { return begin.shape[0] - 1; }
};

/// One kind of entry inside the 128-token blocks: entry e of a sequence lies in block blocks(sequence, e /
/// entries_per_block).
struct PagedRegion {
  uint8_t* base = nullptr;    // of this page inside block 0
  int64_t block_stride = 0;   // bytes
  int entries_per_block = 0;  // 128 / tokens of an entry
  int entry_bytes = 0;
  View<const int32_t, 2> blocks;  // [sequences, most blocks]
  uint8_t* entry(int64_t sequence, int64_t e) const {
    return base + blocks(sequence, e / entries_per_block) * block_stride + e % entries_per_block * entry_bytes;
  }
};

/// One ring inside the state slots: position p of a sequence lies in ring place p mod capacity of its slot.
struct RingRegion {
  uint8_t* base = nullptr;  // of this ring inside slot 0
  int64_t slot_stride = 0;  // bytes
  int capacity = 0;         // entries
  int entry_bytes = 0;
  View<const int32_t, 1> slots;  // [sequences]
  uint8_t* entry(int64_t sequence, int64_t position) const {
    return base + slots[sequence] * slot_stride + position % capacity * entry_bytes;
  }
};

// ------------------------------------------------------------------------------------- steps of other operations
/// The stored rows once more, in Q8, as QuantizeRows makes it of them. An operation that has such a member stores
/// nothing but this form if its `out` is empty.
struct Q8Rows {
  AnyViewMut codes;   // [rows, K] f8_e4m3; empty: not wanted. K a multiple of 32
  AnyViewMut scales;  // [rows, K / 32] f8_e8m0
  bool wanted() const { return codes.data != nullptr; }
};

/// Rows are divided by their root mean square first, as RmsNorm does it.
struct Norm {
  AnyView weight;  // [1, dim] bf16 or f32; empty: they are not
  float eps = 0;   // in units of x^2
  bool wanted() const { return weight.data != nullptr; }
};

/// Heads are turned first, as Rope does it; the rows that are read stay as they are.
struct Turn {
  View<const int64_t, 1> positions;    // [rows]
  std::span<const float> frequencies;  // [pairs]; empty: they are not
  bool inverse = false;
  bool wanted() const { return !frequencies.empty(); }
};

// ------------------------------------------------------------------------------------------------- rows in, rows out
/// out[r, c*H + h] = table[ids[r], h] for each of the `streams` copies c.                              model.md 4.1
struct Embed {
  View<const int32_t, 1> ids;  // [rows] each in [0, vocabulary)
  AnyView table;               // [vocabulary, H] bf16
  AnyViewMut out;              // [rows, streams * H] A
  int streams = 1;
};

/// out[i] = source[index[i]], whole rows of any type.
struct GatherRows {
  AnyView source;
  View<const int32_t, 1> index;  // [n]
  AnyViewMut out;                // [n, cols], same dtype
};

/// out = a + b, float.
struct AddRows {
  View<const float, 2> a, b;  // [rows, cols]
  View<float, 2> out;         // may be a or b
};

/// Q8: E4M3 codes and one E8M0 scale for 32 neighbours of a row.                                       model.md 3.2
struct QuantizeRows {
  AnyView x;          // [rows, K] A; K a multiple of 32
  AnyViewMut codes;   // [rows, K] f8_e4m3
  AnyViewMut scales;  // [rows, K / 32] f8_e8m0
  int heads = 1;      // of the turn
  Turn turn = {};
};

/// Products that are `beside` the one queued just ahead have its x (and x_row and begin), as it was, and need none of
/// its results: a device may run both together and prepare x once.

/// out = x . weight^T. With `groups` > 1, block-diagonal: weight rows [g * N/groups, ...) meet the x columns
/// [g * K, (g + 1) * K) only.                                                                   model.md 3.3, 5.5
struct Linear {
  Matrix x;        // [rows, groups * K]: A, or f8_e4m3 with scale_rows 1
  Matrix weight;   // [N, K]: f32, bf16, f8_e4m3 (32 x 32 tiles) or f4_e2m1
  AnyViewMut out;  // [rows, N] f32 or bf16; rows may lie apart
  int groups = 1;
  bool beside = false;
};

/// A product of which only a part is asked for: what chooses between kernels looks at the whole, so that a row's bits
/// are those of the whole. The part's weights lie elsewhere in every call.
struct WholeProduct {
  int64_t rows = 0, experts = 0;  // 0: it is all there
};

/// out[a] = x[x_row[a]] . weights[e]^T for the assignments a in [begin[e], begin[e + 1]).            model.md 8
struct GroupedLinear {
  Matrix x;                         // [rows, K]
  View<const int32_t, 1> x_row;     // [assignments]; empty: x_row[a] = a
  View<const int32_t, 1> begin;     // [experts + 1]
  std::span<const Matrix> weights;  // [experts] of [N, K]
  AnyViewMut out;                   // [assignments, N] f32 or bf16
  WholeProduct whole = {};
  bool beside = false;
};

/// out[r] = x[r] / sqrt(mean(x[r]^2) + eps) * weight.                                                 model.md 0
struct RmsNorm {
  AnyView x;       // [rows, dim] A
  AnyView weight;  // [1, dim] bf16 or f32
  AnyViewMut out;  // [rows, dim] A; may be x
  float eps;       // in units of x^2
  Q8Rows q8 = {};
};

/// Turns the last 2 * frequencies channels of each head, in place: pair (2i, 2i+1) by the angle
/// float(position) * frequency[i], that product rounded to float; `inverse` turns back.               model.md 5.2
struct Rope {
  AnyViewMut x;  // [rows, heads * channels] A
  int heads = 1;
  View<const int64_t, 1> positions;    // [rows]
  std::span<const float> frequencies;  // [pairs]
  bool inverse = false;
};

// -------------------------------------------------------------------------------------------------------- the caches
/// Rounds rows into cache entries. `heads` > 1: each of the heads of a row is encoded by itself, one after the other.
struct EncodeRows {
  AnyView x;  // [rows, heads * channels] A
  int heads = 1;
  RowFormat format;
  View<uint8_t, 2> out;  // [rows, heads * row_bytes(format, channels)]
  Norm norm = {};        // of whole rows
  Turn turn = {};        // behind the norm
};

/// Puts the entries of the last `capacity` rows of each sequence into its ring.
struct StoreRing {
  RowSet rows;
  View<const uint8_t, 2> entries;  // [rows, entry_bytes]
  RingRegion ring;
};

/// Puts entry entries[i] of sequence[i] at place entry[i] of its pages.
struct StorePaged {
  View<const uint8_t, 2> entries;   // [n, entry_bytes]
  View<const int32_t, 1> sequence;  // [n]
  View<const int64_t, 1> entry;     // [n]
  PagedRegion pages;
};

/// Pools the `ratio` tokens of each group that a row of this step completes: per channel, values weighted by the
/// softmax of their scores. Tokens of earlier steps come from the state ring.                                 model.md
/// 6
struct Compress {
  RowSet rows;
  View<const float, 2> projected;    // [rows, 2 * D]: value, then score
  RingRegion state;                  // entries of 2 * D floats
  View<const int32_t, 1> group_row;  // [groups] the row that completes the group
  int ratio = 2;
  AnyViewMut out;  // [groups, D] A
};

/// Scores the visible entries of each row and selects the best `top_k`, and the best blocks if this layer is the
/// candidate source. score(r, j) = sum_h weight[r, h] * relu(q[r, h] . k[j]); visible: j < (position + 1) / ratio.
/// Equal scores go to the lower entry. Selected entries are written in rising order.                        model.md 7
struct SelectRows {
  RowSet rows;
  View<const uint8_t, 2> queries;  // [rows, heads * row_bytes(format, channels)]
  AnyView head_weights;            // [rows, heads] A
  float weight_scale = 1;          // channels^-1/2 * heads^-1/2
  int heads = 0, channels = 0;
  RowFormat format;  // of queries and keys: q4i or f32
  PagedRegion keys;
  int ratio = 1;
  int top_k = 0;
  View<int32_t, 2> entries;  // [rows, top_k] out
  View<int32_t, 1> count;    // [rows] out
  // Two-level selection: blocks of `block_size` entries, by their best score; the newest visible block always stays.
  int block_size = 0;  // 0: none
  int top_blocks = 0;
  bool candidate_source = false;  // true: writes the blocks; false: reads them and selects inside
  View<int32_t, 2> blocks;        // [rows, top_blocks] in rising order
  View<int32_t, 1> block_count;   // [rows]
  View<float, 2> scores;  // optional [rows, entries]: -1e30 where not visible or not a candidate (golden checks)
};

/// One softmax over window rows and selected entries, with a sink in the denominator only. A row is key and value for
/// all heads. Window positions of this step come from `fresh`, earlier ones from the ring.                model.md 5.4
struct LatentAttention {
  RowSet rows;      // of the queries
  AnyView queries;  // [rows, heads * D] A, turned by RoPE
  int heads = 0;
  RowSet fresh_rows;             // rows whose window entries this step computed; same sequences
  View<const uint8_t, 2> fresh;  // [fresh rows, entry bytes]
  RowFormat window_format;
  RingRegion ring;
  View<const int64_t, 1> window_begin;  // [rows] first visible position
  View<const int64_t, 1> window_end;    // [rows] one past the last visible position
  RowFormat entry_format;
  PagedRegion latents;             // when entries are given
  View<const int32_t, 2> entries;  // [rows, top_k]; empty: window only
  View<const int32_t, 1> count;    // [rows]
  View<const float, 1> sink;       // [heads]
  float scale = 1;                 // D^-1/2
  AnyViewMut out;                  // [rows, heads * D] A
};

// ----------------------------------------------------------------------------------------------------------- experts
/// Chooses experts: s = sqrt(softplus(x . weight^T)); the `k` best of s + bias, ties to the lower expert, in falling
/// order; weights s / (sum of the chosen s + 1e-20) * scale, without the bias. model.md 8.1
struct Gate {
  AnyView x;                        // [rows, H] A
  AnyView weight;                   // [experts, H] bf16
  View<const float, 1> bias;        // [experts]
  View<const float, 1> bias_image;  // [experts], for image rows
  View<const uint8_t, 1> image;     // [rows]; empty: no image rows
  float scale = 1;
  View<int32_t, 2> experts;  // [rows, k] out
  View<float, 2> weights;    // [rows, k] out
};

/// Sorts the assignments (row, slot) by expert, then row, then slot.
struct GroupByExpert {
  View<const int32_t, 2> experts;      // [rows, k]
  View<const float, 2> weights;        // [rows, k]
  View<int32_t, 1> begin;              // [experts + 1] out
  View<int32_t, 1> row;                // [rows * k] out: row of an assignment
  View<float, 1> weight;               // [rows * k] out: weight of an assignment
  View<int32_t, 2> place;              // [rows, k] out: assignment of (row, slot)
  View<const int32_t, 1> number = {};  // [experts] what each is called in `begin`; empty: as in `experts`
};

/// out = silu(min(gate, limit)) * clamp(up, -limit, limit) * weight[r]. limit 0: no clamp.          model.md 8.2
struct SwiGlu {
  AnyView gate, up;             // [rows, I] A
  View<const float, 1> weight;  // [rows]; empty: 1
  float limit = 0;
  AnyViewMut out;  // [rows, I] A; may be gate or up
  Q8Rows q8 = {};
};

/// out[r] = sum over slots of routed[place(r, slot)] + shared[r], slots in order.                     model.md 8.3
struct Combine {
  AnyView routed;                // [assignments, H] A
  View<const int32_t, 2> place;  // [rows, k]
  AnyView shared;                // [rows, H] A
  AnyViewMut out;                // [rows, H] A
};

// ------------------------------------------------------------------------------------------------------------ Engram
/// Row numbers of the n-gram tables.                                                                 model.md 9.4
struct NgramHash {
  RowSet rows;
  View<const int32_t, 1> ids;            // [rows] token ids
  View<const int32_t, 2> history;        // [sequences, orders]: the tokens before a sequence's first row, newest first;
                                         // -1: before the start, or an image position
  View<const uint8_t, 1> image;          // [rows]; empty: none
  std::span<const int32_t> token_map;    // [vocabulary] compressed ids
  int32_t pad = 0;                       // compressed id that fills what is missing
  std::span<const int64_t> multipliers;  // [orders + 1]
  std::span<const int64_t> primes;       // [orders * heads], order major
  std::span<const int64_t> offsets;      // [orders * heads]
  View<int64_t, 2> out;                  // [rows, orders * heads]
};

/// Copies table rows as stored, one after the other: the result is a Q8 row of columns * channels.    model.md 9.5
struct EngramGather {
  Matrix table;                  // [table rows, channels] f8_e4m3, scale_rows 1
  View<const int64_t, 2> index;  // [rows, columns]
  AnyViewMut codes;              // [rows, columns * channels] f8_e4m3
  AnyViewMut scales;             // [rows, columns * channels / 32] f8_e8m0
};

/// Adds the gated value to every stream; image rows stay as they are.                                model.md 9.5
struct EngramMix {
  AnyViewMut streams;            // [rows, C * H] A, in place
  AnyView key_value;             // [rows, (C + 1) * H] A: keys of the C streams, then the value
  AnyView q_weight, k_weight;    // [C, H] bf16
  View<const uint8_t, 1> image;  // [rows]; empty: none
  float eps;
};

// --------------------------------------------------------------------------------------- hyper-connections (mHC)
/// The mixing weights of a sub-layer, from the streams before it.                                    model.md 4.3
struct StreamMixes {
  AnyView streams;             // [rows, C * H] A
  AnyView fn;                  // [(2 + C) * C, C * H] f32
  View<const float, 1> scale;  // [3]
  View<const float, 1> base;   // [(2 + C) * C]
  int iterations = 20;
  float sinkhorn_eps = 1e-6f;
  float norm_eps = 0;
  View<float, 2> pre;   // [rows, C] out
  View<float, 2> post;  // [rows, C] out
  View<float, 2> comb;  // [rows, C * C] out, row j column k
};

/// out[r] = sum_c pre[r, c] * streams[r, c].                                                          model.md 4.2
struct StreamCollapse {
  AnyView streams;           // [rows, C * H] A
  View<const float, 2> pre;  // [rows, C]
  AnyViewMut out;            // [rows, H] A
  Norm norm = {};            // of what is stored
  Q8Rows q8 = {};
};

/// streams[r, k] = post[r, k] * y[r] + sum_j comb[r, j, k] * streams[r, j].                           model.md 4.4
struct StreamSpread {
  AnyView y;                  // [rows, H] A
  View<const float, 2> post;  // [rows, C]
  View<const float, 2> comb;  // [rows, C * C]
  AnyViewMut streams;         // [rows, C * H] A, in place
  // With `routed`, y is only the shared part of a Combine, whose sum is spread.
  AnyView routed = {};                // [assignments, H] A
  View<const int32_t, 2> place = {};  // [rows, k]
  // The new streams are collapsed for the sub-layer behind; its own `streams` are not read. pre empty: they are not.
  StreamCollapse next = {};
};

/// out[r] = mean over streams.                                                                       model.md 11.1
struct StreamMean {
  AnyView streams;  // [rows, C * H] A
  int count = 1;    // C
  AnyViewMut out;   // [rows, H] A; rows may lie apart
};

// ------------------------------------------------------------------------------------------------ choosing tokens
/// What one row's draw depends on: the request's parameters and the draw's name.              engine.md 8.1, 8.2
struct RowSampling {
  float temperature = 1;  // below 1e-5: greedy, the first largest logit
  float top_p = 1;        // (0, 1]
  float min_p = 0;        // keep p >= min_p * largest p
  int32_t top_k = 0;      // 0: all
  uint64_t seed = 0;      // Philox key
  uint32_t position = 0;  // of the token that is drawn
  uint32_t role = 0;      // 0 fresh, 1 residual, 2 accept, 3 coupled
};

/// One token of a law. A law as a list of them has those of weight > 0, by rising id.
struct TokenWeight {
  int32_t id = 0;
  uint32_t weight = 0;
  friend bool operator==(const TokenWeight&, const TokenWeight&) = default;
};

/// Draws one token a row. The law of a row is an integer for each token: floor(p * 2^31) after temperature, min-p,
/// joint top-k/top-p and renormalisation; the draw is an exact inverse CDF over those integers, or for role 3 the race
/// of race.h, which a draft and its target run with the same noise. engine.md 8.1, R-33, R-34, R-37
struct Sample {
  View<const float, 2> logits;         // [rows, vocabulary], masks and penalties applied
  std::span<const RowSampling> rows;   // [rows]
  View<int32_t, 1> ids;                // [rows] out; empty: laws only
  View<uint32_t, 2> laws;              // [rows, vocabulary] out; empty: not wanted
  View<const int32_t, 1> source = {};  // [rows] row of `logits` that each is drawn from; empty: its own number
  // The laws once more, as lists of their tokens: of a law that has more than `most`, the first ones.
  View<TokenWeight, 2> lists = {};    // [rows, most] out; empty: not wanted
  View<int32_t, 1> list_counts = {};  // [rows] out, with lists: tokens that the law has
  int64_t count() const { return source.empty() ? logits.shape[0] : source.shape[0]; }
};

/// Rejection sampling of drafts. Target rows [begin[s], begin[s + 1]) of a sequence are its drafts' rows and one more;
/// draft i is accepted with probability min(1, q(d)/p(d)), q and p being the integer laws over their sums; the first
/// refused row gives a token of the law max(q - p, 0); if none is refused the last row's own token stands. Exact:
/// integer arithmetic throughout. Laws of drafts are lists, since they are kept from one step to the next.
/// engine.md 7.5
struct Accept {
  View<const int32_t, 1> begin;         // [sequences + 1] into target rows
  View<const uint32_t, 2> target_laws;  // [target rows, vocabulary]
  View<const int32_t, 1> target_ids;    // [target rows] a fresh draw of each row
  View<const int32_t, 1> draft_ids;     // [target rows]; entry of a sequence's last row is not read; < 0: refuse
  View<const int32_t, 1> draft_begin;   // [target rows + 1] into draft_laws; nothing is read of a row without a draft
  View<const TokenWeight, 1> draft_laws;
  std::span<const RowSampling> rows;  // [target rows]; role is not read
  View<int32_t, 1> accepted;          // [sequences] out: number of drafts accepted
  View<int32_t, 1> next;              // [sequences] out: the token after them
  // What the two laws of each draft have in common, refused or not: the sum of the smaller weight over all tokens, 0
  // where there is no draft.
  View<uint64_t, 1> common = {};  // [target rows] out; empty: not wanted
};

/// The table of one backend. An empty entry is legal on a device and reported before anything runs; on the CPU backends
/// every entry is filled.
struct Operations {
  const char* name = "";
  void (*embed)(Queue&, const Embed&) = nullptr;
  void (*gather_rows)(Queue&, const GatherRows&) = nullptr;
  void (*add_rows)(Queue&, const AddRows&) = nullptr;
  void (*quantize_rows)(Queue&, const QuantizeRows&) = nullptr;
  void (*linear)(Queue&, const Linear&) = nullptr;
  void (*grouped_linear)(Queue&, const GroupedLinear&) = nullptr;
  void (*rms_norm)(Queue&, const RmsNorm&) = nullptr;
  void (*rope)(Queue&, const Rope&) = nullptr;
  void (*encode_rows)(Queue&, const EncodeRows&) = nullptr;
  void (*store_ring)(Queue&, const StoreRing&) = nullptr;
  void (*store_paged)(Queue&, const StorePaged&) = nullptr;
  void (*compress)(Queue&, const Compress&) = nullptr;
  void (*select_rows)(Queue&, const SelectRows&) = nullptr;
  void (*latent_attention)(Queue&, const LatentAttention&) = nullptr;
  void (*gate)(Queue&, const Gate&) = nullptr;
  void (*group_by_expert)(Queue&, const GroupByExpert&) = nullptr;
  void (*swiglu)(Queue&, const SwiGlu&) = nullptr;
  void (*combine)(Queue&, const Combine&) = nullptr;
  void (*engram_hash)(Queue&, const NgramHash&) = nullptr;
  void (*engram_gather)(Queue&, const EngramGather&) = nullptr;
  void (*engram_mix)(Queue&, const EngramMix&) = nullptr;
  void (*stream_mixes)(Queue&, const StreamMixes&) = nullptr;
  void (*stream_collapse)(Queue&, const StreamCollapse&) = nullptr;
  void (*stream_spread)(Queue&, const StreamSpread&) = nullptr;
  void (*stream_mean)(Queue&, const StreamMean&) = nullptr;
  void (*sample)(Queue&, const Sample&) = nullptr;
  void (*accept)(Queue&, const Accept&) = nullptr;
};

/// The definition of every operation: slow, in double, written to be read.
Operations reference_operations();

}  // namespace fathom
