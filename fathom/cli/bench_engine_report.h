// fathom/cli/bench_engine_report.h
// Results of `fathom bench engine` as rows, tables and a picture. Pure.
#pragma once
#include <optional>
#include <span>
#include <string>

#include "fathom/base/json.h"
#include "fathom/cli/plot.h"
#include "fathom/engine/load_report.h"
#include "fathom/engine/simulator.h"

namespace fathom::cli {

/// One run of one trace under one policy.
struct EngineRow {
  std::string bench;             // "simulate", "engine"
  std::string trace;             // a file, or the kind of made-up arrivals
  std::optional<double> rate;    // requests a second of made-up arrivals
  std::string policy, planning;  // "ahead", "synchronous"
  int drafts = 0;
  double acceptance = 0, bias = 0;      // simulated: tokens of a round of all drafts; of confidences
  std::string hardware, hardware_from;  // simulated: the machine, and how good its figures are
  std::string backend;                  // real
  int threads = 0;
  int sequences = 0;
  int64_t step_rows = 0;
  LoadReport load;
  double tokens_per_round = 1, verified_per_round = 0;  // of rounds that verified at least one draft
  std::optional<SimulationReport> simulated;            // without `load`
  std::string model, machine, commit, command;
};

/// One flat object with stable keys, times in seconds; simulated runs also have what only the simulator sees.
/// `lists`: with acceptance by position and the tenants, which no column of CSV can hold.
Json to_json(const EngineRow& row, bool lists);
std::string to_csv(std::span<const EngineRow> rows);

/// Several runs beside each other: throughput and what users saw.
std::string to_table(std::span<const EngineRow> rows);
/// One run: its percentiles, tenants, steps and drafts.
std::string to_details(const EngineRow& row);
/// Throughput of all against speed for one user at the median, a curve a policy, a point a rate.
Plot plot_of(std::span<const EngineRow> rows);

}  // namespace fathom::cli
