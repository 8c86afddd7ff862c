// fathom/backend/cuda/tensor_core.cuh
// The instructions that kernels with matrix products use, by name: asynchronous copies into shared memory, loads of
// matrix fragments, and the 16 x 8 x 16 product of bf16 with float sums. Source: PTX ISA, 9.7.9.25, 9.7.14.
#pragma once
#include <cuda_bf16.h>

#include <cstdint>

namespace fathom::cuda {

__device__ inline uint32_t shared_address(const void* at) { return uint32_t(__cvta_generic_to_shared(at)); }

/// 16, 8 or 4 bytes from device memory to an address of shared memory: the first `bytes` of them, zeros behind (nothing
/// is read where that is 0).
template <int Size>
__device__ inline void copy_async(uint32_t to, const void* from, uint32_t bytes) {
  if constexpr (Size == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes));
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(Size), "r"(bytes));
  }
}
/// The same whole, or zeros when not `valid`.
template <int Size>
__device__ inline void copy_async(void* to, const void* from, bool valid) {
  copy_async<Size>(shared_address(to), from, valid ? uint32_t(Size) : 0u);
}
/// All of them.
template <int Size>
__device__ inline void copy_async(uint32_t to, const void* from) {
  if constexpr (Size == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from));
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(from), "n"(Size));
  }
}
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;"); }
/// Waits until at most `Pending` groups of this thread are under way.
template <int Pending>
__device__ inline void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending));
}

/// d += a . b: a 16 x 16 (rows g and g + 8 of lane / 4), b 16 x 8, d 16 x 8.
__device__ inline void multiply_add(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// Four 8 x 8 matrices of bf16; lane l gives the address of row l % 8 of matrix l / 8.
__device__ inline void load_matrices(uint32_t (&r)[4], uint32_t row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(row));
}
__device__ inline void load_matrices(uint32_t (&r)[4], const void* row) { load_matrices(r, shared_address(row)); }
__device__ inline void load_matrices_transposed(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row)));
}
/// Four 8 x 8 matrices of bf16 to shared memory; lane l gives the address of row l % 8 of matrix l / 8.
__device__ inline void store_matrices(void* row, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)), "r"(a),
               "r"(b), "r"(c), "r"(d)
               : "memory");
}

/// max(dot, 0); a NaN stays one.
__device__ inline float above_zero(float dot) {
  float out;
  asm("max.NaN.f32 %0, %1, 0f00000000;" : "=f"(out) : "f"(dot));
  return out;
}

// ------------------------------------------------------------------------- codes to pairs of bf16, in registers
/// Two products of bf16, each rounded once (here always exact: powers of two).
__device__ inline uint32_t times(uint32_t pair, uint32_t factors) {
  const __nv_bfloat162 product =
      __hmul2(*reinterpret_cast<const __nv_bfloat162*>(&pair), *reinterpret_cast<const __nv_bfloat162*>(&factors));
  return *reinterpret_cast<const uint32_t*>(&product);
}
/// The bf16 whose exponent field is `field`, twice.
__device__ inline uint32_t power_pair(uint32_t field) { return field << 7 | field << 23; }

/// Four E4M3 codes -> two pairs, too small by 2^120.
__device__ inline void spread_e4m3(uint32_t codes, uint32_t& low, uint32_t& high) {
  const uint32_t a = __byte_perm(codes, 0, 0x1404), b = __byte_perm(codes, 0, 0x3424);
  low = (a & 0x80008000u) | ((a >> 4) & 0x07f007f0u);
  high = (b & 0x80008000u) | ((b >> 4) & 0x07f007f0u);
}
/// Eight E2M1 codes -> four pairs, too small by 2^126. Codes lie as stored: the even element in the low nibble.
__device__ inline void spread_e2m1(uint32_t codes, uint32_t (&pairs)[4]) {
  const uint32_t even = codes << 4;  // the even element of each byte at its top
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t v = __byte_perm(codes, even, uint32_t(i << 12 | (4 + i) << 4));
    pairs[i] = (v & 0x80008000u) | ((v >> 6) & 0x01c001c0u);
  }
}

/// The factor(s) that bring spread codes to value * 2^(code - 127): what lacks and the scale in one product where that
/// is a finite bf16, else in two.
struct Factors {
  uint32_t first, second;  // pairs; second is 1 nearly always
  bool two;
};
__device__ inline Factors factors_of(uint32_t scale_code, uint32_t lacking) {
  const uint32_t field = scale_code + lacking;
  if (field <= 254) return {power_pair(field), power_pair(127), false};
  return {power_pair(254), power_pair(field - 254 + 127), true};
}

}  // namespace fathom::cuda
