#include "fathom/model/missing.h"

#include "fathom/backend/operation_list.h"

namespace fathom {

Result<void> missing_operations(const Backend& backend) {
  std::string missing;
  for (const OperationEntry& entry : list_operations(backend.ops)) {
    if (!entry.function) missing += (missing.empty() ? "" : ", ") + std::string(entry.name);
  }
  if (missing.empty()) return {};
  return Error{ErrorCode::unsupported, "the backend lacks operations that the model needs: " + missing,
               "--backend " + backend.name, "use --backend cpu"};
}

}  // namespace fathom
