// fathom/backend/cuda/sm100/tensor_memory.cuh
// Blackwell's asynchronous products (tcgen05) and the tensor memory that they add into, by name. sm_100a.
// Source: PTX ISA 9.0, 9.7.16. Barriers and copies: warpgroup.cuh. Not run on such a GPU yet.
//
// Tensor memory has 128 lanes and 512 columns of 32 bits a multiprocessor. An address has the lane in its upper half.
// One thread issues products; they and copies of scales before them happen in the order of their issue.
#pragma once
#include "fathom/backend/cuda/sm100/descriptors.h"
#include "fathom/backend/cuda/warpgroup.cuh"

namespace fathom::cuda::sm100 {

// ------------------------------------------------------------------------------------------------ shared memory
/// What the launch gave the block beside its own variables.
__device__ inline uint8_t* dynamic_memory() {
  extern __shared__ uint8_t given_by_launch[];
  return given_by_launch;
}
/// 16 bytes.
__device__ inline void store_piece(uint32_t to, const uint32_t (&v)[4]) {
  asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3])
               : "memory");
}

// ------------------------------------------------------------------------------------------------ tensor memory
/// Takes `Columns` columns (a power of two of 32 to 512), waiting until they are free; their address goes to shared
/// memory. One whole warp, which also gives them back.
template <int Columns>
__device__ inline void take_columns(uint32_t& address) {
  asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(shared_address(&address)),
               "n"(Columns)
               : "memory");
  asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;");
}
template <int Columns>
__device__ inline void give_columns(uint32_t address) {
  asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(address), "n"(Columns));
}

/// Around what orders threads (barriers): what this thread did in tensor memory is before it, or after it.
__device__ inline void end_before_meeting() { asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory"); }
__device__ inline void begin_after_meeting() { asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory"); }

/// Of 32 lanes 32 columns each: lane l of the warp gets those of its lane. Warp w of the block reaches lanes
/// 32 (w % 4) ... + 31 only.
__device__ inline void load_sums(uint32_t (&v)[32], uint32_t address) {
  // The wait is part of it: nothing may use the registers before.
  asm volatile(
      "tcgen05.ld.sync.aligned.32x32b.x32.b32 {"
      "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,"
      "%30,%31}, [%32];"
      "tcgen05.wait::ld.sync.aligned;"
      : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]), "=r"(v[4]), "=r"(v[5]), "=r"(v[6]), "=r"(v[7]), "=r"(v[8]),
        "=r"(v[9]), "=r"(v[10]), "=r"(v[11]), "=r"(v[12]), "=r"(v[13]), "=r"(v[14]), "=r"(v[15]), "=r"(v[16]),
        "=r"(v[17]), "=r"(v[18]), "=r"(v[19]), "=r"(v[20]), "=r"(v[21]), "=r"(v[22]), "=r"(v[23]), "=r"(v[24]),
        "=r"(v[25]), "=r"(v[26]), "=r"(v[27]), "=r"(v[28]), "=r"(v[29]), "=r"(v[30]), "=r"(v[31])
      : "r"(address)
      : "memory");
}

// ------------------------------------------------------------------------------------------------ products
/// True in one thread of a whole warp, always the same one. The compiler keeps what that thread alone uses in uniform
/// registers, where instructions of tensor memory want it, if the rest of the warp comes along.
__device__ inline bool elected() {
  uint32_t chosen;
  asm volatile("{.reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p;}" : "=r"(chosen));
  return chosen != 0;
}
/// A value that all lanes have.
__device__ inline uint32_t of_warp(uint32_t v) { return __shfl_sync(~0u, v, 0); }

/// sums = a . b^T + (add ? sums : 0): 16 columns of bf16. What operands were written must have been published
/// (publish_to_products()).
__device__ inline void multiply_bf16(uint32_t sums, uint64_t a, uint64_t b, uint32_t instruction, bool add) {
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %4, 0;"
      "tcgen05.mma.cta_group::1.kind::f16 [%0], %1, %2, %3, p;}" ::"r"(sums),
      "l"(a), "l"(b), "r"(instruction), "r"(uint32_t(add))
      : "memory");
}
/// The same of 32 columns of int8.
__device__ inline void multiply_int8(uint32_t sums, uint64_t a, uint64_t b, uint32_t instruction, bool add) {
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %4, 0;"
      "tcgen05.mma.cta_group::1.kind::i8 [%0], %1, %2, %3, p;}" ::"r"(sums),
      "l"(a), "l"(b), "r"(instruction), "r"(uint32_t(add))
      : "memory");
}
/// The same of 32 columns of codes, each row's times its scale: these are in tensor memory, at column addresses.
__device__ inline void multiply_scaled(uint32_t sums, uint64_t a, uint64_t b, uint32_t instruction, uint32_t a_scales,
                                       uint32_t b_scales, bool add) {
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %6, 0;"
      "tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale.scale_vec::1X [%0], %1, %2, %3, [%4], [%5], p;}" ::"r"(sums),
      "l"(a), "l"(b), "r"(instruction), "r"(a_scales), "r"(b_scales), "r"(uint32_t(add))
      : "memory");
}
/// A block of 512 bytes of scales into four columns, for every group of 32 lanes the same.
__device__ inline void copy_scales(uint32_t columns, uint64_t scales) {
  asm volatile("tcgen05.cp.cta_group::1.32x128b.warpx4 [%0], %1;" ::"r"(columns), "l"(scales) : "memory");
}
/// The barrier gets an arrival when all products and copies that this thread issued have ended.
__device__ inline void arrive_after_products(uint64_t& barrier) {
  asm volatile(
      "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(shared_address(&barrier))
      : "memory");
}

}  // namespace fathom::cuda::sm100
