#include "fathom/engine/statistics_series.h"

namespace fathom {
namespace {

// From a token in a millisecond on a good machine to a request that waited minutes behind others.
std::vector<double> waits() {
  return {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250};
}
// Finer where people feel the difference: 5 to 100 ms.
std::vector<double> gaps() {
  return {0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02,
          0.03,   0.05,  0.075, 0.1,   0.15,  0.25,   0.5,  1,     2.5};
}

}  // namespace

StatisticsSeries::StatisticsSeries(Metrics& m) {
  using enum RequestState;
  const auto change = [&](RequestState from, RequestState to) {
    transitions[size_t(from)][size_t(to)] =
        &m.counter("fathom_engine_transitions_total", "Changes of a request's state (engine.md R-1).",
                   {{"from", name_of(from)}, {"to", name_of(to)}});
  };
  change(submitted, loading), change(submitted, waiting), change(submitted, finished);
  change(loading, waiting), change(loading, finished);
  change(waiting, running), change(waiting, finished);
  change(running, waiting), change(running, finished);
  for (const RequestState state : {loading, waiting, running}) {
    requests[size_t(state)] =
        &m.gauge("fathom_engine_requests", "Requests that are in this state now.", {{"state", name_of(state)}});
  }
  for (size_t i = 0; i < kFinishReasons; ++i) {
    this->finished[i] = &m.counter("fathom_engine_requests_finished_total", "Requests that ended, by reason.",
                                   {{"reason", name_of(FinishReason(i))}});
  }
  for (size_t i = 0; i < kErrorCodes; ++i) {
    failures[i] = &m.counter("fathom_engine_failures_total", "Requests that were rejected or failed, by kind of error.",
                             {{"code", name_of(ErrorCode(i))}});
  }
  prompt_tokens = &m.counter("fathom_engine_prompt_tokens_total", "Prompt tokens of finished requests.");
  generated_tokens = &m.counter("fathom_engine_generated_tokens_total", "Tokens brought to requests.");
  queue_seconds =
      &m.histogram("fathom_engine_queue_seconds", "From arrival until the first row of a request is planned.", waits());
  first_token_seconds =
      &m.histogram("fathom_engine_first_token_seconds", "From arrival until the first token of an answer.", waits());
  token_gap_seconds = &m.histogram("fathom_engine_token_gap_seconds",
                                   "Between two commits that bring a request tokens; what its reader waits.", gaps());
  inter_token_seconds = &m.histogram(
      "fathom_engine_inter_token_seconds",
      "Time a token behind the first: each gap, shared by the tokens that end it. One value a token.", gaps());
  request_seconds = &m.histogram("fathom_engine_request_seconds", "From arrival until the end of a request.", waits());

  const auto steps = [&](const char* kind) {
    return &m.counter("fathom_engine_steps_total", "Steps that ran, by what they ran.", {{"kind", kind}});
  };
  decode_steps = steps("decode"), prompt_steps = steps("prompt"), mixed_steps = steps("mixed");
  step_seconds =
      &m.histogram("fathom_engine_step_seconds", "From the end of a step to the end of the next one.", gaps());
  const auto part = [&](const char* name) {
    return &m.counter("fathom_engine_step_part_seconds_total",
                      "Time of steps by part; host and device overlap, so the parts may exceed the whole.",
                      {{"part", name}});
  };
  plan_seconds = part("plan"), forward_seconds = part("forward"), sample_seconds = part("sample");
  other_seconds = part("other");
  const auto rows = [&](const char* kind) {
    return &m.counter("fathom_engine_rows_total", "Rows that ran, by kind.", {{"kind", kind}});
  };
  computed_rows = rows("prompt"), replayed_rows = rows("replayed"), decode_rows = rows("decode");
  decoder_rows =
      &m.counter("fathom_engine_prompt_decoder_rows_total", "Prompt rows that ran through the decoder half as well.");
  passed_over = &m.counter("fathom_engine_passed_over_total",
                           "Admissions of requests that did not have to wait for one before them that did not fit.");

  for (size_t i = 0; i < size_t(kMaxDrafts); ++i) {
    const MetricLabels position = {{"position", std::to_string(i + 1)}};
    offered[i] =
        &m.counter("fathom_engine_drafts_offered_total", "Drafts verified, by position in their round.", position);
    accepted[i] =
        &m.counter("fathom_engine_drafts_accepted_total", "Drafts accepted, by position in their round.", position);
  }
  accepted_length = &m.histogram("fathom_engine_accepted_length", "Drafts accepted in a round that verified some.",
                                 {0, 1, 2, 3, 4, 5, 6, 7, 8});
  confidence_error = &m.counter("fathom_engine_confidence_error_total",
                                "Sum over verified drafts of |estimated acceptance - confidence|.");
  confidences = &m.counter("fathom_engine_confidences_total", "Drafts in that sum.");
  for (size_t i = 0; i < kDraftPolicies; ++i) {
    const MetricLabels policy = {{"policy", name_of(DraftPolicy(i))}};
    policy_steps[i] = &m.counter("fathom_engine_draft_policy_steps_total",
                                 "Steps with decode rows, by how drafts were verified.", policy);
    policy_rate[i] = &m.gauge("fathom_engine_draft_policy_tokens_per_second",
                              "Measured rate of this way to verify drafts at the present load; 0: not known.", policy);
  }
  trial_ratio = &m.gauge("fathom_engine_draft_trial_ratio",
                         "Time lost to trying other ways to verify drafts, of all time at the present load.");

  const auto blocks = [&](const char* state) {
    return &m.gauge("fathom_engine_blocks", "Blocks of 128 tokens; idle ones are findable and in nobody's use.",
                    {{"state", state}});
  };
  used_blocks = blocks("used"), idle_blocks = blocks("idle"), free_blocks = blocks("free");
  const auto slots = [&](const char* state) {
    return &m.gauge("fathom_engine_slots", "State slots, one a running sequence.", {{"state", state}});
  };
  used_slots = slots("used"), free_slots = slots("free");
  hit_tokens = &m.counter("fathom_engine_cached_tokens_total", "Prompt tokens that were found and not computed.");
  prompts = &m.counter("fathom_engine_prefix_prompts_total", "Prompts admitted that may use the prefix cache.");
  repeatable_prompts =
      &m.counter("fathom_engine_prefix_repeatable_prompts_total", "Of them, those long enough for a hit.");
  hits = &m.counter("fathom_engine_prefix_hits_total", "Of them, those that used one.");
  for (size_t i = 0; i < size_t(kCacheTiers); ++i) {
    tier_tokens[i] = &m.counter("fathom_engine_prefix_hit_tokens_total", "Tokens of hits, by the tier they came from.",
                                {{"tier", name_of(CacheTier(i))}});
  }
  const auto prefix = [&](const char* event) {
    return &m.counter("fathom_engine_prefix_blocks_total", "What happened to blocks of the prefix cache.",
                      {{"event", event}});
  };
  published = prefix("published"), deduplicated = prefix("deduplicated"), evicted = prefix("evicted");
  expired = prefix("expired"), collisions = prefix("collision");
  const auto snapshot = [&](const char* event) {
    return &m.counter("fathom_engine_snapshots_total", "What happened to window snapshots.", {{"event", event}});
  };
  snapshots_put = snapshot("put"), snapshots_found = snapshot("found"), snapshots_missed = snapshot("missed");
  snapshots_evicted = snapshot("evicted"), snapshots_expired = snapshot("expired");
  snapshot_bytes = &m.gauge("fathom_engine_snapshot_bytes", "Host memory that window snapshots take.");

  grammar_bytes = &m.gauge("fathom_engine_grammar_bytes", "Memory of compiled grammars, cached or of running answers.");
  grammars_waiting = &m.gauge("fathom_engine_grammars_waiting", "Constraints that no thread compiles yet.");
  const auto grammars = [&](const char* event) {
    return &m.counter("fathom_engine_grammars_total", "What happened to constraints and their compiled grammars.",
                      {{"event", event}});
  };
  grammars_compiled = grammars("compiled"), grammars_failed = grammars("failed");
  grammars_found = grammars("found"), grammars_evicted = grammars("evicted");

  const auto window = [&](const char* name, const char* help) { return &m.gauge(name, help); };
  window_steps = window("fathom_engine_window_steps_per_second", "Steps a second, over the last steps.");
  window_tokens = window("fathom_engine_window_tokens_per_second", "Tokens a second, over the last steps.");
  window_prompt_rows =
      window("fathom_engine_window_prompt_rows_per_second", "Prompt rows a second, over the last steps.");
  window_prompt_time =
      window("fathom_engine_window_prompt_time_ratio", "Share of step time of steps with prompt rows.");
  window_cached =
      window("fathom_engine_window_cached_ratio", "Share of prompt tokens that were found, over the last steps.");
  window_acceptance = window("fathom_engine_window_acceptance_ratio",
                             "Share of verified drafts that were accepted, over the last steps.");
  window_verified = window("fathom_engine_window_verified_drafts", "Drafts verified a round, over the last steps.");
  window_confidence_error =
      window("fathom_engine_window_confidence_error", "Mean |estimated acceptance - confidence|, over the last steps.");
  window_first_token_mean =
      window("fathom_engine_window_first_token_mean_seconds", "Mean time to the first token, over the last steps.");
  window_first_token_max =
      window("fathom_engine_window_first_token_max_seconds", "Longest time to a first token, over the last steps.");
}

}  // namespace fathom
