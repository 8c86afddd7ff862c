#include "fathom/backend/cuda/many_launch.cuh"

namespace fathom::cuda {

template void launch_many_product<DType::bf16>(Call&, const Product&, int);

}  // namespace fathom::cuda
