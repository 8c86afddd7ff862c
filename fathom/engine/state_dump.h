// fathom/engine/state_dump.h
// Everything that runs and waits, and what it holds, as JSON: for /debug/state, and for whoever asks why nothing
// happens. Lengths, ages, blocks and counts; token ids only when they are asked for, names of tenants never.
// Source: spec/engine.md R-40.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "fathom/base/json.h"
#include "fathom/engine/scheduler.h"

namespace fathom {

struct StateOptions {
  size_t most_sequences = 1'000;  // of each list; how many are left out is told
  bool token_ids = false;         // of prompts and answers: text of users
  /// The name of a tenant's number; none: the number stands for it.
  std::function<std::string_view(uint32_t)> tenant_name = {};
  uint64_t tenant_key = 0;  // of tenant_digest
};

/// Twelve hexadecimal digits that tell tenants apart within one process and say nothing about them outside: `key` is
/// random for each process, since names are easily guessed.
std::string tenant_digest(std::string_view name, uint64_t key);

/// {"now", "limits", "counts", "running": [...], "waiting": [...], "pools", "prefixes", "snapshots"}; the running ones
/// in the order of admission, the waiting ones in that of arrival. The engine's thread calls it, between two steps.
/// Linear in sequences. `now`: seconds of the clock that plan() is told.
Json state_of(const Scheduler& scheduler, double now, const StateOptions& options = {});

}  // namespace fathom
