// fathom/backend/cuda/norm_row.cuh
// What a block does with a row that it has made in shared memory: the norm, the store, and its Q8 form. The bits are
// those of rms_norm.cu and encode_rows.cu one after the other: sums of squares in the same order, and the same
// roundings.
#pragma once
#include "fathom/backend/cuda/encode.cuh"

namespace fathom::cuda {

/// A norm as kernels take it. weight null: none.
struct RowNorm {
  const void* weight = nullptr;
  bool bf16 = false;  // of the weight; else f32
  float eps = 0;
  int threads = 0;  // that share the sum of squares, as in rms_norm.cu
};
constexpr int kMostRowThreads = 256;
inline RowNorm row_norm(const AnyView& weight, float eps, int64_t vectors) {
  return {weight.data, weight.dtype == DType::bf16, eps, row_threads(vectors, kMostRowThreads)};
}

/// Threads of a block that works on a row of `vectors`, each with as many of them. 640: one of Flash's rows.
constexpr int kSiteThreads = 640;
inline int site_threads(int64_t vectors) {
  const int64_t turns = (vectors + kSiteThreads - 1) / kSiteThreads, threads = (vectors + turns - 1) / turns;
  return int((threads + 31) / 32 * 32);
}

/// Shared memory of a row. Models' rows have at most 16 KiB.
inline int64_t staged_bytes(int64_t columns, DType dtype) {
  const int64_t bytes = bytes_of(dtype, columns);
  check(bytes <= 47 * 1024, "rows of at most 47 KiB are normed while they are made");
  return bytes;
}

template <int Width>
__device__ inline void load_weight(const RowNorm& norm, int64_t i, float (&out)[Width]) {
  if (norm.bf16) {
    load_some(static_cast<const Bf16*>(norm.weight), i, out);
  } else {
    load_some(static_cast<const float*>(norm.weight), i, out);
  }
}

/// Normes `row` [columns] in shared memory, rounded to A; done(i, v) sees each of this thread's vectors. The row was
/// written before the block last met, and may be read once it meets again.
template <int Width, class A, class Done>
__device__ void norm_row(A* row, int64_t columns, const RowNorm& norm, float* lanes, const Done& done) {
  const int64_t vectors = columns / Width;
  float first_weight[Width];  // on its way while the block adds
  if (threadIdx.x < vectors) load_weight(norm, threadIdx.x, first_weight);
  float squares = 0;
  if (int(threadIdx.x) < norm.threads) {
    for (int64_t i = threadIdx.x; i < vectors; i += norm.threads) {
      float some[Width];
      load_some(row, i, some);
#pragma unroll
      for (int k = 0; k < Width; ++k) squares += some[k] * some[k];
    }
  }
  // As block_sum() adds them; warps that had no part would only add zeros.
  const int warps = norm.threads / 32 < int(blockDim.x) / 32 ? norm.threads / 32 : int(blockDim.x) / 32;
  squares = warp_sum(squares);
  if (threadIdx.x % 32 == 0 && int(threadIdx.x) < norm.threads) lanes[threadIdx.x / 32] = squares;
  __syncthreads();
  float sum = 0;
#pragma unroll
  for (int w = 0; w < kMostRowThreads / 32; ++w) {
    if (w < warps) sum += lanes[w];
  }
  const float scale = inverse_rms(sum, columns, norm.eps);
  const auto finish = [&](int64_t i, const float(&w)[Width]) {
    float some[Width];
    load_some(row, i, some);
#pragma unroll
    for (int k = 0; k < Width; ++k) some[k] = some[k] * scale * w[k];
    store_some(row, i, some);
    done(i, some);
  };
  if (threadIdx.x < vectors) finish(threadIdx.x, first_weight);
  for (int64_t i = threadIdx.x + blockDim.x; i < vectors; i += blockDim.x) {
    float w[Width];
    load_weight(norm, i, w);
    finish(i, w);
  }
}

/// What becomes of a row that a block has made.
template <class A>
struct RowEnd {
  RowNorm norm;
  Rows<A> out;     // data null: not stored
  Destination q8;  // codes null: not wanted
};

/// `row` was written before the block last met.
template <int Width, class A>
__device__ void finish_row(A* row, int64_t columns, int64_t r, const RowEnd<A>& end, float* lanes) {
  const auto keep = [&](int64_t i, const float(&v)[Width]) {
    if (end.out.data != nullptr) store_some(end.out.row(r), i, v);
  };
  if (end.norm.weight != nullptr) {
    norm_row<Width>(row, columns, end.norm, lanes, keep);
  } else {
    for (int64_t i = threadIdx.x; i < columns / Width; i += blockDim.x) {
      float some[Width];
      load_some(row, i, some);
      keep(i, some);
    }
  }
  if (end.q8.codes == nullptr) return;
  __syncthreads();
  // Eight at a time, wherever rows lie in memory: here they are aligned.
  encode_octets<RowFormat::q8>(r, int(columns / 8), int(columns), end.q8, threadIdx.x, blockDim.x,
                               [&](int o, float(&v)[8]) { load_octet<8>(row, o, v); });
}

}  // namespace fathom::cuda
