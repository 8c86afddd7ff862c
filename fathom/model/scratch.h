// fathom/model/scratch.h
// Memory for the intermediate values of one call: a pointer that moves up, and back to the start with the next call.
// The first large batch makes it grow; after that a call allocates nothing.
#pragma once
#include <span>
#include <vector>

#include "fathom/backend/recorder.h"
#include "fathom/tensor/view.h"

namespace fathom {

class Scratch {
 public:
  /// Of memory that only operations touch.
  explicit Scratch(Memory memory) : memory_(memory) {}
  /// Of memory for tables: what the processor writes for operations to read. Reset it only when the queue is done.
  static Scratch tables(Memory memory, const Recorder& recorder) {
    if (recorder.allocate_tables == nullptr) return shared(memory);
    memory.allocate = recorder.allocate_tables;
    Scratch out(memory);
    out.rewrite_ = recorder.rewrite_tables;
    return out;
  }
  /// Of memory that operations write and the processor reads. Reset it only when the queue is done.
  static Scratch shared(Memory memory) {
    if (memory.allocate_shared) memory.allocate = memory.allocate_shared;
    return Scratch(memory);
  }

  /// Forgets everything that was given out. If the last call needed several chunks, they become one.
  void reset();

  AnyViewMut rows(DType dtype, int64_t rows, int64_t cols) {
    return {bytes(bytes_of(dtype, cols) * rows), dtype, rows, cols};
  }
  template <class T>
  View<T, 1> vector(int64_t n) {
    return {reinterpret_cast<T*>(bytes(n * int64_t(sizeof(T)))), {n}};
  }
  template <class T>
  View<T, 2> table(int64_t rows, int64_t cols) {
    return {reinterpret_cast<T*>(bytes(rows * cols * int64_t(sizeof(T)))), {rows, cols}};
  }

  int64_t capacity_bytes() const;
  /// Everything lies in one piece: the next reset() moves nothing.
  bool settled() const { return chunks_.size() <= 1; }
  /// What has been given out since the last reset(), of a settled one.
  std::span<const uint8_t> given() const {
    check(settled(), "scratch in one piece");
    return chunks_.empty() ? std::span<const uint8_t>() : std::span<const uint8_t>(chunks_[0].data(), size_t(used_));
  }
  /// How often memory was taken or moved: what was given out in two calls lies at the same places when this is the same
  /// and so is what was asked for.
  int64_t moves() const { return moves_; }

 private:
  uint8_t* bytes(int64_t count);

  Memory memory_;
  std::vector<Buffer> chunks_;
  size_t chunk_ = 0;
  int64_t used_ = 0;  // of the current chunk
  int64_t moves_ = 0;
  void (*rewrite_)(const uint8_t*) = nullptr;  // of tables on a device
};

}  // namespace fathom
