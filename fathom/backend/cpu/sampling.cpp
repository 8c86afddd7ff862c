// Tokens from logits, with the integers of law.h: the same steps as the definition, in vectors. What may reorder (the
// choice of the best) compares integers only; what is double keeps its order.
#include "fathom/backend/cpu/row_operations.h"
#include "fathom/backend/cpu/scratch.h"
#include "fathom/backend/draw.h"
#include "fathom/backend/law.h"
#include "fathom/backend/race.h"

namespace fathom::cpu {
namespace {

constexpr int kSumLanes = 8;

struct Memory {
  Scratch weights, ranks, law;
};
Memory& memory() {
  static thread_local Memory own;
  return own;
}

// A NaN logit as -inf. With masks, not a choice: the loops around it stay free of branches and become vectors.
[[gnu::always_inline]] inline float number_or_least(float logit) {
  const uint32_t bits = std::bit_cast<uint32_t>(logit);
  const uint32_t nan = 0 - uint32_t((bits & 0x7fffffffu) > 0x7f800000u);
  return std::bit_cast<float>((bits & ~nan) | (0xff800000u & nan));
}

// The largest logit; -inf when there is none. NaN is no token.
[[gnu::always_inline]] inline float largest(const float* logits, int64_t n) {
  float lanes[kLanes], best = -INFINITY;
  for (int l = 0; l < kLanes; ++l) lanes[l] = -INFINITY;
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
#pragma GCC unroll 1
    for (int l = 0; l < kLanes; ++l) lanes[l] = logits[i + l] > lanes[l] ? logits[i + l] : lanes[l];
  }
  for (; i < n; ++i) best = logits[i] > best ? logits[i] : best;
  for (int l = 0; l < kLanes; ++l) best = std::max(best, lanes[l]);
  return best;
}

[[gnu::always_inline]] inline int64_t first_equal(const float* logits, int64_t n, float value) {
  if (value == -INFINITY) return 0;
  constexpr int64_t kBlock = 64;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t end = std::min(begin + kBlock, n);
    int32_t found = 0;
    for (int64_t i = begin; i < end; ++i) found |= logits[i] == value;
    if (!found) continue;
    for (int64_t i = begin; i < end; ++i) {
      if (logits[i] == value) return i;
    }
  }
  return 0;
}

[[gnu::always_inline]] inline double sum_of(const double* weight, int64_t n) {
  double lanes[kSumLanes] = {};
  int64_t i = 0;
  for (; i + kSumLanes <= n; i += kSumLanes) {
#pragma GCC unroll 1
    for (int l = 0; l < kSumLanes; ++l) lanes[l] += weight[i + l];
  }
  for (int l = 0; i < n; ++i, ++l) lanes[l] += weight[i];
  for (int l = 0; l < 4; ++l) lanes[l] += lanes[l + 4];
  return (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]);
}

// Smaller is better: falling logit, then rising id; +0 and -0 are equal.
[[gnu::always_inline]] inline uint64_t rank_of(float logit, int64_t id) {
  const uint32_t bits = std::bit_cast<uint32_t>(number_or_least(logit) + 0.0f);
  const uint32_t rising = bits ^ ((0 - (bits >> 31)) | 0x80000000u);  // all bits of a negative one, the sign of others
  return uint64_t(~rising) << 32 | uint64_t(uint32_t(id));
}

// Sets the weights outside the top-k/top-p prefix to 0. Masses are integers, so their sum has no order: the prefix is
// found like a median, by halving the part that its end lies in. `mass` is memory for n integers.
[[gnu::always_inline]] inline void keep_top(const float* logits, int64_t n, const RowSampling& row, double total,
                                            double* weight, uint32_t* mass) {
  const uint64_t wanted = uint64_t(double(row.top_p) * kCertain) + 1;
  uint64_t* ranks = memory().ranks.get<uint64_t>(n);
  for (int64_t i = 0; i < n; ++i) ranks[i] = rank_of(logits[i], i);
  for (int64_t i = 0; i < n; ++i) mass[i] = uint32_t(int64_t(weight[i] / total * kCertain));
  int64_t below = 0, end = row.top_k > 0 ? std::min<int64_t>(row.top_k, n) : n;  // the prefix ends in (below, end]
  uint64_t mass_below = 0;
  if (end < n) std::nth_element(ranks, ranks + end, ranks + n);
  while (end - below > 1) {
    const int64_t middle = (below + end) / 2;
    std::nth_element(ranks + below, ranks + middle, ranks + end);
    uint64_t part = 0;
    for (int64_t i = below; i < middle; ++i) part += mass[uint32_t(ranks[i])];
    if (mass_below + part >= wanted) {
      end = middle;
    } else {
      mass_below += part;
      below = middle;
    }
  }
  const uint64_t last = ranks[below];
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t keep = 0 - uint64_t(rank_of(logits[i], i) <= last);
    weight[i] = std::bit_cast<double>(std::bit_cast<uint64_t>(weight[i]) & keep);
  }
}

[[gnu::always_inline]] inline void law_of(const float* logits, int64_t n, float best, const RowSampling& row,
                                          uint32_t* law) {
  double* weight = memory().weights.get<double>(n);
  const double temperature = double(row.temperature), shift = double(best) / temperature;
  for (int64_t i = 0; i < n; ++i) {
    weight[i] = law_weight(double(number_or_least(logits[i])) / temperature - shift);
  }
  const double total = sum_of(weight, n);
  if (row.top_k > 0 || row.top_p < 1) keep_top(logits, n, row, total, weight, law);
  const double least = double(row.min_p);
  for (int64_t i = 0; i < n; ++i) weight[i] = weight[i] >= least ? weight[i] : 0.0;
  const double kept = sum_of(weight, n);
  for (int64_t i = 0; i < n; ++i) law[i] = uint32_t(int64_t(weight[i] / kept * kCertain));
}

[[gnu::always_inline]] inline uint64_t total_of(const uint32_t* law, int64_t n) {
  uint64_t total = 0;
  for (int64_t i = 0; i < n; ++i) total += law[i];
  return total;
}

// The first id whose running sum exceeds a uniform integer below the total.
[[gnu::always_inline]] inline int32_t draw(const uint32_t* law, int64_t n, const RowSampling& row) {
  constexpr int64_t kBlock = 256;
  uint64_t left = uniform_below(total_of(law, n), row.seed, row.position, row.role);
  int64_t id = 0;
  for (; id + kBlock < n; id += kBlock) {
    const uint64_t block = total_of(law + id, kBlock);
    if (left < block) break;
    left -= block;
  }
  while (left >= law[id]) left -= law[id++];
  return int32_t(id);
}

constexpr int kPairs = 8;  // a block of the race is 16 tokens, 8 random numbers

// Divided by their weights, the times of the 16 tokens from `first` on; infinite where the weight is 0.
[[gnu::always_inline]] inline void race_times(const uint32_t* law, uint32_t first, const RowSampling& row,
                                              double* times) {
  uint32_t c0[kPairs], c1[kPairs], c2[kPairs], c3[kPairs];
  for (int l = 0; l < kPairs; ++l) {
    c0[l] = row.position;
    c1[l] = kCoupled;
    c2[l] = first / 2 + uint32_t(l);
    c3[l] = 0;
  }
  uint32_t k0 = uint32_t(row.seed), k1 = uint32_t(row.seed >> 32);
  for (int round = 0; round < 10; ++round) {  // philox of base/philox.h, eight at once
    for (int l = 0; l < kPairs; ++l) {
      const uint64_t a = uint64_t(0xD2511F53u) * c0[l], b = uint64_t(0xCD9E8D57u) * c2[l];
      c0[l] = uint32_t(b >> 32) ^ c1[l] ^ k0;
      c1[l] = uint32_t(b);
      c2[l] = uint32_t(a >> 32) ^ c3[l] ^ k1;
      c3[l] = uint32_t(a);
    }
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  uint64_t bits[2 * kPairs];
  for (int l = 0; l < kPairs; ++l) {
    bits[2 * l] = c0[l] | uint64_t(c1[l]) << 32;
    bits[2 * l + 1] = c2[l] | uint64_t(c3[l]) << 32;
  }
  for (int l = 0; l < 2 * kPairs; ++l) times[l] = exponential_time(bits[l]) / double(law[l]);
}

// The law is padded with zeros to blocks of 16 where it ends inside one.
[[gnu::always_inline]] inline int32_t race(const uint32_t* law, int64_t n, const RowSampling& row) {
  constexpr int64_t kBlock = 2 * kPairs;
  double best = INFINITY, times[kBlock];
  int64_t winner = 0;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    uint32_t tail[kBlock] = {};
    const uint32_t* weights = law + begin;
    if (begin + kBlock > n) {
      std::copy(weights, law + n, tail);
      weights = tail;
    }
    uint32_t any = 0;
    for (int64_t l = 0; l < kBlock; ++l) any |= weights[l];
    if (any == 0) continue;  // most blocks of a filtered law
    race_times(weights, uint32_t(begin), row, times);
    for (int64_t l = 0; l < kBlock; ++l) {
      if (times[l] < best) best = times[l], winner = begin + l;  // x / 0 is infinite
    }
  }
  return int32_t(winner);
}

// Returns the tokens of the law; the first `most` are in `list`.
[[gnu::always_inline]] inline int32_t list_law(const uint32_t* law, int64_t n, TokenWeight* list, int64_t most) {
  int64_t count = 0;
  for (int64_t id = 0; id < n; ++id) {
    if (law[id] == 0) continue;
    if (count < most) list[count] = {int32_t(id), law[id]};
    ++count;
  }
  return int32_t(count);
}

[[gnu::always_inline]] inline void rows(const Sample& op, int64_t begin, int64_t end) {
  const int64_t n = op.logits.shape[1];
  for (int64_t r = begin; r < end; ++r) {
    const float* logits = op.logits.data + (op.source.empty() ? r : op.source[r]) * op.logits.stride[0];
    const RowSampling& row = op.rows[size_t(r)];
    const float best = largest(logits, n);
    if (row.temperature < kGreedyBelow || !std::isfinite(best)) {
      const int64_t id = first_equal(logits, n, best);
      if (!op.ids.empty()) op.ids[r] = int32_t(id);
      if (!op.laws.empty()) {
        uint32_t* law = op.laws.data + r * op.laws.stride[0];
        std::fill(law, law + n, 0u);
        law[id] = uint32_t(kCertain);
      }
      if (!op.lists.empty()) {
        op.lists(r, 0) = {int32_t(id), uint32_t(kCertain)};
        op.list_counts[r] = 1;
      }
      continue;
    }
    uint32_t* law = op.laws.empty() ? memory().law.get<uint32_t>(n) : op.laws.data + r * op.laws.stride[0];
    law_of(logits, n, best, row, law);
    if (!op.lists.empty()) {
      op.list_counts[r] = list_law(law, n, op.lists.data + r * op.lists.stride[0], op.lists.shape[1]);
    }
    if (op.ids.empty()) continue;
    op.ids[r] = row.role == kCoupled ? race(law, n, row) : draw(law, n, row);
  }
}

[[gnu::target("avx2,fma")]] void piece_avx2(const Sample& op, int64_t b, int64_t e) { rows(op, b, e); }
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]] void piece_avx512(const Sample& op, int64_t b, int64_t e) {
  rows(op, b, e);
}

template <auto piece>
void run(Queue& queue, const Sample& op) {
  for_row_pieces(queue, op.count(), 100 + op.logits.shape[1] * 4, [&](int64_t b, int64_t e) { piece(op, b, e); });
}

}  // namespace

const Variants<Sample> kSample{run<piece_avx2>, run<piece_avx512>};

}  // namespace fathom::cpu
