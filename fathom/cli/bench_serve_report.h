// fathom/cli/bench_serve_report.h
// Results of `fathom bench serve` as rows, tables and a picture. Pure.
#pragma once
#include <optional>
#include <span>
#include <string>

#include "fathom/base/json.h"
#include "fathom/cli/endpoint_load.h"
#include "fathom/cli/plot.h"

namespace fathom::cli {

/// One load on one endpoint.
struct ServeRow {
  std::string endpoint, model, api;
  std::string trace;                   // a file, or the kind of made-up arrivals; "back to back": closed loop
  std::optional<double> rate;          // requests a second of made-up arrivals
  std::optional<int64_t> concurrency;  // streams, where they are limited
  EndpointLoad result;
  std::string machine, commit, command;
};

/// One flat object with stable keys, times in seconds.
Json to_json(const ServeRow& row);
std::string to_csv(std::span<const ServeRow> rows);
/// Several loads beside each other.
std::string to_table(std::span<const ServeRow> rows);
/// One load: its percentiles, and its failures by kind.
std::string to_details(const ServeRow& row);
/// Throughput of all against speed for one user at the median.
Plot plot_of(std::span<const ServeRow> rows);

/// The live table, at most `columns` wide, each line with its end.
std::string live_text(const EndpointProgress& progress, int columns);

}  // namespace fathom::cli
