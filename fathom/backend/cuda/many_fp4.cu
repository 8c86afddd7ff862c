#include "fathom/backend/cuda/many_launch.cuh"

namespace fathom::cuda {

template void launch_many_product<DType::f4_e2m1>(Call&, const Product&, int);

}  // namespace fathom::cuda
