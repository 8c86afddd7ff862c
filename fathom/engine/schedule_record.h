// fathom/engine/schedule_record.h
// The file that a scheduler's decisions can be replayed from: every call that it gets, in order, a line of JSON each
// (docs/formats/step-record.md). What the file holds of texts: nothing. Tokens matter to the scheduler only as the
// content of full blocks, which prompts are compared by, and as the end of an answer. So a block has a name, the keyed
// hash of all tokens and images up to its end under a key that is never written, and the end is a mark.
// Source: spec/engine.md R-40, issue 5 item 1.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "fathom/base/json.h"
#include "fathom/engine/scheduler.h"

namespace fathom {

inline constexpr std::string_view kScheduleRecordFormat = "fathom schedule";
inline constexpr int kScheduleRecordVersion = 2;
inline constexpr int kOldestScheduleRecord = 1;  // that is still read: it knew no groups

/// Whose decisions these are: of one rank of a data-parallel group, each of which writes its own file. What the group
/// agrees on comes as calls: plan(now, rows) and note_group_step (step_agreement.h).
struct RankGroup {
  int rank = 0, ranks = 1;  // 1: nobody to agree with
  friend bool operator==(const RankGroup&, const RankGroup&) = default;
};

/// The first line: {"format", "version", "group", "limits"}.
Json schedule_header(const SchedulerLimits& limits, RankGroup group = {});

/// Limits that a reader accepts, so that a damaged file cannot ask for all memory or for numbers that overflow.
struct ScheduleCaps {
  int64_t blocks = int64_t(1) << 24;
  int64_t sequences = 1 << 20;
  int64_t context = int64_t(1) << 26;
  int64_t open_tokens = int64_t(1) << 28;      // of all sequences that have not ended
  int64_t snapshot_bytes = int64_t(64) << 30;  // of all snapshots
};
struct ScheduleHeader {
  SchedulerLimits limits;
  RankGroup group;
};
/// Errors: bad_input naming the field; unsupported for another version.
Result<ScheduleHeader> read_schedule_header(const Json& header, const ScheduleCaps& caps, std::string_view where);

/// A plan without the time it was made at and the bytes of its restores, as fields of an object: "rows", "copies",
/// "slot_copies", "restores", "preempted", each left out when empty. What replay compares.
void append_plan_fields(std::string& out, const StepPlan& plan);

/// "both", "prompts", "decode".
const char* name_of(StepRows rows);
std::optional<StepRows> step_rows_of(std::string_view name);
std::optional<StepKind> step_kind_of(std::string_view name);

/// The name of a full block, 16 hexadecimal digits in the file.
using BlockName = uint64_t;
std::string text_of(BlockName name);
/// 128 tokens that stand for a block of this name: the same for the same name, never 0 or 1.
std::array<int32_t, kBlockTokens> tokens_of(BlockName name);

/// What stands for tokens of answers in blocks that are not full: kOpenToken, and kEndToken where one ended the answer.
inline constexpr int32_t kOpenToken = 0, kEndToken = 1;

}  // namespace fathom
