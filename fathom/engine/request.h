// fathom/engine/request.h
// All that the number wing knows of a question, and all that comes out. Token ids only: text is the caller's matter.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fathom/base/result.h"
#include "fathom/cache/replay.h"
#include "fathom/grammar/constraint.h"

namespace fathom {

using RequestId = uint64_t;
inline constexpr int kMaxDrafts = 8;
inline constexpr int kMaxAnswers = 128;  // of one request

/// Which probabilities are told: of the raw logits, as public APIs expect, or of the law that the token was drawn
/// from, after bias, penalties, temperature and filters; there what cannot be drawn counts kNever.
enum class LogprobsOf { raw, sampled };
inline constexpr float kNever = -9999;
inline constexpr float kNoDraft = 1;  // no log-probability: the token was no accepted draft

/// How drafts are verified. Both keep the target's law. rejection: accepts most (engine.md 7.5), but the text of a seed
/// depends on the drafts. transparent: the text of a seed is the same without drafts and with any number of them
/// which takes rows that are the same in any batch: an engine without them refuses it.
enum class Verification { rejection, transparent };

/// Order and meaning: spec/engine.md 8.1 and R-33. Source of the fields: engine.md 2.1, R-5.
struct Sampling {
  float temperature = 1;         // >= 0; below 1e-5: greedy
  float top_p = 0.95f;           // (0, 1]
  float min_p = 0;               // [0, 1]
  int32_t top_k = 0;             // 0: all
  float presence_penalty = 0;    // subtracted from the logit of every token already generated
  float frequency_penalty = 0;   // times its count
  float repetition_penalty = 1;  // divides positive, multiplies negative logits of tokens in prompt and answer
  std::vector<std::pair<int32_t, float>> logit_bias;  // added; -infinity forbids
  std::optional<uint64_t> seed;                       // none: random
  int64_t max_tokens = 0;                             // 0: what fits into the context
  int64_t max_total_tokens = 0;                       // of prompt and answer; 0: what fits into the context
  int64_t min_tokens = 0;                 // so many tokens come before the end-of-text token or a stop token may
  int64_t first_n_token_no_eos = 0;       // so many come before the end-of-text token may; stop tokens may come
  std::vector<int32_t> golden_token_ids;  // teacher forcing: token i of the answer is golden_token_ids[i]; -1: free
  std::vector<int32_t> stop_ids;          // besides the end-of-text token
  bool ignore_eos = false;  // it does not end the answer; a constrained one ends where its constraint does
  int top_logprobs = -1;    // -1: no log-probabilities; 0: of the chosen token; n: of the n best too (at most 1000)
  LogprobsOf logprobs_of = LogprobsOf::raw;  // of the answer; those of the prompt are raw
  bool sum_smaller_probs = false;            // is told with each log-probability of the answer
};

struct Request {
  std::vector<int32_t> ids;  // the prompt; not empty
  Sampling sampling;
  std::optional<ReplayMode> replay;               // none: the engine's
  std::optional<int> drafts;                      // verified drafts a round, 0 to the model's block; none: the engine's
  std::optional<Verification> verification;       // none: the engine's
  bool prompt_logprobs = false;                   // forces replay off
  int answers = 1;                                // to the same prompt, computed once; answer i draws with seed + i
  std::optional<grammar::Constraint> constraint;  // the answer keeps to it, or the request fails

  int priority = 0;    // higher is served first; any integer
  std::string tenant;  // whose it is: fair share and cache are kept apart; empty: nobody in particular
  std::optional<std::string> cache_salt;      // prefixes are shared with whoever knows it; none: with the same tenant
  bool use_cache = true;                      // finds prefixes, and leaves its own
  std::optional<double> first_token_seconds;  // targets, not limits: until the first token,
  std::optional<double> between_tokens_seconds;  // and between steps that bring tokens
};

struct TokenLogprob {
  int32_t id = 0;
  float logprob = 0;
  std::vector<std::pair<int32_t, float>> top;  // falling
  /// Of an accepted draft: its log-probability by the law that the draft was drawn from, which for a greedy request and
  /// for a token that a grammar forced is certain (0). kNoDraft of every other token.
  float nextn_logprob = kNoDraft;
  /// Probability, by the law of `logprob`, of all tokens ranked at or below this one, itself included; among equals the
  /// lower id ranks higher. -1: not asked for.
  float sum_smaller_probs = -1;
};

/// What a request cost. Times are seconds since submit().
struct Usage {
  int64_t prompt_tokens = 0, cached_tokens = 0, replayed_tokens = 0, generated_tokens = 0;
  int64_t encoder_rows = 0, decoder_rows = 0;  // computed, of the prompt
  int64_t preemptions = 0;                     // it was put back so often
  int64_t rounds = 0;                          // steps that verified at least one draft
  std::array<int64_t, kMaxDrafts> offered{};   // drafts verified, by position
  std::array<int64_t, kMaxDrafts> accepted{};  // and accepted, also those behind a stop token, which are not emitted
  double queue_seconds = 0, first_token_seconds = 0, total_seconds = 0;
};

enum class FinishReason { stop, length, cancelled, rejected, failed };
const char* name_of(FinishReason reason);

struct Finish {
  FinishReason reason = FinishReason::stop;
  std::optional<Error> error;  // of rejected and failed
  Usage usage;
};

/// What one commit says about one request: the tokens accepted since the last event, and the end if it is the end. The
/// stop token itself is included (it counts as generated); callers that print text leave it out.
struct Event {
  RequestId request = 0;
  std::vector<int32_t> ids;
  std::vector<TokenLogprob> logprobs;          // one a token, when asked for
  std::vector<TokenLogprob> prompt_logprobs;   // with the first tokens: prompt positions 1, 2, ...
  std::optional<int64_t> cached_tokens;        // with the first tokens: as usage will tell
  int drafts = 0, accepted = 0;                // verified in this step
  std::array<float, kMaxDrafts> confidence{};  // of each of those drafts that it would be accepted; NaN: not known
  std::optional<Finish> finish;
};

/// What a request must fit into.
struct RequestLimits {
  int64_t vocabulary = 0;
  int64_t context = 0;  // tokens of prompt and answer
  int drafts = 0;       // the model's block
  int32_t eos_id = 0;
  std::span<const int32_t> blacklist = {};  // tokens that no request may draw
  bool batch_invariant = true;              // the engine's rows are: drafts change no bit
};

/// The first thing that is wrong with a request, named by its field. Errors: usage, out_of_range. Source:
/// engine.md 2.1.
Result<void> check_request(const Request& request, const RequestLimits& limits);

}  // namespace fathom
