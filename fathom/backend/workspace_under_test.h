// fathom/backend/workspace_under_test.h
// What tests of workspaces share: a table whose entries ask, for each call, what it would take on a device.
#pragma once
#include <algorithm>

#include "fathom/backend/backend.h"
#include "fathom/backend/operation_list.h"
#include "fathom/backend/workspace.h"

namespace fathom {

/// The most that any call has asked for since it was set to 0, and what the entries call; a table is plain functions,
/// so there is one a process.
inline int64_t most_asked_workspace = 0;
inline Operations asked_operations;

template <auto entry, class Op>
void ask_workspace(Queue& queue, const Op& op) {
  most_asked_workspace = std::max(most_asked_workspace, device_workspace_bytes(op, queue.batch_invariant));
  if (asked_operations.*entry != nullptr) (asked_operations.*entry)(queue, op);
}
template <auto entry, class Op>
void set_asking(void (*Operations::*)(Queue&, const Op&), Operations& table) {
  table.*entry = ask_workspace<entry, Op>;
}

/// Calls those of `table`; with one that has no entries they do nothing.
inline Operations asking_operations(const Operations& table) {
  asked_operations = table;
  Operations asking = table;
  for_each_operation([&]<auto entry>(std::string_view) { set_asking<entry>(entry, asking); });
  return asking;
}

}  // namespace fathom
