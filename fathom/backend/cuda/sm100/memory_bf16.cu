#include "fathom/backend/cuda/sm100/memory_launch.cuh"

namespace fathom::cuda::sm100 {

template void launch_memory_tiles<DType::bf16, false>(Call&, const Product&);

}  // namespace fathom::cuda::sm100
