#include "fathom/cli/sampling_options.h"

#include <algorithm>
#include <limits>

#include "fathom/cli/option_value.h"
#include "fathom/cli/terminal.h"

namespace fathom::cli {
namespace {

Result<std::pair<int32_t, float>> parse_bias(const std::string& text, int64_t vocabulary) {
  const size_t equals = text.find('=');
  const auto id = parse_integer(text.substr(0, equals));
  std::optional<double> bias;
  if (equals != std::string::npos) {
    const std::string value = text.substr(equals + 1);
    bias = value == "-inf" ? -std::numeric_limits<double>::infinity() : parse_number(value);
  }
  if (!id || !bias || *id < 0 || *id >= vocabulary) {
    return Error{ErrorCode::usage, "\"" + text + "\" is no bias of a token", "--logit-bias",
                 "pass ID=VALUE, such as 42=-5 or 42=-inf, with an id below " + with_commas(vocabulary)};
  }
  return std::pair{int32_t(*id), float(*bias)};
}

template <class T>
float or_default(const std::optional<T>& value, float fallback) {
  return value ? float(*value) : fallback;
}

}  // namespace

std::vector<Option> sampling_options(SamplingSettings& s) {
  const std::string group = "How tokens are chosen";
  const auto option = [&](const char* name, const char* value, const char* help, const char* fallback, Target target,
                          double least, double most) {
    return Option{.name = name,
                  .value = value,
                  .help = help,
                  .fallback = fallback,
                  .group = group,
                  .target = target,
                  .least = least,
                  .most = most};
  };
  constexpr double kMany = 2147483647;
  return {
      option("max-tokens", "N", "longest answer, in tokens", "what fits into the context", &s.max_tokens, 1, 1e12),
      option("greedy", "", "always the likeliest token, as --temperature 0", "", &s.greedy, 0, 1),
      option("temperature", "T", "0 is greedy, larger is more random", "1", &s.temperature, 0, 100),
      option("top-p", "P", "from the likeliest that together have probability P", "0.95", &s.top_p, 1e-6, 1),
      option("top-k", "K", "from the K likeliest; 0: from all", "0", &s.top_k, 0, kMany),
      option("min-p", "P", "from those with at least P times the best probability", "0", &s.min_p, 0, 1),
      option("presence-penalty", "X", "subtracted from logits of tokens that were generated", "0", &s.presence_penalty,
             -100, 100),
      option("frequency-penalty", "X", "the same, times how often", "0", &s.frequency_penalty, -100, 100),
      option("repetition-penalty", "X", "divides the logits of tokens seen in prompt or answer", "1",
             &s.repetition_penalty, 1e-6, 100),
      Option{.name = "logit-bias",
             .value = "ID=V",
             .help = "added to a token's logit, -inf forbids it; may be repeated",
             .group = group,
             .target = &s.logit_bias},
      Option{.name = "stop",
             .value = "TEXT",
             .help = "end before this text; may be repeated",
             .group = group,
             .target = &s.stop},
      Option{.name = "stop-id",
             .value = "ID",
             .help = "end at this token, besides the end token; a list",
             .group = group,
             .target = &s.stop_ids,
             .least = 0,
             .most = kMany},
      option("ignore-eos", "", "do not end at the end token", "", &s.ignore_eos, 0, 1),
      option("seed", "N", "the same seed gives the same answer", "random", &s.seed, 0, 9.2e18),
      option("logprobs", "N", "log-probability of each token, and of the N best", "none", &s.logprobs, 0, 1000),
      option("sum-smaller-probs", "", "and the probability of all tokens that are no likelier", "",
             &s.sum_smaller_probs, 0, 1),
  };
}

Result<void> set_by_name(SamplingSettings& settings, const std::string& name, const std::string& text) {
  std::vector<std::string> names;
  for (const Option& option : sampling_options(settings)) {
    names.push_back(option.name);
    if (option.name != name) continue;
    if (auto* list = std::get_if<std::vector<std::string>*>(&option.target)) (*list)->clear();
    if (auto* ids = std::get_if<std::vector<int64_t>*>(&option.target)) (*ids)->clear();
    const bool is_list = std::holds_alternative<std::vector<std::string>*>(option.target) ||
                         std::holds_alternative<std::vector<int64_t>*>(option.target);
    if (text.empty() && is_list) return {};
    return assign(option, text, "/set " + name);
  }
  std::string remedy = "use " + joined(names);
  if (const auto near = closest(name, names))
    remedy = "did you mean " + *near + "? The names are " + joined(names, "and");
  return Error{ErrorCode::usage, "unknown setting \"" + name + "\"", "/set", remedy};
}

SamplingSettings overlaid(SamplingSettings base, const SamplingSettings& over) {
  const auto take = [](auto& value, const auto& given) {
    if (given) value = given;
  };
  take(base.max_tokens, over.max_tokens);
  take(base.top_k, over.top_k);
  take(base.seed, over.seed);
  take(base.logprobs, over.logprobs);
  if (over.greedy) base.temperature.reset();
  take(base.temperature, over.temperature);
  take(base.top_p, over.top_p);
  take(base.min_p, over.min_p);
  take(base.presence_penalty, over.presence_penalty);
  take(base.frequency_penalty, over.frequency_penalty);
  take(base.repetition_penalty, over.repetition_penalty);
  if (!over.logit_bias.empty()) base.logit_bias = over.logit_bias;
  if (!over.stop.empty()) base.stop = over.stop;
  if (!over.stop_ids.empty()) base.stop_ids = over.stop_ids;
  take(base.ignore_eos, over.ignore_eos);
  take(base.greedy, over.greedy);
  take(base.sum_smaller_probs, over.sum_smaller_probs);
  return base;
}

Result<Sampling> to_sampling(const SamplingSettings& s, int64_t vocabulary) {
  const Sampling plain;
  Sampling sampling;
  if (s.greedy && s.temperature && *s.temperature > 0) {
    return Error{ErrorCode::usage, "--greedy and --temperature exclude each other", "--greedy", "pass one of them"};
  }
  sampling.temperature = s.greedy ? 0 : or_default(s.temperature, plain.temperature);
  sampling.top_p = or_default(s.top_p, plain.top_p);
  sampling.min_p = or_default(s.min_p, plain.min_p);
  sampling.top_k = int32_t(s.top_k.value_or(plain.top_k));
  sampling.presence_penalty = or_default(s.presence_penalty, plain.presence_penalty);
  sampling.frequency_penalty = or_default(s.frequency_penalty, plain.frequency_penalty);
  sampling.repetition_penalty = or_default(s.repetition_penalty, plain.repetition_penalty);
  sampling.max_tokens = s.max_tokens.value_or(0);
  sampling.ignore_eos = s.ignore_eos;
  if (s.seed) sampling.seed = uint64_t(*s.seed);
  sampling.top_logprobs = int(s.logprobs.value_or(-1));
  sampling.sum_smaller_probs = s.sum_smaller_probs;
  if (s.sum_smaller_probs && !s.logprobs) {
    return Error{ErrorCode::usage, "--sum-smaller-probs comes with the log-probabilities, which nobody asked for",
                 "--sum-smaller-probs", "pass --logprobs too"};
  }
  for (const std::string& text : s.logit_bias) {
    const auto bias = parse_bias(text, vocabulary);
    if (!bias) return bias.error();
    sampling.logit_bias.push_back(*bias);
  }
  for (int64_t id : s.stop_ids) {
    if (id < 0 || id >= vocabulary) {
      return Error{ErrorCode::usage, "no token has the id " + with_commas(id), "--stop-id",
                   "ids go from 0 to " + with_commas(vocabulary - 1)};
    }
    sampling.stop_ids.push_back(int32_t(id));
  }
  for (const std::string& stop : s.stop) {
    if (stop.empty()) return Error{ErrorCode::usage, "an empty stop text", "--stop", "leave it out"};
  }
  return sampling;
}

Result<void> read_sampling(const Json& line, SamplingSettings& settings) {
  for (const Option& option : sampling_options(settings)) {
    std::string key = option.name == "stop-id" ? "stop_ids" : option.name;
    std::replace(key.begin(), key.end(), '-', '_');
    const Json* value = line.find(key);
    if (value == nullptr || value->is_null()) continue;
    const auto wrong = [&](const std::string& wanted) {
      return Error{ErrorCode::bad_input, "\"" + key + "\" is not " + wanted, "key " + key, "give it " + wanted};
    };
    std::vector<std::string> texts;
    if (key == "logit_bias") {
      if (!value->is_object()) return wrong("an object of token ids and numbers");
      for (const auto& [id, bias] : value->fields) texts.push_back(id + "=" + bias.text);
    } else {
      const std::span<const Json> items = value->is_array() ? std::span<const Json>(value->items) : std::span(value, 1);
      for (const Json& item : items) {
        const auto truth = item.as_bool();
        if (!item.is_string() && !item.is_number() && !truth) return wrong("a text, a number, true or false");
        texts.push_back(truth ? (*truth ? "true" : "false") : item.text);
      }
    }
    if (auto* list = std::get_if<std::vector<std::string>*>(&option.target)) (*list)->clear();
    if (auto* ids = std::get_if<std::vector<int64_t>*>(&option.target)) (*ids)->clear();
    for (const std::string& text : texts) {
      if (auto set = assign(option, text, "key " + key); !set) {
        Error error = set.error();
        error.code = ErrorCode::bad_input;
        return error;
      }
    }
  }
  // A line that names a temperature is stronger than --greedy of the command line.
  if (line.find("temperature") != nullptr) settings.greedy = false;
  return {};
}

}  // namespace fathom::cli
