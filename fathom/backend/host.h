// fathom/backend/host.h
// Backends that compute on this machine's processor: they share memory (anonymous pages) and queues (a thread pool),
// and differ in their table only.
#pragma once
#include <string>

#include "fathom/backend/backend.h"

namespace fathom {

/// A backend with the processor's memory and queues. `detail` is for people.
Backend host_backend(std::string name, const Operations& operations, std::string detail);

}  // namespace fathom
