// fathom/cli/codec_laws.cpp
// `fathom codec fuzz`: the codec's own laws on random requests, answers and cuts.
#include "fathom/cli/codec.h"
#include "fathom/cli/interrupt.h"
#include "fathom/cli/program.h"
#include "fathom/cli/terminal.h"
#include "fathom/recipe/conformance/laws.h"
#include "fathom/recipe/conformance/random_answer.h"
#include "fathom/recipe/conformance/random_request.h"

namespace fathom::cli {
namespace {

/// The first law that one seed breaks.
std::optional<recipe::BrokenLaw> try_seed(recipe::Api api, uint64_t seed, recipe::Policy policy) {
  if (auto broken = recipe::try_request(api, seed, policy)) return broken;
  if (auto broken = recipe::try_answer(api, seed, policy)) return broken;
  return recipe::try_round_trip(seed, policy);
}

/// What would be tried, one JSON object a line: input for another codec.
Result<int> print_inputs(const CodecSettings& s, recipe::Api api) {
  for (int64_t i = 0; i < s.count && !interrupted(); ++i) {
    const uint64_t seed = uint64_t(s.seed + i);
    Json line = Json::object();
    line.set("seed", Json::of(int64_t(seed)));
    line.set("request", recipe::random_request(api, seed));
    line.set("output", Json::of(recipe::random_answer(seed)));
    if (auto printed = print(to_string(line) + "\n"); !printed) return printed.error();
  }
  return kDone;
}

}  // namespace

Result<int> run_codec_fuzz(const CodecSettings& s, const Common& common) {
  const recipe::Api api = *recipe::api_of(s.api);
  const InterruptScope scope;
  if (s.print_inputs) return print_inputs(s, api);
  const recipe::Policy policy = *recipe::policy_of(s.policy);
  Progress progress("trying", "seeds", s.count);
  int64_t done = 0;
  std::optional<recipe::BrokenLaw> broken;
  for (; done < s.count && !broken && !interrupted(); ++done) {
    progress.update(done);
    broken = try_seed(api, uint64_t(s.seed + done), policy);
  }
  progress.finish();
  const int64_t last = s.seed + done - 1;
  Json report = Json::object();
  report.set("api", Json::of(s.api));
  report.set("tried", Json::of(done));
  report.set("first_seed", Json::of(s.seed));
  report.set("broken", broken ? Json::of(broken->law) : Json());
  std::string text = s.api + ": " + with_commas(done) + " seeds from " + std::to_string(s.seed) + ": ";
  if (broken) {
    report.set("seed", Json::of(last));
    report.set("detail", Json::of(broken->detail));
    text += "seed " + std::to_string(last) + " breaks a law: " + broken->law + "\n" + broken->detail + "\n" +
            "again: fathom codec fuzz --api " + s.api + " --codec-policy " + s.policy + " --count 1 --seed " +
            std::to_string(last) + "\n";
  } else {
    text += "all laws hold\n";
  }
  if (auto printed = print(common.json ? to_string(report) + "\n" : text); !printed) return printed.error();
  if (broken) return kFailed;
  if (interrupted()) return interrupted_error("fathom codec fuzz", "the seeds above hold");
  return kDone;
}

}  // namespace fathom::cli
