#include "fathom/backend/cuda/product_tensor.cuh"

namespace fathom::cuda {

template void launch_tensor_product<DType::f8_e4m3>(Call&, const Product&);

}  // namespace fathom::cuda
