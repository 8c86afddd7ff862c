#include "fathom/backend/workspace.h"

#include "fathom/backend/cuda/tiles.h"

namespace fathom {

int64_t device_workspace_bytes(const ProductShape& product, bool batch_invariant) {
  return cuda::product_workspace_bytes(product, batch_invariant);
}

}  // namespace fathom
