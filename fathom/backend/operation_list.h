// fathom/backend/operation_list.h
// The operations table as a list of names, for whoever shows or compares tables: `fathom doctor`.
#pragma once
#include <string_view>
#include <vector>

#include "fathom/backend/ops.h"

namespace fathom {

struct OperationEntry {
  std::string_view name;
  void (*function)() = nullptr;  // for comparison only; null: missing
};

/// In the order of Operations.
std::vector<OperationEntry> list_operations(const Operations& table);

}  // namespace fathom
