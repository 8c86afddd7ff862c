#include "fathom/engine/request.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "fathom/checkpoint/tensor_spec.h"

namespace fathom {
namespace {

constexpr double kLongestTarget = 1e9;  // seconds

std::string text_of(double value) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%g", value);
  return buffer;
}

Error wrong(const char* field, const std::string& found, const std::string& allowed) {
  return {ErrorCode::usage, std::string(field) + " is " + found, field, "use " + allowed};
}

Error unknown_token(const std::string& where, int32_t id, int64_t vocabulary) {
  return {ErrorCode::out_of_range, "token id " + std::to_string(id) + " is not in the vocabulary", where,
          "ids lie in 0 to " + with_commas(vocabulary - 1)};
}

bool inside(int32_t id, int64_t vocabulary) { return id >= 0 && id < vocabulary; }

Result<void> check_ids(const Request& request, const RequestLimits& limits) {
  if (request.ids.empty()) return Error{ErrorCode::usage, "the prompt is empty", "ids", "pass at least one token"};
  for (size_t i = 0; i < request.ids.size(); ++i) {
    if (!inside(request.ids[i], limits.vocabulary)) {
      return unknown_token("ids[" + std::to_string(i) + "]", request.ids[i], limits.vocabulary);
    }
  }
  if (int64_t(request.ids.size()) >= limits.context) {
    return Error{ErrorCode::out_of_range,
                 "prompt of " + with_commas(int64_t(request.ids.size())) + " tokens leaves no room for an answer",
                 "ids",
                 "the context is " + with_commas(limits.context) +
                     " tokens; shorten the prompt or open the engine with a "
                     "longer context"};
  }
  const int64_t total = request.sampling.max_total_tokens;
  if (total > 0 && int64_t(request.ids.size()) >= total) {
    return Error{ErrorCode::out_of_range,
                 "prompt of " + with_commas(int64_t(request.ids.size())) + " tokens leaves no room for an answer",
                 "max_total_tokens", "prompt and answer may have " + with_commas(total) + " tokens; raise the limit"};
  }
  return {};
}

Result<void> check_numbers(const Sampling& s) {
  const auto finite = [](float value) { return std::isfinite(value); };
  if (!finite(s.temperature) || s.temperature < 0) {
    return wrong("temperature", text_of(s.temperature), "0 (greedy) or a positive number");
  }
  if (!(s.top_p > 0 && s.top_p <= 1)) return wrong("top_p", text_of(s.top_p), "a number above 0, at most 1");
  if (!(s.min_p >= 0 && s.min_p <= 1)) return wrong("min_p", text_of(s.min_p), "a number from 0 to 1");
  if (s.top_k < 0) return wrong("top_k", std::to_string(s.top_k), "a positive number, or 0 for all tokens");
  if (!finite(s.presence_penalty)) return wrong("presence_penalty", text_of(s.presence_penalty), "a finite number");
  if (!finite(s.frequency_penalty)) return wrong("frequency_penalty", text_of(s.frequency_penalty), "a finite number");
  if (!finite(s.repetition_penalty) || s.repetition_penalty <= 0) {
    return wrong("repetition_penalty", text_of(s.repetition_penalty), "a positive number; 1 changes nothing");
  }
  if (s.max_tokens < 0)
    return wrong("max_tokens", std::to_string(s.max_tokens), "a positive number, or 0 for what fits");
  if (s.max_total_tokens < 0) {
    return wrong("max_total_tokens", std::to_string(s.max_total_tokens), "a positive number, or 0 for what fits");
  }
  if (s.first_n_token_no_eos < 0) {
    return wrong("first_n_token_no_eos", std::to_string(s.first_n_token_no_eos), "0 or a positive number");
  }
  if (s.min_tokens < 0) return wrong("min_tokens", std::to_string(s.min_tokens), "0 or a positive number");
  if (s.top_logprobs < -1 || s.top_logprobs > 1000) {
    return wrong("top_logprobs", std::to_string(s.top_logprobs), "-1 for none, or 0 to 1000");
  }
  if (s.sum_smaller_probs && s.top_logprobs < 0) {
    return wrong("sum_smaller_probs", "wanted without log-probabilities", "it with top_logprobs of 0 or more");
  }
  return {};
}

Result<void> check_tokens(const Sampling& s, const RequestLimits& limits) {
  std::set<int32_t> forbidden(limits.blacklist.begin(), limits.blacklist.end());
  for (size_t i = 0; i < s.logit_bias.size(); ++i) {
    const auto& [id, bias] = s.logit_bias[i];
    const std::string where = "logit_bias[" + std::to_string(i) + "]";
    if (!inside(id, limits.vocabulary)) return unknown_token(where, id, limits.vocabulary);
    if (std::isnan(bias) || bias == INFINITY) {
      return Error{ErrorCode::usage, "bias of token " + std::to_string(id) + " is " + text_of(bias), where,
                   "use a finite number, or -infinity to forbid the token"};
    }
    if (bias == -INFINITY) forbidden.insert(id);
  }
  for (size_t i = 0; i < s.stop_ids.size(); ++i) {
    if (!inside(s.stop_ids[i], limits.vocabulary)) {
      return unknown_token("stop_ids[" + std::to_string(i) + "]", s.stop_ids[i], limits.vocabulary);
    }
  }
  for (size_t i = 0; i < s.golden_token_ids.size(); ++i) {
    if (s.golden_token_ids[i] != -1 && !inside(s.golden_token_ids[i], limits.vocabulary)) {
      return unknown_token("golden_token_ids[" + std::to_string(i) + "]", s.golden_token_ids[i], limits.vocabulary);
    }
  }
  if (s.first_n_token_no_eos > 0) forbidden.insert(limits.eos_id);
  if (s.min_tokens > 0) {
    forbidden.insert(s.stop_ids.begin(), s.stop_ids.end());
    if (!s.ignore_eos) forbidden.insert(limits.eos_id);
  }
  if (int64_t(forbidden.size()) >= limits.vocabulary) {
    return Error{ErrorCode::usage, "every token is forbidden", "logit_bias", "leave at least one token that may come"};
  }
  return {};
}

}  // namespace

const char* name_of(FinishReason reason) {
  switch (reason) {
    case FinishReason::stop: return "stop";
    case FinishReason::length: return "length";
    case FinishReason::cancelled: return "cancelled";
    case FinishReason::rejected: return "rejected";
    case FinishReason::failed: return "failed";
  }
  return "failed";
}

Result<void> check_request(const Request& request, const RequestLimits& limits) {
  if (auto ids = check_ids(request, limits); !ids) return ids;
  if (auto numbers = check_numbers(request.sampling); !numbers) return numbers;
  if (auto tokens = check_tokens(request.sampling, limits); !tokens) return tokens;
  const auto is_time = [](const std::optional<double>& seconds) {  // NaN has no place in any order of due times
    return !seconds || (*seconds >= 0 && *seconds <= kLongestTarget);
  };
  if (!is_time(request.first_token_seconds)) {
    return wrong("first_token_seconds", text_of(*request.first_token_seconds), "a number from 0 to 1e9, or none");
  }
  if (!is_time(request.between_tokens_seconds)) {
    return wrong("between_tokens_seconds", text_of(*request.between_tokens_seconds), "a number from 0 to 1e9, or none");
  }
  if (request.drafts && (*request.drafts < 0 || *request.drafts > limits.drafts)) {
    return wrong("drafts", std::to_string(*request.drafts), "0 to " + std::to_string(limits.drafts));
  }
  // Drafts change how many rows a step has, and with them the last bits of logits where rows depend on that.
  if (request.verification == Verification::transparent && !limits.batch_invariant) {
    return Error{ErrorCode::usage, "transparent verification where a row's bits depend on how many rows there are",
                 "verification", "open the engine with batch_invariant, or with transparent verification for all"};
  }
  if (request.answers < 1 || request.answers > kMaxAnswers) {
    return wrong("answers", std::to_string(request.answers), "1 to " + std::to_string(kMaxAnswers));
  }
  if (request.answers > 1 && request.prompt_logprobs) {
    return wrong("answers", std::to_string(request.answers), "1 with prompt_logprobs, which every answer would repeat");
  }
  return {};
}

}  // namespace fathom
