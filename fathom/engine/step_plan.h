// fathom/engine/step_plan.h
// What one step does, as a value: which rows of which sequences run, which of them give logits, and what is copied or
// restored before. Made by the scheduler, read by the batch builder; can be printed, compared and replayed without a
// device.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fathom/cache/sequence_cache.h"

namespace fathom {

using SequenceId = uint64_t;  // of a request, or of one of its branches

struct StepPlan {
  /// Neighbouring positions [first, first + count) of one sequence: a piece of its prompt, or the newest token with the
  /// drafts that are verified behind it. While an earlier step of the sequence is in flight, a decode entry is a bound:
  /// `first` as if all its rows were kept, `count` as if all drafts were there; the device knows the truth.
  struct Rows {
    SequenceId sequence = 0;
    int64_t first = 0;
    int count = 0;
    int decoder_count = 0;  // the last ones; they run the decoder half too (spec/engine.md 6.1)
    int drafts = 0;         // the last ones; they are proposals, not yet part of the text
    int logit_rows = 0;     // the last ones; their logits are wanted
    friend bool operator==(const Rows&, const Rows&) = default;
  };
  /// The windows of a snapshot go into a fresh slot before the rows run.
  struct Restore {
    SequenceId sequence = 0;
    int32_t slot = 0;
    int64_t position = 0;
    std::vector<uint8_t> bytes;
    friend bool operator==(const Restore&, const Restore&) = default;
  };
  std::vector<Rows> rows;                      // decode rows first, then prompt pieces
  std::vector<BlockCopy> copies, slot_copies;  // before the step: copy-on-write of forks
  std::vector<Restore> restores;
  std::vector<SequenceId> preempted;  // their drafts are void; they run again later

  bool empty() const { return rows.empty(); }
  void clear() { rows.clear(), copies.clear(), slot_copies.clear(), restores.clear(), preempted.clear(); }
  friend bool operator==(const StepPlan&, const StepPlan&) = default;
};

/// Tokens that a step brought, one range for each entry of its plan: the accepted drafts, then one more; empty for a
/// prompt piece that is not the last, and for an entry whose sequence had ended before.
struct StepResult {
  std::vector<int32_t> tokens;
  std::vector<int32_t> begin;  // [plan rows + 1]
  std::vector<int> proposed;   // [plan rows] drafts that the next step can verify; empty: none

  std::span<const int32_t> of(size_t entry) const {
    return std::span(tokens).subspan(size_t(begin[entry]), size_t(begin[entry + 1] - begin[entry]));
  }
};

/// One line: "7: 130+6 (5 drafts), 9: 0+2048 (140 decoder)".
std::string to_string(const StepPlan& plan);

}  // namespace fathom
