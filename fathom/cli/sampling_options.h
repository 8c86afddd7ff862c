// fathom/cli/sampling_options.h
// How tokens are chosen: the sampling options of `generate` and `chat`, and the same keys in a batch line.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "fathom/base/json.h"
#include "fathom/cli/option.h"
#include "fathom/engine/request.h"

namespace fathom::cli {

struct SamplingSettings {
  std::optional<int64_t> max_tokens, top_k, seed, logprobs;
  std::optional<double> temperature, top_p, min_p, presence_penalty, frequency_penalty, repetition_penalty;
  std::vector<std::string> logit_bias;  // ID=V
  std::vector<std::string> stop;        // texts
  std::vector<int64_t> stop_ids;
  bool ignore_eos = false, greedy = false, sum_smaller_probs = false;
};
std::vector<Option> sampling_options(SamplingSettings& settings);

/// A setting by the name of its option (`temperature`, `max-tokens`), for the conversation's /set; empty text unsets a
/// list. Errors: usage.
Result<void> set_by_name(SamplingSettings& settings, const std::string& name, const std::string& text);

/// `base` where `over` says nothing: options of the command line over the settings of a request.
SamplingSettings overlaid(SamplingSettings base, const SamplingSettings& over);

/// Errors: usage, for a bias or an id that is none and for options that exclude each other.
Result<Sampling> to_sampling(const SamplingSettings& settings, int64_t vocabulary);

/// Settings of a batch line: keys max_tokens, temperature, top_p, top_k, min_p, the penalties, logit_bias (an object),
/// stop (a text or a list), stop_ids, ignore_eos, seed, logprobs, sum_smaller_probs. Other keys are left alone. Errors:
/// bad_input naming the key.
Result<void> read_sampling(const Json& line, SamplingSettings& settings);

}  // namespace fathom::cli
