// fathom/model/missing.h
// What the network needs of a backend and a backend may lack: all of it in one message, before anything runs.
#pragma once
#include "fathom/backend/backend.h"

namespace fathom {

/// Errors: unsupported, naming every operation whose entry is empty.
Result<void> missing_operations(const Backend& backend);

}  // namespace fathom
