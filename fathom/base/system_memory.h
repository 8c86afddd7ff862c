// fathom/base/system_memory.h
// Memory that this process may still take: what the kernel calls available, cut by the limits of its control groups.
#pragma once
#include <cstdint>
#include <string>

namespace fathom {

/// Bytes. Reads <root>proc/meminfo, <root>proc/self/cgroup and <root>sys/fs/cgroup/...; `root` other than "/" is for
/// tests. What cannot be read limits nothing; without /proc/meminfo the answer is 0.
int64_t available_memory_bytes(const std::string& root = "/");

}  // namespace fathom
