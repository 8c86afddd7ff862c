#include "fathom/backend/cuda/product_codes.cuh"

namespace fathom::cuda {

template void launch_codes_product<DType::f4_e2m1>(Call&, const Product&);

}  // namespace fathom::cuda
