#include "fathom/backend/cuda/product_tensor.cuh"

namespace fathom::cuda {

template void launch_tensor_product<DType::f4_e2m1>(Call&, const Product&);

}  // namespace fathom::cuda
