// fathom/backend/cuda/queue_limit.h
// How many queues a model may keep busy on a device at the same time. Pure.
#pragma once
#include <string_view>

#include "fathom/base/result.h"

namespace fathom::cuda {

/// Of FATHOM_CUDA_QUEUES; null: 1. A second one (decision 0024) has to be asked for until it has been measured.
/// Errors: usage for anything but 1 and 2.
inline Result<int> queue_limit(const char* asked) {
  const std::string_view text = asked == nullptr ? "1" : asked;
  if (text == "1") return 1;
  if (text == "2") return 2;
  return Error{ErrorCode::usage, "unknown number of queues \"" + std::string(text) + "\"", "FATHOM_CUDA_QUEUES",
               "use 1 (the default), or 2 for the shared expert beside the others; or unset the variable"};
}

}  // namespace fathom::cuda
