// Reasons (docs/numerics.md has the long form):
//   f32_noquant  only the order of float sums differs: sums of up to 1,024 products through 10 layers, 2^-24 each step,
//                stay below 1e-4 of the stage's largest value; logits have the reference card's absolute 1e-3.
//   f32          cached rows are rounded, so a last-bit difference can flip one code. A flip moves a value by one step
//   of
//                its format (E2M1: at most 2 of 6; E4M3: at most 32 of 448) and what reads it by little: 95 % of rows
//                must agree to 1e-3 all the same; of cached rows, 95 % of values. The card bounds the logits of the
//                trained model: 0.25 (of 30, so 1e-2 of what they come from), mean 0.01.
//   bf16_act8    two right implementations flip many codes. On random weights the figures inform only; on the trained
//                model the card asks for mean 0.25 and the same argmax in every row.
#include "fathom/model/golden/tolerances.h"

#include <algorithm>
#include <cmath>

namespace fathom {
namespace {

bool ends_with_any(const std::string& stage, std::initializer_list<const char*> ends) {
  return std::any_of(ends.begin(), ends.end(), [&](const char* end) { return stage.ends_with(end); });
}

double largest(const GoldenCase& c, const std::string& stage) {
  const auto at = c.tensors.find(stage);
  double out = 1;
  if (at == c.tensors.end()) return out;
  for (const float v : at->second.values) out = std::max(out, double(std::abs(v)));
  return out;
}

}  // namespace

Tolerance tolerance_of(const GoldenCase& c, const std::string& stage) {
  const bool is_logits = ends_with_any(stage, {"logits"});
  // Choices are exact: table rows, greedy tokens, drafts, accepted counts.
  if (ends_with_any(stage, {"engram_rows", "tokens", "tokens_with_drafts", "accepted"})) return {};

  if (c.mode == "bf16_act8") {
    if (is_logits && c.trained) return {.mean_abs = 0.25, .same_argmax = true};
    return {.informative = true};
  }
  if (c.mode == "f32_noquant") {
    if (stage.ends_with("selected")) return {.max_abs = 1e-4, .share = 0.95};  // near ties may swap
    if (is_logits) return {.max_of_all = 1e-3, .same_argmax = c.trained};
    return {.max_abs = 1e-4};
  }
  // f32
  if (is_logits && c.trained) return {.max_of_all = 0.25, .mean_abs = 0.01, .same_argmax = true};
  if (is_logits) return {.max_abs = 1e-3, .share = 0.95, .max_of_all = 0.5};
  if (stage.ends_with("confidence")) return {.max_of_all = 0.25 / 4};  // sigmoid of a logit that may be off by 0.25
  if (ends_with_any(stage, {"compressed_rows", "index_keys"})) {
    return {.max_abs = 1e-3, .share = 0.95, .max_of_all = largest(c, stage) * 2 / 6};
  }
  if (stage.ends_with("window_rows")) {
    return {.max_abs = 1e-3, .share = 0.95, .max_of_all = largest(c, stage) * 32 / 448};
  }
  return {.max_abs = c.trained ? 1e-2 : 1e-3, .share = 0.95};
}

}  // namespace fathom
