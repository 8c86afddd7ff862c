// Latent attention: which kernel runs, and the one in float: for f32 activations and caches (the golden modes), and for
// widths that the tensor-core kernel (latent_attention_tensor.cu) does not have. A block has one row and eight heads, a
// warp a head; 32 keys at a time lie decoded in shared memory. The softmax runs along: a new best scales what is there.
#include "fathom/backend/cuda/attention.cuh"
#include "fathom/backend/cuda/kernels.h"

namespace fathom::cuda {
namespace {

constexpr int kHeads = 8, kKeys = 32, kMostOwn = 32;  // channels of a lane: at most 1,024 in all

template <class A>
__global__ void __launch_bounds__(32 * kHeads) attention_float_kernel(const __grid_constant__ Attention op) {
  extern __shared__ float memory[];
  const int channels = op.channels, stride = channels + 1;
  float* keys = memory;                    // [kKeys][stride]
  float* queries = keys + kKeys * stride;  // [kHeads][channels]
  const int64_t r = blockIdx.x;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, head = int(blockIdx.y) * kHeads + warp;
  const int64_t sequence = op.sequence[r];
  const int64_t window = op.window_of(r), count = window + op.entries_of(r);
  const A* query_row = reinterpret_cast<const A*>(op.queries) + r * op.query_stride;
  for (int i = lane; i < channels; i += 32) {
    queries[warp * channels + i] = head < op.heads ? load(query_row[int64_t(head) * channels + i]) : 0.0f;
  }
  float best = head < op.heads ? op.sink[head] : 0.0f, total = 1;  // the sink takes its share and gives nothing
  float own[kMostOwn] = {};
  for (int64_t first = 0; first < count; first += kKeys) {
    const int here = int(min(int64_t(kKeys), count - first));
    __syncthreads();
    for (int k = warp; k < here; k += kHeads) {
      const int64_t i = first + k;
      const RowFormat format = i < window ? op.window_format : op.entry_format;
      const uint8_t* row = i < window ? op.window_entry(r, sequence, i) : op.latent_entry(r, sequence, i - window);
      for (int c = lane; c < channels; c += 32) keys[k * stride + c] = decode(format, row, channels, c);
    }
    __syncthreads();
    double dot = 0;
    if (lane < here) {
      for (int c = 0; c < channels; ++c) dot += double(queries[warp * channels + c]) * keys[lane * stride + c];
    }
    const float logit = lane < here ? float(dot * op.scale) : -INFINITY;
    const float next = fmaxf(best, warp_max(logit));
    const float shrink = expf(best - next), p = lane < here ? expf(logit - next) : 0.0f;
    best = next;
    total = total * shrink + warp_sum(p);
#pragma unroll
    for (int j = 0; j < kMostOwn; ++j) own[j] *= shrink;
    for (int k = 0; k < here; ++k) {
      const float weight = __shfl_sync(~0u, p, k);
#pragma unroll
      for (int j = 0; j < kMostOwn; ++j) {
        if (lane + 32 * j < channels) own[j] = fmaf(weight, keys[k * stride + lane + 32 * j], own[j]);
      }
    }
  }
  if (head >= op.heads) return;
  A* out = reinterpret_cast<A*>(op.out) + r * op.out_stride + int64_t(head) * channels;
#pragma unroll
  for (int j = 0; j < kMostOwn; ++j) {
    if (lane + 32 * j < channels) store(out[lane + 32 * j], own[j] / total);
  }
}

}  // namespace

void latent_attention(Queue& queue, const LatentAttention& op) {
  if (op.rows.rows() == 0) return;
  Call call(queue, "latent_attention");
  const RowSet rows = call.in(op.rows), fresh_rows = call.in(op.fresh_rows);
  const AnyView queries = call.in(op.queries);
  const AnyViewMut out = call.out(op.out);
  Attention a{};
  a.sequence = rows.sequence.data;
  a.rows = rows.rows();
  a.queries = queries.data;
  a.query_stride = queries.row_stride;
  a.heads = op.heads;
  a.channels = int(queries.cols / op.heads);
  a.fresh_positions = fresh_rows.positions.data;
  a.fresh_begin = fresh_rows.begin.data;
  const auto fresh = call.in(op.fresh);
  a.fresh = fresh.data;
  a.fresh_stride = fresh.stride[0];
  a.window_format = op.window_format;
  a.ring = call.region(op.ring, false);
  a.window_begin = call.in(op.window_begin).data;
  a.window_end = call.in(op.window_end).data;
  a.entry_format = op.entry_format;
  if (!op.entries.empty()) {
    a.latents = call.region(op.latents, false);
    const auto entries = call.in(op.entries);
    a.entries = entries.data;
    a.entry_stride = entries.stride[0];
    a.most_entries = entries.shape[1];
    a.count = call.in(op.count).data;
  }
  a.sink = call.in(op.sink).data;
  a.scale = op.scale;
  a.out = out.data;
  a.out_stride = out.row_stride;
  const bool warpgroups = call.instructions() == InstructionSet::sm_90a;  // others: mma.sync, which all have
  if (warpgroups && queries.dtype == DType::bf16 && fits_attention_warpgroups(a)) {
    return launch_attention_warpgroups(call, a);
  }
  if (queries.dtype == DType::bf16 && fits_attention_tensor_cores(a)) return launch_attention_tensor(call, a);
  check(a.channels <= 32 * kMostOwn, "a head has at most 1,024 channels");
  const int bytes = int(sizeof(float)) * (kKeys * (a.channels + 1) + kHeads * a.channels);
  const dim3 blocks(grid(a.rows), unsigned((a.heads + kHeads - 1) / kHeads));
  with_float_type(queries.dtype, [&]<class A>(Type<A>) {
    expect(cudaFuncSetAttribute(attention_float_kernel<A>, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 * 1024),
           "latent_attention");
    attention_float_kernel<A><<<blocks, 32 * kHeads, bytes, call.stream()>>>(a);
  });
}

}  // namespace fathom::cuda
