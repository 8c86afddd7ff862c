// fathom/cli/check_golden.cpp
// `fathom check-golden`: runs the recorded cases and prints, stage by stage, how far this build is from the PyTorch
// reference (design/cli.md 6). The comparison itself is fathom/model/golden.
#include <algorithm>
#include <memory>

#include "fathom/base/json.h"
#include "fathom/cli/loaded_model.h"
#include "fathom/cli/program.h"
#include "fathom/cli/terminal.h"
#include "fathom/model/golden/golden.h"
#include "fathom/tokenizer/compressed_vocabulary.h"

namespace fathom::cli {
namespace {

struct Settings {
  std::string golden, case_name;
  bool all = false, batch_invariant = false;
};

std::string label_of(const GoldenRow& row) {
  return row.golden == "." ? row.case_name : row.golden + "/" + row.case_name;
}

/// "layers.12.streams" -> "layers.*.streams": the stage that a person wants one figure of.
std::string stage_kind(const std::string& stage) {
  if (!stage.starts_with("layers.")) return stage;
  const size_t dot = stage.find('.', 7);
  return dot == std::string::npos ? stage : "layers.*" + stage.substr(dot);
}

/// For each case and kind of stage the row nearest to failing: a failure first, else the largest error.
std::vector<GoldenRow> worst_rows(const std::vector<GoldenRow>& rows) {
  std::vector<GoldenRow> worst;
  for (const GoldenRow& row : rows) {
    const auto same = std::find_if(worst.begin(), worst.end(), [&](const GoldenRow& w) {
      return label_of(w) == label_of(row) && stage_kind(w.stage) == stage_kind(row.stage);
    });
    if (same == worst.end()) {
      worst.push_back(row);
      continue;
    }
    const bool was_bad = same->verdict == Verdict::fail, is_bad = row.verdict == Verdict::fail;
    if (is_bad != was_bad ? is_bad : row.max_abs > same->max_abs) *same = row;
  }
  return worst;
}

std::string table_of(const std::vector<GoldenRow>& rows) {
  Table table({{"case"},
               {"stage"},
               {"largest error", Table::Side::right},
               {"relative", Table::Side::right},
               {"mean", Table::Side::right},
               {"at"},
               {"verdict"},
               {"tolerance"}});
  for (const GoldenRow& row : rows) {
    table.add({label_of(row), row.stage, brief(row.max_abs), brief(row.max_rel), brief(row.mean_abs), row.place,
               name_of(row.verdict), row.tolerance});
  }
  return table.text();
}

std::string json_of(const GoldenRow& row) {
  Json tree = Json::object();
  tree.set("golden", Json::of(row.golden));
  tree.set("case", Json::of(row.case_name));
  tree.set("stage", Json::of(row.stage));
  tree.set("max_abs", Json::of(row.max_abs));
  tree.set("max_rel", Json::of(row.max_rel));
  tree.set("mean_abs", Json::of(row.mean_abs));
  tree.set("place", Json::of(row.place));
  tree.set("tolerance", Json::of(row.tolerance));
  tree.set("verdict", Json::of(name_of(row.verdict)));
  return to_string(tree) + "\n";
}

Result<std::vector<int32_t>> token_map_of(const std::string& folder) {
  const auto tokenizer = Tokenizer::open(folder + "/tokenizer.json");
  if (!tokenizer) return tokenizer.error();
  auto vocabulary = compress_vocabulary(*tokenizer);
  if (!vocabulary) return vocabulary.error();
  return std::move(vocabulary->map);
}

Result<int> run_check_golden(const Settings& s, const Common& common) {
  if (s.golden.empty()) {
    return Error{ErrorCode::usage, "no golden folder", "fathom check-golden",
                 "pass --golden DIR, which has cases.json"};
  }
  const auto backend = open_backend(common.backend);
  if (!backend) return backend.error();
  GoldenOptions options;
  options.folder = s.golden;
  options.case_filter = s.case_name;
  options.threads = int(common.threads.value_or(0));
  options.batch_invariant = s.batch_invariant;
  options.token_map = token_map_of;
  Progress progress("checking", "stages", 0);
  int64_t done = 0;
  options.on_row = [&](const GoldenRow& row) { progress.update(++done, label_of(row)); };
  const auto report = check_golden(*backend, options);
  progress.finish();
  if (!report) return report.error();

  int64_t failed = 0, informative = 0;
  for (const GoldenRow& row : report->rows) {
    failed += row.verdict == Verdict::fail;
    informative += row.verdict == Verdict::informative;
  }
  std::string out;
  if (common.json) {
    for (const GoldenRow& row : report->rows) out += json_of(row);
  } else {
    out = table_of(s.all ? report->rows : worst_rows(report->rows));
    const auto all = int64_t(report->rows.size());
    out += "\n" + with_commas(all) + " stages on " + backend->name + ": " + with_commas(all - failed - informative) +
           " pass, " + with_commas(failed) + " fail, " + with_commas(informative) + " informative" +
           (s.all ? "" : "; the worst of each kind is shown, --all shows every layer") + "\n";
  }
  if (auto printed = print(out); !printed) return printed.error();
  if (report->passed) return kDone;
  return Error{
      ErrorCode::failed,
      with_commas(failed) + " of " + with_commas(int64_t(report->rows.size())) + " stages are over their tolerance",
      s.golden, "compare with --backend reference; the first stage that fails is the place to look"};
}

}  // namespace

Command check_golden_command() {
  const auto s = std::make_shared<Settings>();
  const std::string what = "What to check";
  return {.name = "check-golden",
          .summary = "compare with the recorded tensors of the PyTorch reference",
          .example = "fathom check-golden --golden shared/golden --backend cpu",
          .note = "exit 1 on a difference",
          .options = {{.name = "golden",
                       .value = "DIR",
                       .help = "folder with cases.json; folders in it that have one are checked too",
                       .group = what,
                       .target = &s->golden},
                      {.name = "case",
                       .value = "NAME",
                       .help = "this case only, e.g. full_f32",
                       .fallback = "all",
                       .group = what,
                       .target = &s->case_name},
                      {.name = "batch-invariant",
                       .help = "on a device: with the kernels of generate --batch-invariant",
                       .group = what,
                       .target = &s->batch_invariant},
                      {.name = "all", .help = "print every stage of every layer", .group = what, .target = &s->all}},
          .run = [s](const Common& common) { return run_check_golden(*s, common); }};
}

}  // namespace fathom::cli
