#include "fathom/backend/backend.h"

namespace fathom {

std::vector<std::string> present_backends() {
  std::vector<std::string> names{"cpu", "reference"};
  if (cuda_backend().ok()) names.insert(names.begin(), "cuda");
  return names;
}

Result<Backend> open_backend(std::string_view name) {
  if (name.empty()) {
    auto cuda = cuda_backend();
    return cuda ? cuda : cpu_backend();
  }
  if (name == "cpu") return cpu_backend();
  if (name == "reference") return reference_backend();
  if (name == "cuda") return cuda_backend();
  if (name == "ascend") {
    return Error{ErrorCode::unsupported, "the backend ascend is not compiled in", "--backend ascend",
                 "install CANN and build on that machine, or use --backend cpu"};
  }
  return Error{ErrorCode::usage, "unknown backend '" + std::string(name) + "'", "--backend",
               "choose cpu, cuda, ascend or reference"};
}

}  // namespace fathom
