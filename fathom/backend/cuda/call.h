// fathom/backend/cuda/call.h
// One call of an operation on the device: where its views lie for the kernels. Memory that the GPU reaches is used in
// place. Ordinary host memory (tests, small arrays of the engine) is copied to the device first and, for outputs, back
// afterwards; then the call waits. While a step is recorded nothing may be staged: that ends the program.
#pragma once
#include <utility>
#include <vector>

#include "fathom/backend/backend.h"
#include "fathom/backend/cuda/device_memory.h"
#include "fathom/backend/cuda/instruction_set.h"
#include "fathom/backend/cuda/workspace_moves.h"

namespace fathom::cuda {

/// Device memory for one call at a time. Calls of one stream follow each other, so the next call may use it again.
/// It is one piece, kLeastWorkspace at least (backend/workspace.h). A call that takes more than there is has several,
/// and the next one finds a piece that is as large. Recordings hold its address, so it grows seldom: by half at least.
class Workspace {
 public:
  /// A new call.
  void reset();
  /// One piece of at least so much, between two calls. Errors: out_of_memory.
  Result<void> prepare(int64_t bytes);
  /// The same within a call that has taken nothing yet; there is no way back, so without memory it ends the program.
  void reserve(int64_t bytes);
  uint8_t* take(int64_t bytes);
  int64_t bytes() const;  // that it holds now

 private:
  bool holds(int64_t bytes) const { return !chunks_.empty() && chunks_[0].bytes() >= bytes; }
  void replace(int64_t bytes);
  Result<void> add(int64_t bytes);

  std::vector<Buffer> chunks_;
  size_t chunk_ = 0;
  int64_t used_ = 0;   // of that chunk
  int64_t taken_ = 0;  // by this call, in all
};

/// Rows of x as a product has put them into the workspace (arrange_tiles()): whose, and how.
struct ArrangedRows {
  const void *x = nullptr, *x_row = nullptr, *begin = nullptr, *at = nullptr;
  int64_t rows = 0, columns = 0;
  int most_rows = 0;  // of a row tile
  int order = -1;     // of columns: the weight's type
  int64_t moves = 0;  // of workspaces: what is at the same address after one is not what was there
  friend bool operator==(const ArrangedRows&, const ArrangedRows&) = default;
};

/// A queue of the cuda backend: a stream.
struct DeviceQueue : Queue {
  DeviceQueue(cudaStream_t opened, Buffer zeros, InstructionSet of_device = InstructionSet::sm_90a)
      : Queue(1), stream(opened), counters(std::move(zeros)), instructions(of_device) {}
  ~DeviceQueue() override;
  void wait() override;
  Result<void> prepare(int64_t workspace_bytes) override { return workspace.prepare(workspace_bytes); }

  static constexpr int kCounters = 1 << 16;

  cudaStream_t stream;
  Workspace workspace;
  Buffer counters;  // [kCounters] 32-bit counts for blocks that meet; zero between kernels
  InstructionSet instructions;
  ArrangedRows arranged, arranged_ahead;  // by this call, and by the one before
  cudaEvent_t reached = nullptr;          // what another queue waits for (Backend::wait_for)
  bool behind_another = false;            // nothing was launched since this one was made to wait
};

class Call {
 public:
  Call(Queue& queue, const char* operation);
  /// Checks that the kernels were launched, and brings staged outputs back.
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  cudaStream_t stream() const { return queue_.stream; }
  bool batch_invariant() const { return queue_.batch_invariant; }
  bool scaled_products() const { return queue_.scaled_products; }
  InstructionSet instructions() const { return queue_.instructions; }
  /// Device memory until the end of the call; not cleared.
  template <class T>
  T* workspace(int64_t count) {
    return reinterpret_cast<T*>(queue_.workspace.take(count * int64_t(sizeof(T))));
  }

  /// The sum of what this call will take of the workspace, before it does: then it is one piece.
  void reserve(int64_t bytes) { queue_.workspace.reserve(bytes); }

  /// Whether the call just ahead has left x so; this call leaves it so for the next one.
  bool arranged_ahead(ArrangedRows rows) {
    rows.moves = workspace_moves();
    queue_.arranged = rows;
    return queue_.arranged_ahead == rows;
  }

  /// Whether the next kernel may begin before what is ahead has ended (launch_early()): only a kernel can be told so.
  bool may_start_early() const { return !std::exchange(queue_.behind_another, false); }

  /// Counters of the queue; a kernel leaves them as zero as it found them.
  unsigned* counters() { return reinterpret_cast<unsigned*>(queue_.counters.data()); }

  template <class T>
  const T* in(const T* memory, int64_t count) {
    return static_cast<const T*>(place(memory, count * int64_t(sizeof(T)), false));
  }
  template <class T, int Rank>
  View<const T, Rank> in(const View<const T, Rank>& view) {
    return {static_cast<const T*>(place(view.data, bytes_of_view(view), false)), view.shape, view.stride};
  }
  /// What the operation writes, or reads and writes.
  template <class T, int Rank>
  View<T, Rank> out(const View<T, Rank>& view) {
    return {static_cast<T*>(place(view.data, bytes_of_view(view), true)), view.shape, view.stride};
  }
  AnyView in(AnyView view) {
    view.data = static_cast<const uint8_t*>(place(view.data, bytes_of_view(view), false));
    return view;
  }
  AnyViewMut out(AnyViewMut view) {
    view.data = static_cast<uint8_t*>(place(view.data, bytes_of_view(AnyView(view)), true));
    return view;
  }
  Matrix in(Matrix matrix) {
    matrix.values = in(matrix.values);
    if (matrix.scales.data) matrix.scales = in(matrix.scales);
    return matrix;
  }
  RowSet in(const RowSet& rows) { return {in(rows.positions), in(rows.sequence), in(rows.begin)}; }
  template <class T>
  const T* in(std::span<const T> values) {
    return in(values.data(), int64_t(values.size()));
  }
  /// Regions in host memory are staged as far as their tables reach, so the tables must be readable then.
  PagedRegion region(const PagedRegion& pages, bool written);
  RingRegion region(const RingRegion& ring, bool written);

 private:
  struct Returned {
    void* host;
    const void* device;
    int64_t bytes;
  };
  template <class T, int Rank>
  static int64_t bytes_of_view(const View<T, Rank>& view) {
    if (view.data == nullptr || view.size() == 0) return 0;
    int64_t last = 0;
    for (size_t i = 0; i < Rank; ++i) last += (view.shape[i] - 1) * view.stride[i];
    return (last + 1) * int64_t(sizeof(T));
  }
  static int64_t bytes_of_view(const AnyView& view) {
    return view.empty() ? 0 : view.row(view.rows - 1) - view.data + bytes_of(view.dtype, view.cols);
  }
  void* place(const void* memory, int64_t bytes, bool written);

  DeviceQueue& queue_;
  const char* operation_;
  bool staged_ = false;
  std::vector<Returned> returned_;
};

}  // namespace fathom::cuda
