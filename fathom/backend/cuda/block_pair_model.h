// fathom/backend/cuda/block_pair_model.h
// Blocks of a cluster that run at the same time and reach each other's shared memory: what block_pair.cuh names, and
// what else a kernel of clusters needs, on the processor, for tests (warpgroup_model.h). Written from the PTX ISA
// (9.7.9.25 copies to several blocks, 9.7.13 barriers, 9.7.9 mapa), not from kernels.
#pragma once
#include "fathom/backend/cuda/warpgroup_model.h"

#undef __shared__
#define __shared__ static thread_local  // barriers only: their places count, not what is there (machine_model.h)

namespace fathom::cuda_model {

struct uint2 {
  uint32_t x, y;
};
struct float4 {
  float x, y, z, w;
};
inline uint2 make_uint2(uint32_t x, uint32_t y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline void __threadfence() {}

// ------------------------------------------------------------------------------------------------ block_pair.cuh
namespace machine {
/// Of this thread, at barriers of other blocks: on their way.
inline thread_local const auto arrivals = std::make_shared<std::atomic<int>>(0);
}  // namespace machine

inline uint32_t rank_in_cluster() { return uint32_t(machine::own->rank); }
/// All that the thread did is done before, but for copies, which barriers count.
inline void meet_cluster() {
  for (int left; (left = *machine::arrivals) != 0;) machine::arrivals->wait(left);
  machine::cluster->all.wait(machine::own->threads * int(machine::cluster->blocks.size()));
}
inline uint32_t address_in_block(const void* at, uint32_t rank) {
  if (rank >= machine::cluster->blocks.size()) machine::stop("the cluster has no such block");
  return machine::in_block(shared_address(at), int(rank));
}
inline void arrive_in_block(uint32_t barrier) {
  ++*machine::arrivals;
  machine::cluster->copies->put([left = machine::arrivals, at = machine::key_of(barrier)] {
    machine::change(at, 1, 0);
    --*left;
    left->notify_all();
  });
}
inline void copy_bulk_to_pair(uint32_t to, const uint8_t* from, uint32_t bytes, uint64_t& barrier, int rank) {
  for (const int other : {rank / 2 * 2, rank / 2 * 2 + 1}) {
    machine::copy_bulk(machine::in_block(to, other), from, bytes,
                       machine::key_of(machine::in_block(shared_address(&barrier), other)));
  }
}
inline float4 load_of_block(uint32_t address) {
  float4 v;
  std::memcpy(&v, machine::in_shared(address, 16), 16);
  return v;
}

// ------------------------------------------------------------------------------------------------ warpgroup.cuh
inline void wait_phase(uint32_t barrier, uint32_t parity) { machine::wait_for(machine::key_of(barrier), parity); }
inline void arrive_after_copies(uint32_t barrier) { machine::arrive_after_copies(machine::key_of(barrier)); }

}  // namespace fathom::cuda_model
