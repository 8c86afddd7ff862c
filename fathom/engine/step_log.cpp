#include "fathom/engine/step_log.h"

#include <algorithm>

namespace fathom {

StepLog::StepLog(StepLogSize size) : size_(size) {
  check(size.steps > 0 && size.entries > 0, "a log of steps holds some");
  steps_.reserve(size.steps);
  entries_.reserve(size.entries);
}

void StepLog::add_entry(const StepEntry& entry) {
  const auto place = size_t(entries_seen_ % size_.entries);
  if (entries_.size() < size_.entries) {
    entries_.push_back(entry);
  } else {
    entries_[place] = entry;
  }
  ++entries_seen_;
}

void StepLog::add(const StepSummary& summary) {
  const Step step{summary, step_from_, uint32_t(entries_seen_ - step_from_)};
  step_from_ = entries_seen_;
  if (steps_.size() < size_.steps) {
    steps_.push_back(step);
  } else {
    steps_[next_step_] = step;
  }
  next_step_ = (next_step_ + 1) % size_.steps;
}

const StepLog::Step& StepLog::at(size_t index) const {
  return steps_.size() < size_.steps ? steps_[index] : steps_[(next_step_ + index) % size_.steps];
}

std::optional<StepLog::Entries> StepLog::entries(size_t index) const {
  const Step& step = at(index);
  const bool there = entries_seen_ - step.entries_from <= size_.entries;
  if (!there) return {};
  const auto from = size_t(step.entries_from % size_.entries);
  const size_t first = std::min<size_t>(step.entries, size_.entries - from);
  const std::span<const StepEntry> all(entries_);
  if (step.entries == 0) return Entries{};
  return Entries{all.subspan(from, first), all.first(step.entries - first)};
}

void note_entry(StepSummary& summary, StepLog* log, const StepPlan::Rows& planned, const EntryRan& ran,
                const Outcome& outcome) {
  const int decoder_rows = std::min(planned.decoder_count, ran.rows);
  const int accepted = ran.prompt ? 0 : std::clamp(ran.tokens - 1, 0, ran.drafts);
  if (ran.prompt) {
    add_prompt_piece(summary, ran.rows, decoder_rows, std::min(ran.replayed_rows, ran.rows));
  } else if (ran.rows > 0) {
    add_round(summary, ran.rows, ran.drafts, accepted);
  }
  summary.tokens += outcome.kept;
  summary.finished += outcome.finish.has_value();
  if (log == nullptr) return;
  StepEntry entry;
  entry.sequence = planned.sequence;
  entry.first = int32_t(planned.first);
  entry.rows = ran.rows;
  entry.decoder_rows = decoder_rows;
  entry.drafts = int16_t(ran.drafts);
  entry.accepted = int16_t(accepted);
  entry.kept = int16_t(outcome.kept);
  entry.finish = outcome.finish ? int8_t(*outcome.finish) : int8_t(-1);
  entry.prompt = ran.prompt;
  log->add_entry(entry);
}

std::string StepLog::json(size_t most) const {
  std::string out = R"({"entry_fields":["sequence","first","rows","decoder_rows","drafts","accepted","kept","finish",)"
                    R"("prompt"],"steps":[)";
  const size_t count = std::min(most, size());
  for (size_t index = size() - count; index < size(); ++index) {
    if (index > size() - count) out += ',';
    out += "\n";
    append_json(out, json_of(summary(index)));
    out.back() = ',';  // the object goes on
    out += "\"entries\":";
    const auto entries = this->entries(index);
    out += entries ? "[" : "null";
    for (size_t i = 0; entries && i < entries->size(); ++i) {
      const StepEntry& one = (*entries)[i];
      out += i > 0 ? ",[" : "[";
      for (const int64_t number :
           {int64_t(one.sequence), int64_t(one.first), int64_t(one.rows), int64_t(one.decoder_rows),
            int64_t(one.drafts), int64_t(one.accepted), int64_t(one.kept)}) {
        out += std::to_string(number) + ",";
      }
      out += one.finish < 0 ? "null" : std::string("\"") + name_of(FinishReason(one.finish)) + "\"";
      out += one.prompt ? ",true]" : ",false]";
    }
    out += entries ? "]}" : "}";
  }
  return out += "\n]}";
}

}  // namespace fathom
