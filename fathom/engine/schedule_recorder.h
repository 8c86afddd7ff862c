// fathom/engine/schedule_recorder.h
// Stands before a scheduler and writes down what it is asked and what it answers. While nothing is recorded each call
// is a comparison more. What it writes: schedule_record.h. Pins of prefixes and changes of account limits while it
// records are not recorded; nobody makes them.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "fathom/engine/schedule_record.h"
#include "fathom/engine/scheduler.h"

namespace fathom {

/// The engine's thread owns it, as it does the scheduler, which outlives it. Recording allocates and writes to the file
/// when 256 KiB have come together: it is for finding out, not for every day.
class ScheduleRecorder {
 public:
  explicit ScheduleRecorder(Scheduler& scheduler);
  ~ScheduleRecorder();  // stops, and loses what cannot be written
  ScheduleRecorder(const ScheduleRecorder&) = delete;
  ScheduleRecorder& operator=(const ScheduleRecorder&) = delete;

  /// Records from here on. `group`: of the rank whose scheduler this is; each has its own file. Errors: usage when the
  /// scheduler has been used before, as no decision of it could be repeated; those of opening a file.
  Result<void> start(const std::string& path, RankGroup group = {});
  /// Errors: failed when something could not be written, then the file ends there. Nothing when nothing is recorded.
  Result<void> stop();
  bool recording() const { return file_ != nullptr; }

  // As Scheduler's.
  void submit(Sequence sequence);
  bool cancel(SequenceId id);
  void make_ready(SequenceId id);
  bool preempt(SequenceId id);
  void set_cost(PieceCost cost);
  const StepPlan& plan(double now);
  const StepPlan& plan(double now, StepRows rows);
  void note_group_step(StepKind kind);
  std::span<const Outcome> commit(const StepPlan& plan, const StepResult& result);
  bool put_snapshot(SequenceId id, int64_t position, const std::function<void(std::span<uint8_t>)>& fill);
  /// IdleBlocks::add_account; needed only for accounts with limits, others are recorded when they are first used.
  int32_t add_account(AccountLimits limits);
  /// This number of a tenant stands for somebody else from now on.
  void forget_tenant(uint32_t tenant);

 private:
  struct File;
  void note_submit(const Sequence& sequence);
  void note_plan(double now, std::optional<StepRows> rows, const StepPlan& plan);
  void note_commit(const StepPlan& plan, const StepResult& result, std::span<const Outcome> outcomes);
  void write_line();

  Scheduler& scheduler_;
  std::unique_ptr<File> file_;
};

}  // namespace fathom
