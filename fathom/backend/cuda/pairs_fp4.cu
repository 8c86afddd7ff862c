#include "fathom/backend/cuda/pairs_launch.cuh"

namespace fathom::cuda {

template void launch_pair_product<DType::f4_e2m1>(Call&, const Product&, int, WholeProduct);

}  // namespace fathom::cuda
