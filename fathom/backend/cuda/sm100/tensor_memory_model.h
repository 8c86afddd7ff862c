// fathom/backend/cuda/sm100/tensor_memory_model.h
// A multiprocessor of sm_100a on the processor, for tests: every name that product_memory.cuh uses, so that the
// kernel's own text runs here (machine_model.h). Written from the PTX ISA (9.7.16), not from the kernel. Products and
// their arrivals happen in a thread that is in no hurry. Sums are double.
#pragma once
#include "fathom/backend/cuda/machine_model.h"
#include "fathom/backend/cuda/sm100/descriptors.h"
#include "fathom/backend/cuda/sm100/tensor_core_model.h"

namespace fathom::cuda_model::sm100 {
using namespace fathom::cuda::sm100;  // descriptors.h, tensor_core_model.h

namespace model {
struct Tensor {
  TensorCore memory;
  machine::Engine core{true};
  bool taken = false;  // the columns of tensor memory
};
inline std::unique_ptr<Tensor> tensor;

/// Runs `kernel` as `blocks` blocks, one after the other.
template <class Kernel>
void run_blocks(unsigned blocks, unsigned threads, const Kernel& kernel) {
  machine::run({.blocks = blocks, .threads = threads}, kernel, [](const auto& run) {
    tensor = std::make_unique<Tensor>(TensorCore{machine::cluster->blocks[0]->shared});
    run();
    if (tensor->taken) machine::stop("a block keeps its tensor memory");
    tensor.reset();
  });
}
}  // namespace model

/// tensor_memory.cuh.
inline uint8_t* dynamic_memory() { return machine::own->shared.data() + 48; }  // not at a multiple of 1,024
inline void store_piece(uint32_t to, const uint32_t (&v)[4]) { std::memcpy(machine::in_shared(to, 16), v, 16); }
template <int Columns>
void take_columns(uint32_t& address) {
  machine::meet_warp();
  if (machine::lane() == 0) {
    if (model::tensor->taken) machine::stop("tensor memory is taken twice");
    model::tensor->taken = true;
    address = 0;
  }
  machine::meet_warp();
}
template <int Columns>
void give_columns(uint32_t address) {
  machine::meet_warp();
  if (machine::lane() == 0) {
    if (!model::tensor->taken || address != 0) machine::stop("tensor memory is given back that was not taken");
    model::tensor->taken = false;
  }
  machine::meet_warp();
}
inline void end_before_meeting() {}
inline void begin_after_meeting() {}
inline bool elected() {
  machine::meet_warp();
  return machine::lane() == 0;
}
inline uint32_t of_warp(uint32_t v) { return machine::exchange(v, 0); }
inline void load_sums(uint32_t (&v)[32], uint32_t address) {
  if (int(address >> 16) != 32 * (machine::warp() % 4)) machine::stop("a warp reaches lanes that are not its own");
  for (size_t i = 0; i < 32; ++i) {
    const auto& column = model::tensor->memory.sums.at((address & 0xffff) + i);
    v[i] = std::bit_cast<uint32_t>(float(column[(address >> 16) + size_t(machine::lane())]));
  }
}
inline void multiply_bf16(uint32_t sums, uint64_t a, uint64_t b, uint32_t instruction, bool add) {
  model::tensor->core.put([=] { model::tensor->memory.multiply(sums, a, b, instruction, false, 0, 0, add); });
}
inline void multiply_scaled(uint32_t sums, uint64_t a, uint64_t b, uint32_t instruction, uint32_t a_scales,
                            uint32_t b_scales, bool add) {
  model::tensor->core.put(
      [=] { model::tensor->memory.multiply(sums, a, b, instruction, true, a_scales, b_scales, add); });
}
inline void copy_scales(uint32_t columns, uint64_t scales) {
  model::tensor->core.put([=] { model::tensor->memory.copy_scales(columns, scales); });
}
inline void arrive_after_products(uint64_t& barrier) {
  model::tensor->core.put([at = machine::key_of(barrier)] { machine::change(at, 1, 0); });
}

}  // namespace fathom::cuda_model::sm100
