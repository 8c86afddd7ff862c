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
