// Rejection sampling of drafts, in integers.
//
// q = Q / SQ is the target's law and p = P / SP the draft's: integers over their sums, each sum at most 2^31. A draft d
// of law p is kept with probability min(1, q(d) / p(d)), else a token of the law max(q - p, 0) / total takes its place;
// then the token's law is q. Both steps are exact:
//   keep      U / 2^64 < (Q[d] / SQ) / (P[d] / SP), that is U * P[d] * SQ < Q[d] * SP * 2^64 for 64 random bits U. Both
//             sides stay below 2^126. (The grid of U is 2^-64: no probability is off by more.)
//   replace   weights max(Q * SP - P * SQ, 0), integers whose sum is at most SQ * SP <= 2^62, drawn like any law. A
//   refused
//             draft has Q[d] * SP < P[d] * SQ, and both laws have the same total SQ * SP, so some other weight is
//             positive.
// Nothing is rounded, so no correction such as the usual exp(-5e-5) is needed. Source: spec/engine.md 7.5, R-28, R-29.
#include <algorithm>
#include <numeric>

#include "fathom/backend/draw.h"
#include "fathom/backend/reference/reference.h"

namespace fathom::reference {
namespace {

using Wide = unsigned __int128;
using DraftLaw = std::span<const TokenWeight>;

uint64_t sum_of(std::span<const uint32_t> law) { return std::accumulate(law.begin(), law.end(), uint64_t(0)); }

uint64_t sum_of(DraftLaw law) {
  uint64_t sum = 0;
  for (const TokenWeight& token : law) sum += token.weight;
  return sum;
}

DraftLaw draft_law(const Accept& op, int64_t r) {
  return {op.draft_laws.data + op.draft_begin[r], size_t(op.draft_begin[r + 1] - op.draft_begin[r])};
}

uint64_t weight_of(DraftLaw law, int32_t id) {
  const auto at =
      std::lower_bound(law.begin(), law.end(), id, [](const TokenWeight& t, int32_t v) { return t.id < v; });
  return at != law.end() && at->id == id ? at->weight : 0;
}

bool keep(const Accept& op, int64_t r, uint64_t target_sum, uint64_t draft_sum) {
  const int32_t draft = op.draft_ids[r];
  const RowSampling& row = op.rows[size_t(r)];
  const uint64_t bits = random_bits(row.seed, row.position, kAccept, 0);
  return Wide(bits) * (weight_of(draft_law(op, r), draft) * target_sum) < Wide(op.target_laws(r, draft) * draft_sum)
                                                                              << 64;
}

// Calls visit(id, weight) by rising id until it returns false. `law` empty: there was no draft, and the whole target
// law stands.
template <class Visit>
void for_each_residual(std::span<const uint32_t> target, uint64_t target_sum, DraftLaw law, uint64_t draft_sum,
                       const Visit& visit) {
  size_t next = 0;
  for (size_t id = 0; id < target.size(); ++id) {
    uint64_t weight = target[id];
    if (!law.empty()) {
      const bool drafted = next < law.size() && size_t(law[next].id) == id;
      const uint64_t q = target[id] * draft_sum, p = drafted ? law[next++].weight * target_sum : 0;
      weight = q > p ? q - p : 0;
    }
    if (!visit(id, weight)) return;
  }
}

int32_t replace(const Accept& op, int64_t r, uint64_t target_sum, DraftLaw law, uint64_t draft_sum) {
  const auto target = op.target_laws.row(r);
  uint64_t total = 0;
  for_each_residual(target, target_sum, law, draft_sum, [&](size_t, uint64_t w) { return total += w, true; });
  const RowSampling& row = op.rows[size_t(r)];
  uint64_t left = uniform_below(total, row.seed, row.position, kResidual);
  int32_t found = 0;
  for_each_residual(target, target_sum, law, draft_sum, [&](size_t id, uint64_t w) {
    found = int32_t(id);
    if (left < w) return false;
    left -= w;
    return true;
  });
  return found;
}

uint64_t in_common(std::span<const uint32_t> target, DraftLaw law) {
  uint64_t sum = 0;
  for (const TokenWeight& token : law) sum += std::min(token.weight, target[size_t(token.id)]);
  return sum;
}

}  // namespace

void accept(Queue& queue, const Accept& op) {
  const int64_t worth = 1 + 16384 / op.target_laws.shape[1];  // sequences of a small vocabulary are little work
  for_each_row(queue, op.begin.shape[0] - 1, worth, [&](int64_t s) {
    const int64_t begin = op.begin[s], last = op.begin[s + 1] - 1;
    for (int64_t r = begin; r <= last && !op.common.empty(); ++r) {
      op.common[r] = r < last && op.draft_ids[r] >= 0 ? in_common(op.target_laws.row(r), draft_law(op, r)) : 0;
    }
    for (int64_t r = begin; r < last; ++r) {
      const bool drafted = op.draft_ids[r] >= 0;
      const uint64_t target_sum = sum_of(op.target_laws.row(r));
      const DraftLaw law = drafted ? draft_law(op, r) : DraftLaw{};
      const uint64_t draft_sum = sum_of(law);
      if (drafted && keep(op, r, target_sum, draft_sum)) continue;
      op.accepted[s] = int32_t(r - begin);
      op.next[s] = replace(op, r, target_sum, law, draft_sum);
      return;
    }
    op.accepted[s] = int32_t(last - begin);
    op.next[s] = op.target_ids[last];
  });
}

}  // namespace fathom::reference
