#include "fathom/backend/cuda/pairs_launch.cuh"

namespace fathom::cuda {

template void launch_pair_product<DType::f8_e4m3>(Call&, const Product&, int, WholeProduct);

}  // namespace fathom::cuda
