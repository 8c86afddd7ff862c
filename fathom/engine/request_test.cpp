#include "fathom/engine/request.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

namespace fathom {
namespace {

constexpr RequestLimits kLimits{.vocabulary = 10, .context = 8, .drafts = 5, .eos_id = 1};

Request good() {
  Request request;
  request.ids = {0, 3, 9};
  return request;
}

// R-37 promises a text that drafts do not change; drafts change how many rows a step has.
TEST(RequestCheck, TransparentVerificationNeedsRowsThatAreTheSameInAnyBatch) {
  Request request = good();
  RequestLimits limits = kLimits;
  for (const bool invariant : {true, false}) {
    limits.batch_invariant = invariant;
    request.verification = Verification::transparent;
    const auto checked = check_request(request, limits);
    EXPECT_EQ(checked.ok(), invariant);
    EXPECT_EQ(checked.ok() ? "" : checked.error().where, invariant ? "" : "verification");
    request.verification = Verification::rejection;
    EXPECT_TRUE(check_request(request, limits).ok());
  }
}

TEST(RequestCheck, APlainRequestPasses) { EXPECT_TRUE(check_request(good(), kLimits).ok()); }

// Each line breaks one thing; the message says what was found and what is allowed, `where` names the field.
TEST(RequestCheck, EveryMistakeIsNamedWithItsLimit) {
  struct Mistake {
    std::function<void(Request&)> make;
    ErrorCode code;
    const char* text;
  };
  const float nan = NAN, inf = INFINITY;
  const Mistake mistakes[] = {
      {[](Request& r) { r.ids.clear(); }, ErrorCode::usage, "the prompt is empty (ids): pass at least one token"},
      {[](Request& r) { r.ids[2] = 10; }, ErrorCode::out_of_range,
       "token id 10 is not in the vocabulary (ids[2]): ids lie in 0 to 9"},
      {[](Request& r) { r.ids[0] = -1; }, ErrorCode::out_of_range,
       "token id -1 is not in the vocabulary (ids[0]): ids lie in 0 to 9"},
      {[](Request& r) { r.ids.assign(8, 3); }, ErrorCode::out_of_range,
       "prompt of 8 tokens leaves no room for an answer (ids): the context is 8 tokens; shorten the prompt or open the "
       "engine with a longer context"},
      {[](Request& r) { r.sampling.temperature = -0.5f; }, ErrorCode::usage,
       "temperature is -0.5 (temperature): use 0 (greedy) or a positive number"},
      {[&](Request& r) { r.sampling.temperature = nan; }, ErrorCode::usage,
       "temperature is nan (temperature): use 0 (greedy) or a positive number"},
      {[&](Request& r) { r.sampling.temperature = inf; }, ErrorCode::usage,
       "temperature is inf (temperature): use 0 (greedy) or a positive number"},
      {[](Request& r) { r.sampling.top_p = 0; }, ErrorCode::usage,
       "top_p is 0 (top_p): use a number above 0, at most 1"},
      {[](Request& r) { r.sampling.top_p = 1.5f; }, ErrorCode::usage,
       "top_p is 1.5 (top_p): use a number above 0, at most 1"},
      {[&](Request& r) { r.first_token_seconds = nan; }, ErrorCode::usage,
       "first_token_seconds is nan (first_token_seconds): use a number from 0 to 1e9, or none"},
      {[&](Request& r) { r.between_tokens_seconds = -1; }, ErrorCode::usage,
       "between_tokens_seconds is -1 (between_tokens_seconds): use a number from 0 to 1e9, or none"},
      {[&](Request& r) { r.sampling.top_p = nan; }, ErrorCode::usage,
       "top_p is nan (top_p): use a number above 0, at most 1"},
      {[](Request& r) { r.sampling.min_p = 2; }, ErrorCode::usage, "min_p is 2 (min_p): use a number from 0 to 1"},
      {[](Request& r) { r.sampling.top_k = -3; }, ErrorCode::usage,
       "top_k is -3 (top_k): use a positive number, or 0 for all tokens"},
      {[&](Request& r) { r.sampling.presence_penalty = inf; }, ErrorCode::usage,
       "presence_penalty is inf (presence_penalty): use a finite number"},
      {[&](Request& r) { r.sampling.frequency_penalty = nan; }, ErrorCode::usage,
       "frequency_penalty is nan (frequency_penalty): use a finite number"},
      {[](Request& r) { r.sampling.repetition_penalty = 0; }, ErrorCode::usage,
       "repetition_penalty is 0 (repetition_penalty): use a positive number; 1 changes nothing"},
      {[](Request& r) { r.sampling.max_tokens = -1; }, ErrorCode::usage,
       "max_tokens is -1 (max_tokens): use a positive number, or 0 for what fits"},
      {[](Request& r) { r.sampling.min_tokens = -1; }, ErrorCode::usage,
       "min_tokens is -1 (min_tokens): use 0 or a positive number"},
      {[](Request& r) { r.sampling.top_logprobs = 1001; }, ErrorCode::usage,
       "top_logprobs is 1001 (top_logprobs): use -1 for none, or 0 to 1000"},
      {[](Request& r) { r.sampling.sum_smaller_probs = true; }, ErrorCode::usage,
       "sum_smaller_probs is wanted without log-probabilities (sum_smaller_probs): use it with top_logprobs of 0 or "
       "more"},
      {[](Request& r) {
         r.sampling.logit_bias = {{3, 1.f}, {11, 1.f}};
       },
       ErrorCode::out_of_range, "token id 11 is not in the vocabulary (logit_bias[1]): ids lie in 0 to 9"},
      {[&](Request& r) {
         r.sampling.logit_bias = {{3, inf}};
       },
       ErrorCode::usage,
       "bias of token 3 is inf (logit_bias[0]): use a finite number, or -infinity to forbid the token"},
      {[](Request& r) { r.sampling.stop_ids = {10}; }, ErrorCode::out_of_range,
       "token id 10 is not in the vocabulary (stop_ids[0]): ids lie in 0 to 9"},
      {[&](Request& r) {
         for (int32_t id = 0; id < 10; ++id) r.sampling.logit_bias.push_back({id, -inf});
       },
       ErrorCode::usage, "every token is forbidden (logit_bias): leave at least one token that may come"},
      {[&](Request& r) {  // all but the end-of-text token, which min_tokens forbids at first
         for (int32_t id = 0; id < 10; ++id) {
           if (id != 1) r.sampling.logit_bias.push_back({id, -inf});
         }
         r.sampling.min_tokens = 1;
       },
       ErrorCode::usage, "every token is forbidden (logit_bias): leave at least one token that may come"},
      {[](Request& r) { r.sampling.max_total_tokens = -2; }, ErrorCode::usage,
       "max_total_tokens is -2 (max_total_tokens): use a positive number, or 0 for what fits"},
      {[](Request& r) { r.sampling.max_total_tokens = 3; }, ErrorCode::out_of_range,
       "prompt of 3 tokens leaves no room for an answer (max_total_tokens): prompt and answer may have 3 tokens; raise "
       "the limit"},
      {[](Request& r) { r.sampling.first_n_token_no_eos = -1; }, ErrorCode::usage,
       "first_n_token_no_eos is -1 (first_n_token_no_eos): use 0 or a positive number"},
      {[](Request& r) {
         r.sampling.golden_token_ids = {-1, 10};
       },
       ErrorCode::out_of_range, "token id 10 is not in the vocabulary (golden_token_ids[1]): ids lie in 0 to 9"},
      {[](Request& r) { r.sampling.golden_token_ids = {-2}; }, ErrorCode::out_of_range,
       "token id -2 is not in the vocabulary (golden_token_ids[0]): ids lie in 0 to 9"},
      {[](Request& r) { r.drafts = 6; }, ErrorCode::usage, "drafts is 6 (drafts): use 0 to 5"},
      {[](Request& r) { r.drafts = -1; }, ErrorCode::usage, "drafts is -1 (drafts): use 0 to 5"},
  };
  for (const Mistake& mistake : mistakes) {
    Request request = good();
    mistake.make(request);
    const auto result = check_request(request, kLimits);
    ASSERT_FALSE(result.ok()) << mistake.text;
    EXPECT_EQ(to_string(result.error()), mistake.text);
    EXPECT_EQ(result.error().code, mistake.code) << mistake.text;
  }
}

TEST(RequestCheck, TheProcesssBlacklistCountsAsForbidden) {
  const std::vector<int32_t> blacklist = {0, 2, 3, 4, 5, 6, 7, 8, 9};
  RequestLimits limits = kLimits;
  limits.blacklist = blacklist;
  EXPECT_TRUE(check_request(good(), limits).ok());  // the end of text is left
  Request request = good();
  request.sampling.first_n_token_no_eos = 1;
  EXPECT_FALSE(check_request(request, limits).ok());
}

TEST(RequestCheck, BordersPass) {
  Request request = good();
  request.ids.assign(7, 9);
  request.sampling.temperature = 0;
  request.sampling.top_p = 1;
  request.sampling.min_p = 1;
  request.sampling.top_logprobs = 1000;
  request.sampling.logit_bias = {{3, -INFINITY}, {3, -INFINITY}};
  request.drafts = 5;
  request.sampling.max_total_tokens = 8;
  request.sampling.golden_token_ids = {-1, 0, 9};
  EXPECT_TRUE(check_request(request, kLimits).ok());
}

}  // namespace
}  // namespace fathom
