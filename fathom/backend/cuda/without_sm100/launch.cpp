// What a build without kernels for sm_100a has in place of sm100/: choose_instruction_set() refuses the devices that
// would call them.
#include "fathom/backend/cuda/instruction_set.h"
#include "fathom/backend/cuda/measuring.h"
#include "fathom/backend/cuda/product.h"
#include "fathom/base/check.h"

namespace fathom::cuda {

bool has_sm100_kernels() { return false; }

void launch_memory_product(Call&, const Product&, bool) { check(false, "this build has kernels for sm_100a"); }

ProductRates measure_memory_products(cudaStream_t, int, void*) {
  check(false, "this build has kernels for sm_100a");
  return {};
}

}  // namespace fathom::cuda
