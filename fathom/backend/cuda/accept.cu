// Rejection sampling of drafts, in integers; the arithmetic and its reasons are in reference/accept.cpp. One block a
// sequence: it walks over the drafts until one is refused. Bytes: a target law (4 bytes a token) for each draft that is
// looked at, and twice more for the refused one.
#include "fathom/backend/cuda/block_scan.cuh"
#include "fathom/backend/cuda/kernels.h"
#include "fathom/backend/cuda/launch.h"
#include "fathom/backend/draw.h"

namespace fathom::cuda {
namespace {

constexpr int kThreads = 512, kWarps = kThreads / 32;
using Wide = unsigned __int128;

struct Drafts {
  const int32_t* begin;  // [sequences + 1]
  Rows<const uint32_t> target;
  int64_t vocabulary;
  const int32_t *target_ids, *draft_ids, *draft_begin;
  const TokenWeight* laws;
  const RowSampling* rows;
  int32_t *accepted, *next;
  uint64_t* common;  // null: not wanted
};

__device__ uint64_t weight_of(const TokenWeight* law, int count, int32_t id) {
  int low = 0, high = count;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (law[middle].id < id) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low < count && law[low].id == id ? law[low].weight : 0;
}

template <class Weight>
__device__ uint64_t sum_of(int64_t n, uint64_t* lanes, const Weight& weight) {
  uint64_t own = 0, total = 0;
  for (int64_t i = threadIdx.x; i < n; i += kThreads) own += weight(i);
  before_in_block(own, lanes, total);
  return total;
}

__global__ void __launch_bounds__(kThreads) accept_kernel(const __grid_constant__ Drafts op) {
  __shared__ uint64_t lanes[kWarps];
  __shared__ uint64_t drawn;
  __shared__ int64_t found;
  __shared__ bool kept;
  const int64_t s = blockIdx.x, begin = op.begin[s], last = op.begin[s + 1] - 1;
  for (int64_t r = begin; r <= last && op.common != nullptr; ++r) {
    const bool drafted = r < last && op.draft_ids[r] >= 0;
    const TokenWeight* law = drafted ? op.laws + op.draft_begin[r] : nullptr;
    const uint32_t* target = op.target.row(r);
    const uint64_t sum = sum_of(drafted ? op.draft_begin[r + 1] - op.draft_begin[r] : 0, lanes,
                                [&](int64_t i) { return uint64_t(min(law[i].weight, target[law[i].id])); });
    if (threadIdx.x == 0) op.common[r] = sum;
  }
  for (int64_t r = begin; r < last; ++r) {
    const int32_t draft = op.draft_ids[r];
    const uint32_t* target = op.target.row(r);
    const uint64_t target_sum = sum_of(op.vocabulary, lanes, [&](int64_t i) { return uint64_t(target[i]); });
    const TokenWeight* law = nullptr;
    int count = 0;
    if (draft >= 0) {
      law = op.laws + op.draft_begin[r];
      count = op.draft_begin[r + 1] - op.draft_begin[r];
    }
    const uint64_t draft_sum = sum_of(count, lanes, [&](int64_t i) { return uint64_t(law[i].weight); });
    if (threadIdx.x == 0) {
      kept = false;
      if (draft >= 0) {
        const uint64_t bits = random_bits(op.rows[r].seed, op.rows[r].position, kAccept, 0);
        kept = Wide(bits) * (weight_of(law, count, draft) * target_sum) < Wide(target[draft] * draft_sum) << 64;
      }
    }
    __syncthreads();
    if (kept) continue;
    const auto residual = [&](int64_t i) -> uint64_t {
      if (count == 0) return target[i];  // there was no draft: the whole law stands
      const uint64_t q = target[i] * draft_sum, p = weight_of(law, count, int32_t(i)) * target_sum;
      return q > p ? q - p : 0;
    };
    const uint64_t total = sum_of(op.vocabulary, lanes, residual);
    if (threadIdx.x == 0) drawn = uniform_below(total, op.rows[r].seed, op.rows[r].position, kResidual);
    __syncthreads();
    const int64_t id = find_in_sum(op.vocabulary, drawn, lanes, &found, residual);
    if (threadIdx.x == 0) {
      op.accepted[s] = int32_t(r - begin);
      op.next[s] = int32_t(id);
    }
    return;
  }
  if (threadIdx.x == 0) {
    op.accepted[s] = int32_t(last - begin);
    op.next[s] = op.target_ids[last];
  }
}

}  // namespace

void accept(Queue& queue, const Accept& op) {
  const int64_t sequences = op.begin.shape[0] - 1;
  if (sequences <= 0) return;
  Call call(queue, "accept");
  Drafts drafts{};
  drafts.begin = call.in(op.begin).data;
  drafts.target = rows_of(call.in(op.target_laws));
  drafts.vocabulary = op.target_laws.shape[1];
  drafts.target_ids = call.in(op.target_ids).data;
  drafts.draft_ids = call.in(op.draft_ids).data;
  drafts.draft_begin = call.in(op.draft_begin).data;
  drafts.laws = call.in(op.draft_laws).data;
  drafts.rows = call.in(op.rows);
  drafts.accepted = call.out(op.accepted).data;
  drafts.next = call.out(op.next).data;
  if (!op.common.empty()) drafts.common = call.out(op.common).data;
  accept_kernel<<<grid(sequences), kThreads, 0, call.stream()>>>(drafts);
}

}  // namespace fathom::cuda
