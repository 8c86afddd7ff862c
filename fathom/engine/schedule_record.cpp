#include "fathom/engine/schedule_record.h"

#include "fathom/base/philox.h"
#include "fathom/engine/record_fields.h"

namespace fathom {

Json schedule_header(const SchedulerLimits& limits, RankGroup group) {
  // A limit more does not compile here, so that none is forgotten.
  const auto& [context, sequences, step_rows, prompt_logit_rows, blocks, overcommit, passed_over, shape, snapshot_bytes,
               snapshots, queue, separate] = limits;
  Json shapes = Json::object();
  shapes.set("window", Json::of(shape.window)).set("backtrack", Json::of(shape.backtrack));
  shapes.set("encoder_layers", Json::of(shape.encoder_layers)).set("decoder_layers", Json::of(shape.decoder_layers));
  Json queues = Json::object();
  queues.set("ageing_seconds", Json::of(queue.ageing_seconds));
  queues.set("patience_seconds", Json::of(queue.patience_seconds)).set("look_ahead", Json::of(queue.look_ahead));
  Json out = Json::object();
  out.set("context", Json::of(context)).set("sequences", Json::of(sequences)).set("step_rows", Json::of(step_rows));
  out.set("prompt_logit_rows", Json::of(prompt_logit_rows)).set("blocks", Json::of(int64_t(blocks)));
  out.set("overcommit", Json::of(overcommit)).set("passed_over", Json::of(passed_over)).set("shape", std::move(shapes));
  out.set("snapshot_bytes", Json::of(snapshot_bytes)).set("snapshot_budget_bytes", Json::of(snapshots.budget_bytes));
  out.set("snapshot_seconds", Json::of(int64_t(snapshots.time_to_live.count()))).set("queue", std::move(queues));
  out.set("separate", Json::of(int(separate)));
  Json header = Json::object();
  header.set("format", Json::of(kScheduleRecordFormat)).set("version", Json::of(kScheduleRecordVersion));
  if (group != RankGroup{}) {
    Json ranks = Json::array();
    ranks.push(Json::of(group.rank)), ranks.push(Json::of(group.ranks));
    header.set("group", std::move(ranks));
  }
  header.set("limits", std::move(out));
  return header;
}

Result<ScheduleHeader> read_schedule_header(const Json& header, const ScheduleCaps& caps, std::string_view where) {
  RecordFields top(header, where);
  if (top.text("format") != kScheduleRecordFormat) {
    return Error{ErrorCode::bad_input, "this is no record of a scheduler", std::string(where),
                 "it begins with {\"format\":\"fathom schedule\",…"};
  }
  const int64_t version = top.whole("version", 0, 1'000'000);
  if (top.ok() && (version < kOldestScheduleRecord || version > kScheduleRecordVersion)) {
    return Error{ErrorCode::unsupported, "record of version " + std::to_string(version), std::string(where),
                 "this build reads versions " + std::to_string(kOldestScheduleRecord) + " to " +
                     std::to_string(kScheduleRecordVersion) + "; replay it with the build that wrote it"};
  }
  ScheduleHeader read;
  if (top.has("group")) {
    constexpr int64_t kMostRanks = 1 << 20;
    const auto& group = top.list("group");
    if (group.size() != 2) top.fail("group", "is no pair of rank and ranks");
    if (top.ok()) read.group.ranks = int(top.whole_of(&group[1], "group", 1, kMostRanks));
    if (top.ok()) read.group.rank = int(top.whole_of(&group[0], "group", 0, read.group.ranks - 1));
  }
  constexpr int64_t kRows = int64_t(1) << 26;
  SchedulerLimits& out = read.limits;
  RecordFields limits = top.inner("limits");
  out.context = limits.whole("context", 2, caps.context);
  out.sequences = int(limits.whole("sequences", 1, caps.sequences));
  out.step_rows = limits.whole("step_rows", 1, kRows);
  out.prompt_logit_rows = limits.whole("prompt_logit_rows", 1, kRows);
  out.blocks = int32_t(limits.whole("blocks", 1, caps.blocks));
  out.overcommit = limits.number("overcommit", 0, 1e6);
  out.passed_over = int(limits.whole("passed_over", 0, 1 << 30));
  RecordFields shape = limits.inner("shape");
  constexpr int kLayers = 10'000;
  out.shape.window = int(shape.whole("window", 0, 1 << 20));
  out.shape.backtrack = int(shape.whole("backtrack", 0, 1 << 20));
  out.shape.encoder_layers = int(shape.whole("encoder_layers", 0, kLayers));
  out.shape.decoder_layers = int(shape.whole("decoder_layers", 0, kLayers));
  out.snapshot_bytes = limits.whole("snapshot_bytes", 0, caps.snapshot_bytes);
  out.snapshots.budget_bytes = limits.whole("snapshot_budget_bytes", 0, caps.snapshot_bytes);
  out.snapshots.time_to_live = std::chrono::seconds(limits.whole("snapshot_seconds", 0, int64_t(1) << 40));
  out.separate = limits.whole("separate", 0, 1) != 0;
  RecordFields queue = limits.inner("queue");
  out.queue.ageing_seconds = queue.number("ageing_seconds", 1e-3, 1e12);
  out.queue.patience_seconds = queue.number("patience_seconds", 0, 1e12);
  out.queue.look_ahead = int(queue.whole("look_ahead", 1, 1 << 30));
  for (const RecordFields* part : {&top, &limits, &shape, &queue}) {
    if (!part->ok()) return part->error();
  }
  return read;
}

namespace {

template <class List, class Write>
void append_list(std::string& out, const char* key, const List& list, Write write) {
  if (list.empty()) return;
  out += ",\"";
  out += key;
  out += "\":[";
  bool first = true;
  for (const auto& one : list) {
    if (!first) out += ',';
    first = false;
    write(one);
  }
  out += ']';
}

}  // namespace

void append_plan_fields(std::string& out, const StepPlan& plan) {
  const auto numbers = [&](std::initializer_list<int64_t> values) {
    char separator = '[';
    for (const int64_t value : values) {
      out += separator;
      out += std::to_string(value);
      separator = ',';
    }
    out += ']';
  };
  append_list(out, "rows", plan.rows, [&](const StepPlan::Rows& r) {
    numbers({int64_t(r.sequence), r.first, r.count, r.decoder_count, r.drafts, r.logit_rows});
  });
  const auto copy = [&](const BlockCopy& one) { numbers({one.from, one.to}); };
  append_list(out, "copies", plan.copies, copy);
  append_list(out, "slot_copies", plan.slot_copies, copy);
  append_list(out, "restores", plan.restores, [&](const StepPlan::Restore& one) {
    numbers({int64_t(one.sequence), one.slot, one.position});
  });
  append_list(out, "preempted", plan.preempted, [&](SequenceId id) { out += std::to_string(id); });
}

const char* name_of(StepRows rows) {
  switch (rows) {
    case StepRows::both: return "both";
    case StepRows::prompts: return "prompts";
    case StepRows::decode: return "decode";
  }
  return "both";
}

std::optional<StepRows> step_rows_of(std::string_view name) {
  for (const StepRows rows : {StepRows::both, StepRows::prompts, StepRows::decode}) {
    if (name == name_of(rows)) return rows;
  }
  return {};
}

std::optional<StepKind> step_kind_of(std::string_view name) {
  for (const StepKind kind : {StepKind::idle, StepKind::decode, StepKind::mixed}) {
    if (name == name_of(kind)) return kind;
  }
  return {};
}

std::string text_of(BlockName name) {
  std::string out(16, '0');
  for (int i = 0; i < 16; ++i) out[size_t(i)] = "0123456789abcdef"[name >> (60 - 4 * i) & 15];
  return out;
}

std::array<int32_t, kBlockTokens> tokens_of(BlockName name) {
  std::array<int32_t, kBlockTokens> out;
  for (size_t i = 0; i < out.size(); i += 4) {
    const auto words = philox(name, {uint32_t(i), 0, 0, 0});
    for (size_t j = 0; j < 4; ++j) out[i + j] = int32_t(2 + words[j] % 0x7ffffffd);
  }
  return out;
}

}  // namespace fathom
