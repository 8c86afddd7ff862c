// fathom/base/system_memory.h
// Memory that this process may still take: what the kernel calls available, cut by the limits of its control groups;
// and what it has taken and no longer needs.
#pragma once
#include <cstdint>
#include <string>

namespace fathom {

/// Bytes. Reads <root>proc/meminfo, <root>proc/self/cgroup and <root>sys/fs/cgroup/...; `root` other than "/" is for
/// tests. What cannot be read limits nothing; without /proc/meminfo the answer is 0.
int64_t available_memory_bytes(const std::string& root = "/");

/// Once, before threads begin: a buffer of megabytes goes back to the kernel when it is freed. By itself the allocator
/// learns from one such buffer to keep up to 64 MB in each thread's heap.
void keep_little_free_memory();

/// Gives pages that lie free in the heap back to the kernel. The allocator keeps them by itself for the next
/// allocation, which after one very large job of small pieces may be never. Any thread; takes a millisecond or so for
/// each 100 MB.
void return_free_memory();

}  // namespace fathom
