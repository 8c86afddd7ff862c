#include "fathom/engine/step_summary.h"

#include <algorithm>

namespace fathom {

void add_prompt_piece(StepSummary& summary, int rows, int decoder_rows, int replayed_rows) {
  ++summary.prompt_pieces;
  summary.prompt_rows += rows;
  summary.decoder_rows += decoder_rows;
  summary.replayed_rows += replayed_rows;
}

void add_round(StepSummary& summary, int rows, int drafts, int accepted) {
  ++summary.decode_sequences;
  summary.decode_rows += rows;
  for (int i = 0; i < std::min(drafts, kMaxDrafts); ++i) {
    ++summary.offered[size_t(i)];
    summary.accepted[size_t(i)] += i < accepted;
  }
}

void add_plan(StepSummary& summary, const StepPlan& plan) {
  summary.restores += int32_t(plan.restores.size());
  summary.copies += int32_t(plan.copies.size() + plan.slot_copies.size());
  summary.preempted += int32_t(plan.preempted.size());
}

void add_standing(StepSummary& summary, const Scheduler& scheduler) {
  const CachePools& pools = scheduler.pools();
  summary.running = int32_t(scheduler.running());
  summary.waiting = int32_t(scheduler.waiting());
  summary.free_blocks = pools.blocks.free_count();
  summary.idle_blocks = pools.blocks.available() - summary.free_blocks;
  summary.used_blocks = pools.blocks.capacity() - pools.blocks.available();
  summary.free_slots = pools.slots.free_count();
  summary.used_slots = pools.slots.capacity() - summary.free_slots;
  summary.hit_tokens = scheduler.counts().hit_tokens;
  summary.passed_over = scheduler.counts().passed_over;
}

int replayed_rows(const Replay& replay, int64_t first, int rows) {
  return int(std::clamp<int64_t>(replay.store_from - first, 0, rows));
}

const char* kind_of(const StepSummary& summary) {
  if (summary.prompt_rows > 0) return summary.decode_rows > 0 ? "mixed" : "prompt";
  return summary.decode_rows > 0 ? "decode" : "idle";
}

Json json_of(const StepSummary& s) {
  Json out = Json::object(), offered = Json::array(), accepted = Json::array();
  const auto set = [&](const char* key, Json value) { out.fields.emplace_back(key, std::move(value)); };
  const auto whole = [&](const char* key, int64_t value) { set(key, Json::of(value)); };
  set("step", Json::of(int64_t(s.step)));
  set("kind", Json::of(kind_of(s)));
  set("ended", Json::of(s.ended));
  const std::pair<const char*, float> times[] = {{"step_seconds", s.step_seconds},
                                                 {"plan_seconds", s.plan_seconds},
                                                 {"forward_seconds", s.forward_seconds},
                                                 {"sample_seconds", s.sample_seconds},
                                                 {"other_seconds", s.other_seconds}};
  for (const auto& [key, value] : times) set(key, Json::of(double(value)));
  whole("prompt_pieces", s.prompt_pieces), whole("prompt_rows", s.prompt_rows);
  whole("decoder_rows", s.decoder_rows), whole("replayed_rows", s.replayed_rows);
  whole("decode_sequences", s.decode_sequences), whole("decode_rows", s.decode_rows);
  whole("restores", s.restores), whole("copies", s.copies), whole("preempted", s.preempted);
  set("policy", Json::of(name_of(s.policy)));
  const size_t most = size_t(std::find(s.offered.begin(), s.offered.end(), 0) - s.offered.begin());
  for (size_t i = 0; i < most; ++i) offered.push(Json::of(s.offered[i])), accepted.push(Json::of(s.accepted[i]));
  set("offered", std::move(offered)), set("accepted", std::move(accepted));
  set("confidence_error", Json::of(double(s.confidence_error)));
  whole("confidences", s.confidences), whole("tokens", s.tokens), whole("finished", s.finished);
  whole("running", s.running), whole("waiting", s.waiting);
  whole("used_blocks", s.used_blocks), whole("idle_blocks", s.idle_blocks), whole("free_blocks", s.free_blocks);
  whole("used_slots", s.used_slots), whole("free_slots", s.free_slots);
  return out;
}

std::string shape_of(const StepSummary& s) {
  return "step=" + std::to_string(s.step) + " kind=" + kind_of(s) +
         " prompt_pieces=" + std::to_string(s.prompt_pieces) + " prompt_rows=" + std::to_string(s.prompt_rows) +
         " decode_sequences=" + std::to_string(s.decode_sequences) + " decode_rows=" + std::to_string(s.decode_rows);
}

}  // namespace fathom
