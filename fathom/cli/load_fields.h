// fathom/cli/load_fields.h
// The fields that results of a load have in common, whether it was simulated, run in this process or on an endpoint, so
// that their files can be read by the same programs. Pure.
#pragma once
#include <initializer_list>
#include <string>
#include <utility>

#include "fathom/base/json.h"
#include "fathom/engine/load_report.h"

namespace fathom::cli {

/// "350 ms", "1.2 s", "0".
std::string time_text(double seconds);
/// `name`_mean_s, _p50_s, _p90_s, _p99_s, _max_s.
void set_quantiles(Json& tree, const std::string& name, const Quantiles& quantiles);
/// seconds, tokens_per_s, requests_per_s; answers by their end and tokens; then `more` counts; hit_rate; the quantiles
/// queue, first_token, gap, per_token, total. In this order, which is that of the columns.
void set_load(Json& tree, const LoadReport& load, std::initializer_list<std::pair<const char*, int64_t>> more);
/// model, machine, commit, command: the last columns.
void set_origin(Json& tree, const std::string& model, const std::string& machine, const std::string& commit,
                const std::string& command);

}  // namespace fathom::cli
