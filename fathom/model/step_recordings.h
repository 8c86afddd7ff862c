// fathom/model/step_recordings.h
// The steps of a model that a device has recorded (backend/recorder.h), by their shapes. Private to the room.
//
// A step is work(ops): it hands out memory in the same order each time, writes its tables and calls the operations that
// it is given. So it is recorded by calling it while the queue is recorded, and repeated by calling it with operations
// that do nothing, which leaves only its tables; then they are sent and the recording is launched.
#pragma once
#include <memory>
#include <vector>

#include "fathom/backend/recorder.h"
#include "fathom/model/scratch.h"

namespace fathom {

/// What a step was recorded for, beside the model: its kind, the sizes of its tables, the cache, and the queue.
struct StepShape {
  enum class Kind { backbone, drafts };
  Kind kind = Kind::backbone;
  const Queue* queue = nullptr;
  int64_t rows = 0, sequences = 0;
  int64_t columns = 0;  // of the block tables; of drafts: positions of the block that are drawn
  int64_t list = 0;     // of drafts: room for tokens of a law
  const void *blocks = nullptr, *slots = nullptr;
  friend bool operator==(const StepShape&, const StepShape&) = default;
};

class StepRecordings {
 public:
  /// `tables`: the scratch that steps write their tables to; outlives this.
  StepRecordings(const Recorder& recorder, Scratch& tables) : recorder_(recorder), tables_(&tables) {}

  /// False on a backend that records nothing.
  bool possible() const { return recorder_.begin != nullptr; }
  /// Returns when the processor may write tables again. Every step begins with it.
  void settle(Queue& queue);
  /// What is queued from here reads tables when it comes to them.
  void reads_from_queue() { reading_ = Reading::queue; }
  /// Whether the device reads tables only that were sent already, or none.
  bool has_sent() const { return reading_ != Reading::queue; }

  /// Runs a step: operation by operation when its shape comes for the first two times (after the first, all memory has
  /// grown; after the second, it is one piece each), then recorded. `moves` changes when memory of the step has moved.
  template <class Work>
  auto run(Queue& queue, const StepShape& shape, const Operations& ops, int64_t moves, const Work& work) {
    settle(queue);
    Recorded& step = at(shape, moves);
    if (is_ready(step)) {
      const auto out = work(silent_);
      launch(queue, step);
      return out;
    }
    if (step.runs < 2) {
      ++step.runs;
      reads_from_queue();
      return work(ops);
    }
    recorder_.begin(queue);
    const auto out = work(ops);
    step.recording = recorder_.end(queue);
    launch(queue, step);
    return out;
  }

  /// Whether run() would repeat a recording.
  bool is_ready(const StepShape& shape, int64_t moves) const;
  const Operations& silent() const { return silent_; }
  /// Sends the tables as they are and launches the recording, which is_ready().
  void launch(Queue& queue, const StepShape& shape, int64_t moves) { launch(queue, at(shape, moves)); }

 private:
  static constexpr size_t kMost = 64;
  enum class Reading { nothing, sent, queue };
  struct Recorded {
    StepShape shape;
    int runs = 0;  // that launched every operation
    std::unique_ptr<Recording> recording;
  };
  static bool is_ready(const Recorded& step) { return step.recording && step.recording->usable(); }
  Recorded& at(const StepShape& shape, int64_t moves);
  void launch(Queue& queue, Recorded& step);

  Recorder recorder_;
  Scratch* tables_;
  Operations silent_ = silent_operations();
  std::vector<Recorded> steps_;
  int64_t moves_ = 0;
  Reading reading_ = Reading::nothing;  // how the device may still read tables
};

}  // namespace fathom
