#include "fathom/engine/step_plan.h"

namespace fathom {

std::string to_string(const StepPlan& plan) {
  std::string out;
  const auto add = [&](const std::string& text) { out += (out.empty() ? "" : ", ") + text; };
  for (const StepPlan::Rows& rows : plan.rows) {
    std::string text =
        std::to_string(rows.sequence) + ": " + std::to_string(rows.first) + "+" + std::to_string(rows.count);
    if (rows.drafts > 0) text += " (" + std::to_string(rows.drafts) + " drafts)";
    if (rows.decoder_count < rows.count) text += " (" + std::to_string(rows.decoder_count) + " decoder)";
    add(text);
  }
  for (const BlockCopy& copy : plan.copies) {
    add("copy " + std::to_string(copy.from) + " to " + std::to_string(copy.to));
  }
  return out.empty() ? "idle" : out;
}

}  // namespace fathom
