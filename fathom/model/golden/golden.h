// fathom/model/golden/golden.h
// Comparison with the tensors that the PyTorch reference wrote, stage by stage. Files and cases: docs/numerics.md. The
// tolerances live here, each with its reason, and are printed beside what was found.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "fathom/backend/backend.h"

namespace fathom {

enum class Verdict { pass, fail, informative };
const char* name_of(Verdict verdict);

/// One stage of one case: streams of a layer, index scores, selection, cached rows, logits, drafts.
struct GoldenRow {
  std::string golden;     // folder of the case, e.g. "." or "mini"
  std::string case_name;  // "full_f32"
  std::string stage;      // "layers.3.streams"
  double max_abs = 0;     // largest |found - expected|
  double max_rel = 0;     // the same over the largest |expected| of the stage
  double mean_abs = 0;
  std::string place;      // index of max_abs: "[0, 96, 3, 17]"
  std::string tolerance;  // what had to hold
  Verdict verdict = Verdict::pass;
};

struct GoldenOptions {
  std::string folder;       // holds cases.json; subfolders with one are run too
  std::string case_filter;  // run only the case of this name; empty: all
  int threads = 0;
  bool batch_invariant = false;  // of a device's queue; a CPU's is so in any case
  /// Compressed vocabulary of a checkpoint folder; empty: read engram_token_map.json beside the checkpoint or the
  /// cases.
  std::function<Result<std::vector<int32_t>>(const std::string& checkpoint_folder)> token_map;
  /// Called after each row, for progress; may be empty.
  std::function<void(const GoldenRow&)> on_row;
};

struct GoldenReport {
  std::vector<GoldenRow> rows;
  bool passed = true;
};

/// Runs every case of the folder on the backend. Errors: not_found and bad_input for files that are missing or
/// malformed; usage when the filter names no case.
Result<GoldenReport> check_golden(const Backend& backend, const GoldenOptions& options);

}  // namespace fathom
