// What a build without CUDA has in place of cuda/: the answer that it lacks it.
#include "fathom/backend/backend.h"
#include "fathom/backend/copy_lane.h"
#include "fathom/backend/instruments.h"
#include "fathom/backend/recorder.h"

namespace fathom {

Result<Backend> cuda_backend() {
  return Error{ErrorCode::unsupported, "the backend cuda is not compiled in", "--backend cuda",
               "build with the preset cuda, or use --backend cpu"};
}

Instruments cuda_instruments() { return {}; }
Recorder cuda_recorder() { return {}; }
Result<std::unique_ptr<CopyLane>> cuda_copy_lane() { return cuda_backend().error(); }
Result<Buffer> cuda_allocate_host(int64_t) { return cuda_backend().error(); }

}  // namespace fathom
