#include "fathom/backend/cuda/pairs_launch.cuh"

namespace fathom::cuda {

template void launch_pair_product<DType::bf16>(Call&, const Product&, int, WholeProduct);

}  // namespace fathom::cuda
