#include "fathom/backend/cuda/sm100/memory_launch.cuh"

namespace fathom::cuda::sm100 {

template void launch_memory_tiles<DType::f8_e4m3, false>(Call&, const Product&);
template void launch_memory_tiles<DType::f8_e4m3, true>(Call&, const Product&);

}  // namespace fathom::cuda::sm100
