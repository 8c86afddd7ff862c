#include "fathom/backend/cuda/product_few.cuh"

namespace fathom::cuda {

template bool launch_few_product<DType::f4_e2m1>(Call&, const Product&, int, bool);

}  // namespace fathom::cuda
