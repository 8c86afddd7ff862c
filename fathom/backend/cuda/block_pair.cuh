// fathom/backend/cuda/block_pair.cuh
// What the blocks of a cluster need to give each other what they have made. sm_90a. Source: PTX ISA, 9.7.13
// (barrier.cluster, mbarrier), 9.7.9.12 (st.async), 9.7.9.25 (cp.async.bulk).
#pragma once
#include "fathom/backend/cuda/warpgroup.cuh"

namespace fathom::cuda {

__device__ inline uint32_t rank_in_cluster() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
/// All threads of all blocks of the cluster. Orders nothing by itself: what a block may do after is what the others did
/// with the tensor cores or read before.
__device__ inline void arrive_in_cluster() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
__device__ inline void wait_for_cluster() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
/// Both, and what each thread wrote before is seen by all after.
__device__ inline void meet_cluster() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  wait_for_cluster();
}
/// The address of the same place in block `rank`'s shared memory.
__device__ inline uint32_t address_in_block(const void* at, uint32_t rank) {
  uint32_t address;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared_address(at)), "r"(rank));
  return address;
}
/// A store that counts at a barrier of that block (expect_bytes()).
__device__ inline void store_in_block(uint32_t address, float v, uint32_t barrier) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(address), "f"(v),
               "r"(barrier)
               : "memory");
}

/// So many bytes, a multiple of 16, of this block's shared memory to that block's, counted at a barrier there. What
/// this thread did not write must have been published (publish_to_products()).
__device__ inline void copy_to_block(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "r"(shared_address(from)), "r"(bytes), "r"(barrier)
               : "memory");
}
/// Arrives at a barrier of any block of the cluster, after what this thread has read.
__device__ inline void arrive_in_block(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/// copy_bulk() to this address in both blocks of a pair, counted by the barrier at this place in each. Pairs: blocks 0
/// and 1 of the cluster, 2 and 3, ...; this one is block `rank`.
__device__ inline void copy_bulk_to_pair(uint32_t to, const void* from, uint32_t bytes, uint64_t& barrier, int rank) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], "
      "%4;" ::"r"(to),
      "l"(from), "r"(bytes), "r"(shared_address(&barrier)), "h"(uint16_t(3 << rank / 2 * 2))
      : "memory");
}
/// 16 bytes of a block's shared memory, at an address of address_in_block().
__device__ inline float4 load_of_block(uint32_t address) {
  float4 v;
  asm volatile("ld.shared::cluster.v4.f32 {%0,%1,%2,%3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(address));
  return v;
}

}  // namespace fathom::cuda
