#include "fathom/cli/load_fields.h"

#include "fathom/cli/terminal.h"

namespace fathom::cli {

std::string time_text(double seconds) {
  if (seconds <= 0) return "0";
  return seconds < 1 ? brief(1000 * seconds) + " ms" : brief(seconds) + " s";
}

void set_quantiles(Json& tree, const std::string& name, const Quantiles& q) {
  for (const auto& [suffix, value] :
       {std::pair("mean", q.mean), {"p50", q.p50}, {"p90", q.p90}, {"p99", q.p99}, {"max", q.most}}) {
    tree.set(name + "_" + suffix + "_s", Json::of(value));
  }
}

void set_load(Json& tree, const LoadReport& load, std::initializer_list<std::pair<const char*, int64_t>> more) {
  tree.set("seconds", Json::of(load.seconds));
  tree.set("tokens_per_s", Json::of(load.tokens_per_second()));
  tree.set("requests_per_s", Json::of(load.requests_per_second()));
  for (const auto& [key, value] : {std::pair("answers", load.answers),
                                   {"finished", load.finished},
                                   {"cancelled", load.cancelled},
                                   {"rejected", load.rejected},
                                   {"failed", load.failed},
                                   {"prompt_tokens", load.prompt_tokens},
                                   {"cached_tokens", load.cached_tokens},
                                   {"output_tokens", load.output_tokens}}) {
    tree.set(key, Json::of(value));
  }
  for (const auto& [key, value] : more) tree.set(key, Json::of(value));
  tree.set("hit_rate", Json::of(load.hit_rate()));
  set_quantiles(tree, "queue", load.queue);
  set_quantiles(tree, "first_token", load.first_token);
  set_quantiles(tree, "gap", load.gap);
  set_quantiles(tree, "per_token", load.per_token);
  set_quantiles(tree, "total", load.total);
}

void set_origin(Json& tree, const std::string& model, const std::string& machine, const std::string& commit,
                const std::string& command) {
  tree.set("model", Json::of(model));
  tree.set("machine", Json::of(machine));
  tree.set("commit", Json::of(commit));
  tree.set("command", Json::of(command));
}

}  // namespace fathom::cli
