#include "fathom/backend/cuda/product_codes.cuh"

namespace fathom::cuda {

template void launch_codes_product<DType::f8_e4m3>(Call&, const Product&);

}  // namespace fathom::cuda
