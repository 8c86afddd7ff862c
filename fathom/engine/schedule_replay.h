// fathom/engine/schedule_replay.h
// Runs the calls of a record on a fresh scheduler and compares every plan, outcome and cancellation with what was
// decided then. Pure but for reading the file: the same record gives the same report anywhere. Needs the memory that
// the scheduler took then, window snapshots included.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fathom/engine/schedule_record.h"

namespace fathom {

/// The first decision that came out otherwise.
struct ScheduleDifference {
  int64_t line = 0;  // of the file
  int64_t step = 0;  // plans with rows up to and with this one
  std::string what;  // "rows", "copies", "restores", "preempted", "outcome of entry 3", …
  std::string recorded, replayed;
};

struct ReplayReport {
  RankGroup group;
  int64_t lines = 0, requests = 0, plans = 0, steps = 0, commits = 0, preempted = 0;
  bool cut = false;  // the last line has no end: whoever recorded was ended in the middle of it
  std::optional<ScheduleDifference> difference;  // then nothing behind it was run
  std::vector<StepKind> group_steps;             // what the group agreed on, step by step
};
/// "4,812 steps of 300 requests: equal", or the difference.
std::string to_string(const ReplayReport& report);

/// Where the records of a group's ranks tell another kind of step, as far as the shortest goes (spec/engine.md 18.1):
/// "step 12 is decode for rank 0 and mixed for rank 2". Nothing when they agree.
std::optional<std::string> first_disagreement(std::span<const ReplayReport> ranks);

/// Errors: those of read_file; bad_input (line and field) for what no recorder writes, unsupported for another version.
/// Whatever is in the file, it never aborts.
Result<ReplayReport> replay_schedule(const std::string& path, const ScheduleCaps& caps = {});
Result<ReplayReport> replay_schedule_text(std::string_view text, const std::string& where,
                                          const ScheduleCaps& caps = {});

}  // namespace fathom
