// fathom/backend/cuda/warpgroup_model.h
// Hopper's asynchronous products and what else warpgroup.cuh, multiply_group.cuh and tensor_core.cuh name, on the
// processor, for tests (machine_model.h). Written from the tables of the PTX ISA (9.7.15 wgmma: fragments in registers,
// descriptors, swizzling; 9.7.14 ldmatrix, movmatrix; setmaxnreg), not from kernels.
//
// Products happen when they are waited for, no earlier: then they read shared memory and the registers of their left
// operand, as both are then, and only then sums change. Each warp's quarter by itself, so no warp may trust another's
// wait. 16 columns are summed in double and rounded into the float sum.
#pragma once
#include "fathom/backend/cuda/machine_model.h"

namespace fathom::cuda_model {
namespace machine {

// ------------------------------------------------------------------------------------------------ products
/// As a lane issues it: the places of its registers.
struct GroupProduct {
  float* sums;
  const uint32_t* left;
  uint64_t right;
  int rows;  // of the right operand
  bool add;
};
using ProductGroups = std::deque<std::vector<GroupProduct>>;
inline thread_local ProductGroups product_groups;
inline thread_local std::vector<GroupProduct> begun_products;
inline thread_local bool fenced = false;

inline uint32_t bits(uint64_t word, int first, int count) {
  return uint32_t(word >> first & ((uint64_t(1) << count) - 1));
}

/// 16 columns of row `row` of the right operand: rows of 128 bytes in groups of eight, the groups at a stride, bits 4
/// to 6 of the address exchanged by bits 7 to 9.
inline std::array<float, 16> right_row(uint64_t descriptor, int row) {
  const uint32_t start = bits(descriptor, 0, 14) << 4, stride = bits(descriptor, 32, 14) << 4;
  std::array<float, 16> out;
  for (uint32_t piece = 0; piece < 2; ++piece) {
    const uint32_t address = start + uint32_t(row / 8) * stride + uint32_t(row % 8) * 128 + 16 * piece;
    const uint8_t* at = in_shared(address ^ (address >> 7 & 7) << 4, 16);
    for (size_t i = 0; i < 8; ++i) out[8 * piece + i] = bf16_to_float(uint16_t(at[2 * i] | at[2 * i + 1] << 8));
  }
  return out;
}

/// This lane's sums of a product whose left operand is in the registers of its four lanes.
inline void multiply_now(const GroupProduct& own_product, const std::array<const GroupProduct*, 4>& four) {
  const int t = lane() % 4;
  float left[2][16];  // rows g and g + 8
  for (int from = 0; from < 4; ++from) {
    for (int i = 0; i < 8; ++i) {
      const uint32_t word = four[size_t(from)]->left[i / 2];
      left[i / 2 % 2][2 * from + i % 2 + i / 4 * 8] = bf16_to_float(uint16_t(word >> (16 * (i % 2))));
    }
  }
  for (int i = 0; i < own_product.rows / 2; ++i) {
    if (i % 4 >= 2) continue;  // with those of row g
    const std::array<float, 16> right = right_row(own_product.right, i / 4 * 8 + 2 * t + i % 2);
    for (int h = 0; h < 2; ++h) {
      double sum = 0;
      for (size_t k = 0; k < 16; ++k) sum += double(left[h][k]) * double(right[k]);
      float& own_sum = own_product.sums[i + 2 * h];
      own_sum = float(own_product.add ? own_sum + sum : sum);
    }
  }
}

inline void finish_products(size_t pending) {
  Warp& warp = own_warp();
  warp.pointers[size_t(lane())] = &product_groups;
  meet_warp();
  std::array<const ProductGroups*, 4> four;
  for (size_t i = 0; i < 4; ++i) {
    four[i] = static_cast<const ProductGroups*>(warp.pointers[size_t(lane()) / 4 * 4 + i]);
  }
  const size_t count = product_groups.size();
  for (size_t group = 0; group + pending < count; ++group) {
    for (size_t i = 0; i < product_groups[group].size(); ++i) {
      std::array<const GroupProduct*, 4> products;
      for (size_t k = 0; k < 4; ++k) {
        if (four[k]->size() != count || (*four[k])[group].size() != product_groups[group].size()) {
          stop("the lanes of a warp have begun different products");
        }
        products[k] = &(*four[k])[group][i];
        if (products[k]->right != product_groups[group][i].right) stop("the lanes of a product name different rows");
      }
      multiply_now(product_groups[group][i], products);
    }
  }
  meet_warp();  // others have read this lane's registers
  for (; product_groups.size() > pending; product_groups.pop_front()) {
  }
}

// ------------------------------------------------------------------------------------------------ registers
constexpr int kRegisters = 65536;  // of a multiprocessor
inline thread_local int own_registers = 0;
inline int registers_at_start() { return std::min(kRegisters / own->threads / 8 * 8, 255); }
inline void change_registers(int count, bool more) {
  if (count % 8 != 0 || count < 24 || count > 256) stop("a warpgroup asks for an odd number of registers");
  if (more != (count > registers_at_start())) stop("a warpgroup gives registers that it has not or takes what it has");
  own_registers = count;
}

/// Runs `kernel` as clusters of `launch.cluster` blocks, one cluster after the other.
template <class Kernel>
void run_warpgroups(const Launch& launch, const Kernel& kernel) {
  const auto thread = [&kernel] {
    kernel();
    if (!product_groups.empty() || !begun_products.empty()) stop("a thread ends with products under way");
    own->registers += own_registers == 0 ? registers_at_start() : own_registers;
  };
  run(launch, thread, [](const auto& run_threads) {
    run_threads();
    for (const auto& block : cluster->blocks) {
      if (block->registers > kRegisters) stop("more registers are taken than were given");
    }
  });
}

/// What a launch gives a block, as the name of an array: not at a multiple of 1,024.
struct DynamicMemory {
  operator uint8_t*() const { return own->shared.data() + 1024 + 48; }
};
/// The same, declared `__align__(1024)`.
struct AlignedMemory {
  operator uint8_t*() const { return own->shared.data() + 1024; }
};

}  // namespace machine

// ------------------------------------------------------------------------------------------------ warpgroup.cuh
inline void meet(int barrier, int threads) { machine::own->some.at(size_t(barrier)).wait(threads); }
template <int Count>
void give_registers() {
  machine::change_registers(Count, false);
}
template <int Count>
void take_registers() {
  machine::change_registers(Count, true);
}
inline void begin_products() { machine::fenced = true; }
inline void commit_products() {
  machine::product_groups.push_back(std::move(machine::begun_products));
  machine::begun_products.clear();
  machine::fenced = false;
}
template <size_t Pending>
void wait_products() {
  machine::finish_products(Pending);
}
template <int Count>
void hold(float (&)[Count]) {}
/// movmatrix: this lane gets rows 2 t and 2 t + 1 of column g.
inline uint32_t transposed(uint32_t pair) {
  const auto& all = machine::exchange(pair);
  const size_t g = size_t(machine::lane()) / 4, t = size_t(machine::lane()) % 4;
  const auto element = [&](size_t row) { return all[row * 4 + g / 2] >> (g % 2 * 16) & 0xffff; };
  return element(2 * t) | element(2 * t + 1) << 16;
}

// ------------------------------------------------------------------------------------------------ multiply_group.cuh
template <int Rows>
void multiply_group(float (&sums)[Rows / 2], const uint32_t (&left)[4], uint64_t right, bool add) {
  static_assert(Rows % 8 == 0 && Rows >= 8 && Rows <= 256);
  if (!machine::fenced) machine::stop("products begin without begin_products()");
  if (machine::bits(right, 62, 2) != 1) machine::stop("rows are not described as swizzled by 128 bytes");
  if (machine::bits(right, 49, 3) != 0 || machine::bits(right, 0, 14) % 64 >= 8) {
    machine::stop("the pattern of swizzling does not begin at a multiple of 1,024");
  }
  machine::begun_products.push_back({sums, left, right, Rows, add});
}

// ------------------------------------------------------------------------------------------------ tensor_core.cuh
inline void load_matrices(uint32_t (&r)[4], uint32_t row) {
  const auto& rows = machine::exchange(row);
  if (machine::lane() < 4) {  // eight rows of 16 bytes, 32 banks of four
    std::array<uint32_t, 8> places;
    for (size_t i = 0; i < 8; ++i) places[i] = rows[8 * size_t(machine::lane()) + i] / 16 % 8;
    std::sort(places.begin(), places.end());
    if (std::unique(places.begin(), places.end()) != places.end()) machine::stop("rows of a matrix share a bank");
  }
  for (size_t i = 0; i < 4; ++i) {
    const uint8_t* at = machine::in_shared(rows[8 * i + size_t(machine::lane()) / 4], 16);
    std::memcpy(&r[i], at + machine::lane() % 4 * 4, 4);
  }
}
inline void load_matrices(uint32_t (&r)[4], const void* row) { load_matrices(r, shared_address(row)); }

// ---------------------------------------------------------------------------------------- product_few_parts.cuh
inline uint32_t load_shared(uint32_t at) {
  uint32_t v;
  std::memcpy(&v, machine::in_shared(at, 4), 4);
  return v;
}

}  // namespace fathom::cuda_model
