// fathom/model/moe/expert_slots.h
// Routed experts whose weights lie in host memory, brought to the device when gates choose them. The device has slots
// of one expert each; which experts are in them is decided as for experts on disk (checkpoint/resident_set.h). Copies
// run beside the queue's work (backend/copy_lane.h), and the processor waits for none of them: products are queued
// behind the copies that they read, and copies behind the products that read their slot before.
//
//   slots.want(experts);                        copies of those that are not there begin
//   ...                                         operations that need none of them
//   while ((wave = slots.next(queue)).count > 0) {
//     ... products of slots.order()[wave.first ...], at slots.place(piece)
//     slots.release(queue);                     copies of those that found no room begin
//   }
//   slots.expect(experts);                      what the next block will probably want
//
// A wave is what one grouped product takes: first all that are there, then the others in the order in which they come,
// some at a time. Source: docs/decisions/0017.
#pragma once
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "fathom/backend/copy_lane.h"
#include "fathom/base/result.h"
#include "fathom/checkpoint/piece_stream.h"
#include "fathom/checkpoint/resident_set.h"
#include "fathom/model/weights.h"

namespace fathom {

/// Experts of a wave when `missing` of them are copied: an eighth, so that little is left to compute when the last one
/// has come, four at least, and at most half of the slots, so that the other half fills meanwhile.
int64_t wave_size(int64_t missing, int64_t slots);

/// One thread; statistics() from any.
class ExpertSlots {
 public:
  /// `pieces` [n] of `piece_bytes` each in allocate_host(), which must outlive it. At least two slots.
  /// Errors: out_of_memory.
  static Result<std::unique_ptr<ExpertSlots>> open(const Memory& memory, std::unique_ptr<CopyLane> lane,
                                                   std::vector<const uint8_t*> pieces, int64_t piece_bytes,
                                                   int64_t slots);

  /// Distinct pieces, each of which next() will hand out once. Everything wanted before has been handed out.
  void want(std::span<const int32_t> pieces);
  /// The wanted pieces in the order of the waves.
  std::span<const int32_t> order() const { return order_; }

  struct Wave {
    int64_t first = 0, count = 0;  // of order(); no count: all have been handed out
  };
  /// The next pieces; what is queued from here on finds them. The wave before has been released.
  Wave next(Queue& queue);
  /// Of a piece of the current wave: where operations read it.
  const uint8_t* place(int32_t piece) const;
  /// The products of the current wave have been queued.
  void release(Queue& queue);

  /// Pieces that the next want() will probably name: as far as there is room, they stay, and at most `most_copies` of
  /// those that are not there are copied. Replaces an earlier guess. Nothing is wanted meanwhile.
  void expect(std::span<const int32_t> pieces, int64_t most_copies);

  StreamStatistics statistics() const;

 private:
  struct Piece {
    const uint8_t* bytes = nullptr;
    int32_t slot = -1;
    int64_t copy = 0;  // that brought it
    bool wanted = false, guessed = false;
    bool copied = false;  // for the guess
  };
  struct Slot {
    int64_t point = 0;  // behind the products that read it last
  };
  ExpertSlots(Buffer memory, std::unique_ptr<CopyLane> lane, std::vector<const uint8_t*> pieces, int64_t piece_bytes,
              int64_t slots);
  bool admit(int32_t piece);
  void admit_pending();
  void drop_guesses();
  void publish();

  Buffer memory_;
  std::unique_ptr<CopyLane> lane_;
  int64_t piece_bytes_;
  std::vector<Piece> pieces_;
  std::vector<Slot> slots_;
  std::vector<int32_t> free_;  // slots
  ResidentSet set_;
  std::vector<int32_t> order_, guessed_, evicted_;
  int64_t there_ = 0;     // of order_, that were there when they were wanted
  int64_t admitted_ = 0;  // of order_, that are there or coming
  int64_t handed_ = 0;    // of order_
  int64_t wave_ = 1;      // of those that come
  Wave current_;
  StreamStatistics counts_, shown_;
  mutable std::mutex mutex_;  // of shown_
};

/// Slots for the experts of `weights`, which bind_weights() put in RAM. Sets first_piece of every block.
/// Errors: out_of_memory; those of open_copy_lane.
Result<std::unique_ptr<ExpertSlots>> open_expert_slots(const Backend& backend, const ModelConfig& config, int64_t slots,
                                                       Weights& weights);

/// An expert's matrix as it lies in a slot at `place`; `first` is w1, w2 or w3 of an expert in RAM, `run` where that
/// expert begins there.
Matrix in_slot(const Matrix& matrix, const uint8_t* run, const uint8_t* place);
/// Where the expert's three matrices begin.
const uint8_t* expert_run(const BlockWeights& block, size_t expert);

}  // namespace fathom
