// fathom/model/step.h
// What every part of the network gets with a call, and the two lines that all of them repeat: a rounded input and a
// linear map. Private to the room.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "fathom/checkpoint/piece_stream.h"
#include "fathom/model/model.h"
#include "fathom/model/scratch.h"

namespace fathom {

struct BlockWeights;
class ExpertSlots;

/// The processor beside a device: it reads rows of tables that stay in their files, of what it knows before the device
/// runs.
struct HostReader {
  Operations ops;
  std::unique_ptr<Queue> queue;
};

/// A second queue of a device, for work that needs nothing of what the first is given meanwhile.
struct SideQueue {
  Queue* queue = nullptr;
  void (*wait_for)(Queue& queue, Queue& other) = nullptr;  // Backend::wait_for

  /// Goes on behind everything that `main` has been given.
  void fork(Queue& main) const {
    queue->batch_invariant = main.batch_invariant;
    queue->scaled_products = main.scaled_products;
    wait_for(*queue, main);
  }
  /// `main` goes on behind everything that this one has been given.
  void join(Queue& main) const { wait_for(main, *queue); }
};

struct Step {
  Queue& queue;
  const Operations& ops;
  Scratch& scratch;  // of one layer: forgotten with the next
  Scratch& kept;     // of the whole call
  Scratch& host;     // of the whole call: what the processor writes for operations
  Scratch& results;  // of the whole call: what operations write for the processor
  const Numerics& numerics;
  const ModelConfig& config;
  const Trace* trace;
  const Memory& memory;
  PieceStream* stream = nullptr;    // of routed experts; null: they are read where they lie,
  ExpertSlots* slots = nullptr;     // or brought to the device from host memory
  HostReader* reader = nullptr;     // of Engram rows; null: operations read them
  const SideQueue* side = nullptr;  // null: everything has the order in which it is written
  // The block whose experts come next, and how many rows will choose among them; null and 0 behind the last.
  const BlockWeights* next_block = nullptr;
  int64_t next_rows = 0;
  // A step that is recorded and run again: what it does must not depend on what its tables say. Rows that complete no
  // group of a compressor make one too, for `dummy_sequence`, whose block table is all zeros (cache_memory.h).
  bool repeatable = false;
  int32_t dummy_sequence = 0;

  /// The same step, whose operations are given to another queue.
  Step on(Queue& other) const {
    return {other,  ops,    scratch, kept,   host,    results,    numerics,  config,     trace,
            memory, stream, slots,   reader, nullptr, next_block, next_rows, repeatable, dummy_sequence};
  }
  AnyViewMut activations(int64_t rows, int64_t cols) { return scratch.rows(numerics.activations, rows, cols); }
  bool traced() const { return trace && *trace; }
  // The name is built only when somebody listens: a step without a trace allocates nothing here.
  void record(int layer, const char* what, AnyView value) const {
    if (traced()) show("layers." + std::to_string(layer) + "." + what, value);
  }
  void record(const char* name, AnyView value) const {
    if (traced()) show(name, value);
  }

 private:
  // Who listens reads with the processor.
  void show(const std::string& name, AnyView value) const {
    if (memory.host_visible) return (*trace)(name, value);
    std::vector<uint8_t> bytes(size_t(bytes_of(value.dtype, value.rows * value.row_stride)));
    memory.copy(bytes.data(), value.data, int64_t(bytes.size()));
    value.data = bytes.data();
    (*trace)(name, value);
  }
};

inline Q8Rows q8_rows(Scratch& scratch, int64_t rows, int64_t cols) {
  return {scratch.rows(DType::f8_e4m3, rows, cols), scratch.rows(DType::f8_e8m0, rows, cols / 32)};
}

/// x rounded to Q8, as it enters an FP8 or FP4 weight; with `turn`, its heads are turned first.
inline Matrix quantized(Step& step, AnyView x, int heads = 1, const Turn& turn = {}) {
  const Q8Rows q8 = q8_rows(step.scratch, x.rows, x.cols);
  step.ops.quantize_rows(step.queue, {x, q8.codes, q8.scales, heads, turn});
  return Matrix(q8.codes, q8.scales, 1);
}

/// What enters an FP8 or FP4 weight: Q8 where the numerics say so, x itself in the float modes.
inline Matrix rounded_input(Step& step, AnyView x) {
  return step.numerics.quantize_inputs ? quantized(step, x) : Matrix(x);
}

/// `beside`: x is that of the product queued just ahead (Linear).
inline AnyViewMut linear(Step& step, const Matrix& x, const Matrix& weight, DType out_type, bool beside = false) {
  const AnyViewMut out = step.scratch.rows(out_type, x.rows(), weight.rows());
  step.ops.linear(step.queue, {x, weight, out, 1, beside});
  return out;
}

inline AnyViewMut rms_norm(Step& step, AnyView x, AnyView weight) {
  const AnyViewMut out = step.activations(x.rows, x.cols);
  step.ops.rms_norm(step.queue, {x, weight, out, float(step.config.rms_norm_eps)});
  return out;
}

/// What enters an FP8 or FP4 weight, of rows that an operation makes: `run(out, q8)` calls it with the one of the two
/// that the numerics want.
template <class Run>
Matrix input_made_by(Step& step, int64_t rows, int64_t cols, const Run& run) {
  if (!step.numerics.quantize_inputs) {
    const AnyViewMut out = step.activations(rows, cols);
    run(out, Q8Rows{});
    return Matrix(out);
  }
  const Q8Rows q8 = q8_rows(step.scratch, rows, cols);
  run(AnyViewMut(), q8);
  return Matrix(q8.codes, q8.scales, 1);
}

/// Normed rows that nothing but FP8 and FP4 weights reads.
inline Matrix normed_input(Step& step, AnyView x, AnyView weight) {
  return input_made_by(step, x.rows, x.cols, [&](AnyViewMut out, const Q8Rows& q8) {
    step.ops.rms_norm(step.queue, {x, weight, out, float(step.config.rms_norm_eps), q8});
  });
}

}  // namespace fathom
