// fathom/cli/bench_serve_compare.h
// `fathom bench serve --compare FILE.csv --max-slowdown 5%`: is the server slower than it was?
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "fathom/base/result.h"
#include "fathom/cli/bench_serve_report.h"

namespace fathom::cli {

struct ServeComparison {
  std::string table;  // throughput, and medians of the first token and of a token, before and now
  int64_t slower = 0, figures = 0;
  std::string slowest;  // the worst of them, with by how much
};
/// Loads of the same API, trace, rate and concurrency. `before`: what --out wrote, `where` its file. A figure is slower
/// when it is worse by more than `most` (0.05: 5 %). Pure. Errors: bad_input: no such file's text, none of these loads.
Result<ServeComparison> compare_loads(std::span<const ServeRow> rows, std::string_view before, const std::string& where,
                                      double most);

}  // namespace fathom::cli
