// fathom/backend/cpu/scratch.h
// Memory of one thread between calls: it grows to the largest need and stays, so that a warm step allocates nothing. It
// grows by half at least, since some needs grow with every token of a text.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "fathom/base/check.h"

namespace fathom::cpu {

/// Aligned to 64 bytes. Its content does not survive the next `get`.
class Scratch {
 public:
  Scratch() = default;
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { std::free(memory_); }

  template <class T>
  T* get(int64_t count) {
    const int64_t needed = count * int64_t(sizeof(T));
    if (needed > bytes_) {
      const int64_t bytes = (std::max(needed, bytes_ + bytes_ / 2) + 63) / 64 * 64;
      std::free(memory_);
      memory_ = std::aligned_alloc(64, size_t(bytes));
      check(memory_ != nullptr, "scratch memory of an operation fits");
      bytes_ = bytes;
    }
    return static_cast<T*>(memory_);
  }

 private:
  void* memory_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace fathom::cpu
