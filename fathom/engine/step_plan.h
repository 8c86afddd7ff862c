// fathom/engine/step_plan.h
// What one step does, as a value: which rows of which sequences run, which of them give logits, and what is copied
// before. Made by the scheduler, read by the batch builder; can be printed, compared and replayed without a device.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "fathom/cache/sequence_cache.h"

namespace fathom {

using SequenceId = uint64_t;  // of a request, or of one of its branches

struct StepPlan {
  /// Neighbouring positions [first, first + count) of one sequence: a piece of its prompt, or the newest token with the
  /// drafts that are verified behind it.
  struct Rows {
    SequenceId sequence = 0;
    int64_t first = 0;
    int count = 0;
    int decoder_count = 0;  // the last ones; they run the decoder half too (spec/engine.md 6.1)
    int drafts = 0;         // the last ones; they are proposals, not yet part of the text
    int logit_rows = 0;     // the last ones; their logits are wanted
    friend bool operator==(const Rows&, const Rows&) = default;
  };
  std::vector<Rows> rows;         // decode rows first, then prompt pieces
  std::vector<BlockCopy> copies;  // before the step: copy-on-write of forks

  bool empty() const { return rows.empty(); }
  friend bool operator==(const StepPlan&, const StepPlan&) = default;
};

/// One line: "7: 130+6 (5 drafts), 9: 0+2048 (140 decoder)".
std::string to_string(const StepPlan& plan);

}  // namespace fathom
