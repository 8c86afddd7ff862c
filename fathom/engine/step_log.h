// fathom/engine/step_log.h
// The last steps, for whoever asks what happened before it went wrong: a summary of each and, for the most recent ones,
// what each of their sequences did. Memory is taken once: 10,000 summaries (about 2.6 MB) and 262,144 entries of 32
// bytes (8 MB; the last 1,024 steps of 256 sequences, all 10,000 steps of 26). Entries of older steps make room first.
// Source: spec/engine.md R-40.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fathom/engine/step_plan.h"
#include "fathom/engine/step_summary.h"

namespace fathom {

/// What one sequence did in a step.
struct StepEntry {
  SequenceId sequence = 0;
  int32_t first = 0;  // position of its first row
  int32_t rows = 0, decoder_rows = 0;
  int16_t drafts = 0;    // verified
  int16_t accepted = 0;  // of them
  int16_t kept = 0;      // tokens that it got
  int8_t finish = -1;    // FinishReason, -1: it goes on
  bool prompt = false;
  friend bool operator==(const StepEntry&, const StepEntry&) = default;
};

struct StepLogSize {
  size_t steps = 10'000;
  size_t entries = 1 << 18;
};

/// One thread at a time. Allocates only in its constructor; the pages are touched as they are filled.
class StepLog {
 public:
  explicit StepLog(StepLogSize size = {});

  /// The step whose entries come before it: add_entry for each, then add. More entries than fit are counted only.
  void add_entry(const StepEntry& entry);
  void add(const StepSummary& summary);

  size_t size() const { return steps_.size(); }
  /// 0 is the oldest one that is left.
  const StepSummary& summary(size_t index) const { return at(index).summary; }
  /// Entries of a step, in up to two pieces; nothing when they had to make room or did not fit.
  struct Entries {
    std::span<const StepEntry> begin, end;
    size_t size() const { return begin.size() + end.size(); }
    const StepEntry& operator[](size_t i) const { return i < begin.size() ? begin[i] : end[i - begin.size()]; }
  };
  std::optional<Entries> entries(size_t index) const;

  /// {"steps": [...]}: the last `most` steps, oldest first, each with its "entries" as arrays in the order of
  /// "entry_fields", or null when they are gone. Appends to a string: a tree of so many numbers would be large.
  std::string json(size_t most = SIZE_MAX) const;

 private:
  struct Step {
    StepSummary summary;
    uint64_t entries_from = 0;  // number of its first entry since the start
    uint32_t entries = 0;
  };
  const Step& at(size_t index) const;

  StepLogSize size_;
  std::vector<Step> steps_;  // a ring once it is full
  size_t next_step_ = 0;
  std::vector<StepEntry> entries_;  // a ring once it is full
  uint64_t entries_seen_ = 0;       // since the start
  uint64_t step_from_ = 0;          // entries_seen_ where the step that is being added begins
};

/// What one entry of a plan came to: rows and drafts that ran (fewer than planned where the plan was a bound), tokens
/// that it brought before the commit.
struct EntryRan {
  bool prompt = false;
  int rows = 0, drafts = 0, tokens = 0;
  int replayed_rows = 0;  // of a prompt piece: replayed_rows(...)
};
/// One entry of a committed step, into its summary and, when there is one, into the log. Whole commit: note_entry for
/// each entry, add_plan, add_standing, times, then log.add(summary).
void note_entry(StepSummary& summary, StepLog* log, const StepPlan::Rows& planned, const EntryRan& ran,
                const Outcome& outcome);

}  // namespace fathom
