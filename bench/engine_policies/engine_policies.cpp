// The engine on the embedded miniature, its policies side by side in one process: drafts off, all, scheduled, at 1, 8
// and 64 streams, greedy and sampled; the asynchronous loop; an agent's conversation with and without the prefix cache.
// Every stream asks the next held-out prompt as soon as its last one is answered, with 128 tokens. Policies take turns,
// so that what else runs on the machine meets all of them; each figure is the median of its turns, and ratios are those
// of a turn.
//
//   engine_policies [--turns N] [--streams 1|8|64] [--temperature 0|1]     one JSON object a line; with one of the
//                                                                          last two only those loads, no agent
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "tests/end_to_end/miniature.h"

namespace fathom {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

std::vector<std::vector<int32_t>> prompts() {
  std::ifstream file(FATHOM_SOURCE_DIR "/models/mini/eval.jsonl");
  std::vector<std::vector<int32_t>> out;
  for (std::string line; std::getline(file, line);) out.push_back(nlohmann::json::parse(line)["prompt_ids"]);
  return out;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Policy {
  const char* name;
  int drafts;
  bool scheduled, asynchronous;
};
constexpr Policy kPolicies[] = {{"none", 0, false, false},
                                {"fixed", 5, false, false},
                                {"scheduled", -1, true, false},
                                {"scheduled, asynchronous", -1, true, true}};

Engine engine_of(const Policy& policy, int streams) {
  EngineOptions options;
  options.backend = "cpu";
  options.context = 1'024;
  options.sequences = streams;
  options.drafts = policy.drafts;
  options.schedule_drafts = policy.scheduled;
  options.asynchronous = policy.asynchronous;
  options.prefix_cache = false;  // the same prompts come again and again
  return open_engine(options);
}

/// One engine that answers the same questions as its rivals, so many at once.
struct Load {
  Engine engine;
  int streams;
  float temperature;

  /// Tokens a second of `count` prompts from number `first` on.
  double run(size_t first, size_t count) {
    static const auto all = prompts();
    int64_t tokens = 0;
    const auto begin = Clock::now();
    size_t next = first;
    int running = 0;
    while (running > 0 || next < first + count) {
      for (; running < streams && next < first + count; ++running) {
        Request request = greedy(all[next++ % all.size()], 128);
        request.sampling.temperature = temperature;
        request.sampling.ignore_eos = true;
        submit(engine, std::move(request));
      }
      for (const Event& event : engine.step()) {
        tokens += int64_t(event.ids.size());
        running -= event.finish.has_value();
      }
    }
    return double(tokens) / seconds_since(begin);
  }
};

/// Which loads: all of those where nothing is said.
struct Chosen {
  std::optional<int> streams;
  std::optional<float> temperature;
};

void compare_policies(int turns, const Chosen& chosen) {
  std::map<int, double> without;  // tokens a second without drafts, greedy, by streams
  for (const float temperature : {0.f, 1.f}) {
    for (const int streams : {1, 8, 64}) {
      if (chosen.streams.value_or(streams) != streams) continue;
      if (chosen.temperature.value_or(temperature) != temperature) continue;
      std::vector<Load> loads;
      for (const Policy& policy : kPolicies) loads.push_back({engine_of(policy, streams), streams, temperature});
      const auto count = size_t(std::max(12, 3 * streams / 2));
      for (Load& load : loads) load.run(0, 4 * count);  // warm: the guard's first trials are over
      std::map<std::string, std::vector<double>> rates, of_best;
      for (int turn = 0; turn < turns; ++turn) {
        std::vector<double> rate;
        for (size_t i = 0; i < loads.size(); ++i) {
          const size_t place = (i + size_t(turn)) % loads.size();
          rate.resize(loads.size());
          rate[place] = loads[place].run(size_t(turn + 1) * count, count);
        }
        for (size_t i = 0; i < loads.size(); ++i) {
          rates[kPolicies[i].name].push_back(rate[i]);
          of_best[kPolicies[i].name].push_back(rate[i] / std::max(rate[0], rate[1]));
        }
      }
      for (const Policy& policy : kPolicies) {
        nlohmann::ordered_json row = {{"what", "policy"},
                                      {"streams", streams},
                                      {"temperature", temperature},
                                      {"policy", policy.name},
                                      {"tokens_per_second", median(rates[policy.name])},
                                      {"of_the_better_of_none_and_fixed", median(of_best[policy.name])}};
        std::cout << row.dump() << std::endl;
      }
      if (temperature == 0) without[streams] = median(rates["none"]);
    }
  }
  if (without.count(1) == 0 || without.count(64) == 0) return;
  nlohmann::ordered_json row = {{"what", "throughput of 64 streams beside 1, without drafts"},
                                {"ratio", without[64] / without[1]}};
  std::cout << row.dump() << std::endl;
}

/// An agent's conversation: each turn is the last one's prompt and answer with some new text behind.
void compare_prefix_cache(int turns) {
  std::map<bool, std::vector<double>> first_token;
  int64_t cached = 0, asked = 0;
  std::vector<double> ratio;
  for (int turn = 0; turn < turns; ++turn) {
    std::map<bool, double> sum;
    for (const bool with : {turn % 2 == 0, turn % 2 != 0}) {
      EngineOptions options;
      options.backend = "cpu";
      options.context = 8'192;
      options.sequences = 4;
      options.prefix_cache = with;
      Engine engine = open_engine(options);
      std::vector<int32_t> history;
      const auto all = prompts();
      for (size_t i = 0; history.size() < 3'000; ++i) history.insert(history.end(), all[i].begin(), all[i].end());
      for (size_t step = 0; step < 12; ++step) {
        Request request = greedy(history, 40);
        request.sampling.ignore_eos = true;
        const RequestId id = submit(engine, std::move(request));
        const Answer answer = run(engine).at(id);
        if (step > 0) {
          first_token[with].push_back(answer.finish.usage.first_token_seconds);
          sum[with] += answer.finish.usage.first_token_seconds;
          if (with) cached += answer.finish.usage.cached_tokens, asked += answer.finish.usage.prompt_tokens;
        }
        history.insert(history.end(), answer.ids.begin(), answer.ids.end());
        const auto& more = all[100 + step];
        history.insert(history.end(), more.begin(), more.end());
      }
    }
    ratio.push_back(sum[false] / sum[true]);
  }
  nlohmann::ordered_json row = {{"what", "agent of 12 turns, 3,000 tokens and more"},
                                {"first_token_ms_without_cache", median(first_token[false]) * 1e3},
                                {"first_token_ms_with_cache", median(first_token[true]) * 1e3},
                                {"ratio", median(ratio)},
                                {"hit_rate", double(cached) / double(asked)}};
  std::cout << row.dump() << std::endl;
}

}  // namespace
}  // namespace fathom

int main(int count, char** words) {
  int turns = 5;
  fathom::Chosen chosen;
  for (int i = 1; i < count; i += 2) {
    const std::string name = words[i];
    if (name == "--help") {
      std::cout << "engine_policies [--turns N] [--streams 1|8|64] [--temperature 0|1]\n";
      return 0;
    }
    const double value = i + 1 < count ? std::atof(words[i + 1]) : -1;
    if (name == "--turns" && value >= 1) {
      turns = int(value);
    } else if (name == "--streams" && (value == 1 || value == 8 || value == 64)) {
      chosen.streams = int(value);
    } else if (name == "--temperature" && (value == 0 || value == 1)) {
      chosen.temperature = float(value);
    } else {
      std::cerr << "engine_policies: " << name << ": pass --turns N, --streams 1, 8 or 64, --temperature 0 or 1"
                << std::endl;
      return 2;
    }
  }
  if (!chosen.streams && !chosen.temperature) fathom::compare_prefix_cache(turns);
  fathom::compare_policies(turns, chosen);
}
