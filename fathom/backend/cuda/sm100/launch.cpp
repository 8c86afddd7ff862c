// What a build with kernels for sm_100a has; without_sm100/launch.cpp is its other half.
#include "fathom/backend/cuda/instruction_set.h"
#include "fathom/backend/cuda/product.h"

namespace fathom::cuda {
namespace sm100 {

template <DType Type, bool Scaled>
void launch_memory_tiles(Call& call, const Product& p);  // memory_bf16.cu, memory_fp8.cu, memory_fp4.cu

}  // namespace sm100

bool has_sm100_kernels() { return true; }

void launch_memory_product(Call& call, const Product& p, bool scaled) {
  using namespace sm100;
  switch (p.weight_type) {
    case DType::bf16: return launch_memory_tiles<DType::bf16, false>(call, p);
    case DType::f8_e4m3:
      return scaled ? launch_memory_tiles<DType::f8_e4m3, true>(call, p)
                    : launch_memory_tiles<DType::f8_e4m3, false>(call, p);
    default:
      return scaled ? launch_memory_tiles<DType::f4_e2m1, true>(call, p)
                    : launch_memory_tiles<DType::f4_e2m1, false>(call, p);
  }
}

}  // namespace fathom::cuda
