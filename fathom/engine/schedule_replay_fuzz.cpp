// Whatever a record holds, replay gives a report or one error, and never aborts. The limits are small, so that a run is
// short and takes little memory; a header of small limits is put before bytes that have none.
#include <cstddef>
#include <cstdint>
#include <string>

#include "fathom/base/check.h"
#include "fathom/engine/schedule_replay.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace fathom;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const ScheduleCaps caps{
      .blocks = 64, .sequences = 8, .context = 4'096, .open_tokens = 1 << 16, .snapshot_bytes = 1 << 16};
  SchedulerLimits limits{.context = 2'048, .sequences = 4, .step_rows = 256, .blocks = 16, .overcommit = 1};
  limits.shape = {32, 6, 4, 4};
  limits.snapshot_bytes = 64;
  limits.snapshots.budget_bytes = 4'096;
  // Every other size is of a rank in a group whose steps are separate.
  limits.separate = size % 2 == 1;
  const RankGroup group{.rank = limits.separate ? 1 : 0, .ranks = limits.separate ? 4 : 1};
  const bool whole = bytes.starts_with("{\"format\"");
  const std::string text =
      whole ? std::string(bytes) : to_string(schedule_header(limits, group)) + "\n" + std::string(bytes);
  const auto report = replay_schedule_text(text, "fuzz", caps);
  if (!report.ok()) check(!report.error().message.empty(), "an error says what is wrong");
  return 0;
}
