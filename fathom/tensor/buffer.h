// fathom/tensor/buffer.h
// Owner of memory that some backend gave: it is freed by the function that came with it.
#pragma once
#include <cstdint>
#include <utility>

namespace fathom {

/// Moves, does not copy. Aligned to 64 bytes at least. Empty when default constructed.
class Buffer {
 public:
  using Free = void (*)(void* memory, int64_t bytes);

  Buffer() = default;
  Buffer(void* memory, int64_t bytes, Free free) : data_(static_cast<uint8_t*>(memory)), bytes_(bytes), free_(free) {}
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(free_, other.free_);
    return *this;
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() {
    if (data_) free_(data_, bytes_);
  }

  uint8_t* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  uint8_t* data_ = nullptr;
  int64_t bytes_ = 0;
  Free free_ = nullptr;
};

}  // namespace fathom
