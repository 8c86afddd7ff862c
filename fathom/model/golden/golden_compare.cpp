#include "fathom/model/golden/golden_compare.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace fathom {
namespace {

std::string short_number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", value);
  return text;
}

std::string describe(const Tolerance& t) {
  if (t.informative) return "informative";
  std::string out;
  const auto add = [&](const std::string& part) { out += (out.empty() ? "" : ", ") + part; };
  if (t.max_abs == 0 && t.max_of_all == 0 && t.mean_abs == 0) add("exact");
  if (t.max_abs > 0) {
    add("<= " + short_number(t.max_abs) + " relative" +
        (t.share < 1 ? " in " + short_number(t.share * 100) + " % of rows" : ""));
  }
  if (t.max_of_all > 0) add("<= " + short_number(t.max_of_all));
  if (t.mean_abs > 0) add("mean <= " + short_number(t.mean_abs));
  if (t.same_argmax) add("same argmax");
  return out;
}

int64_t argmax(std::span<const float> row) { return std::max_element(row.begin(), row.end()) - row.begin(); }

}  // namespace

const char* name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::pass: return "pass";
    case Verdict::fail: return "FAIL";
    case Verdict::informative: return "info";
  }
  return "";
}

GoldenRow compare_stage(std::string stage, std::span<const float> found, std::span<const float> expected,
                        int64_t row_length, const Tolerance& tolerance) {
  GoldenRow out;
  out.stage = std::move(stage);
  out.tolerance = describe(tolerance);
  if (found.size() != expected.size()) {
    out.place = std::to_string(found.size()) + " values, expected " + std::to_string(expected.size());
    out.verdict = Verdict::fail;
    out.max_abs = out.max_rel = INFINITY;
    return out;
  }
  double largest = 0, sum = 0;
  for (const float v : expected) largest = std::max(largest, double(std::abs(v)) < 1e29 ? double(std::abs(v)) : 0.0);
  const double scale = std::max(1.0, largest);
  const size_t length = size_t(std::max<int64_t>(row_length, 1)), rows = expected.size() / length;
  size_t good_rows = 0, worst = 0;
  bool argmax_holds = true, not_a_number = false;
  for (size_t r = 0; r < rows; ++r) {
    double row_max = 0;
    for (size_t i = r * length; i < (r + 1) * length; ++i) {
      double diff = std::abs(double(found[i]) - double(expected[i]));
      if (std::isnan(diff)) {
        not_a_number = true;
        diff = INFINITY;
      }
      sum += diff;
      row_max = std::max(row_max, diff);
      if (diff > out.max_abs) {
        out.max_abs = diff;
        worst = i;
      }
    }
    good_rows += row_max <= tolerance.max_abs * (tolerance.max_abs > 0 ? scale : 0.0);
    argmax_holds =
        argmax_holds && argmax(found.subspan(r * length, length)) == argmax(expected.subspan(r * length, length));
  }
  out.max_rel = largest > 0 ? out.max_abs / largest : out.max_abs;
  out.mean_abs = expected.empty() ? 0 : sum / double(expected.size());
  out.place = "[" + std::to_string(worst / length) + ", " + std::to_string(worst % length) + "]";
  bool ok = !not_a_number;
  const bool graded = tolerance.max_abs > 0 || (tolerance.max_of_all == 0 && tolerance.mean_abs == 0);
  if (graded) ok = ok && double(good_rows) >= tolerance.share * double(rows);
  if (tolerance.max_of_all > 0) ok = ok && out.max_abs <= tolerance.max_of_all;
  if (tolerance.mean_abs > 0) ok = ok && out.mean_abs <= tolerance.mean_abs;
  if (tolerance.same_argmax) ok = ok && argmax_holds;
  out.verdict = tolerance.informative ? Verdict::informative : ok ? Verdict::pass : Verdict::fail;
  return out;
}

}  // namespace fathom
