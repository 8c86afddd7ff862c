// fathom/engine/statistics_series.h
// The engine's series in a registry: registered here, once, under the names and with the words that docs/metrics.md
// explains; recorded by statistics.cpp. Private to these files.
#pragma once
#include <array>

#include "fathom/base/metrics.h"
#include "fathom/engine/statistics.h"

namespace fathom {

inline constexpr size_t kFinishReasons = 5, kDraftPolicies = 3, kErrorCodes = 9;

struct StatisticsSeries {
  explicit StatisticsSeries(Metrics& metrics);

  // Requests.
  std::array<std::array<Counter*, kRequestStates>, kRequestStates> transitions{};  // null: there is no such change
  std::array<Gauge*, kRequestStates> requests{};                                   // null: not shown
  std::array<Counter*, kFinishReasons> finished{};
  std::array<Counter*, kErrorCodes> failures{};
  Counter *generated_tokens, *prompt_tokens;
  Histogram *queue_seconds, *first_token_seconds, *token_gap_seconds, *inter_token_seconds, *request_seconds;

  // Steps.
  Counter *decode_steps, *prompt_steps, *mixed_steps;
  Histogram* step_seconds;
  Counter *plan_seconds, *forward_seconds, *sample_seconds, *other_seconds;
  Counter *computed_rows, *replayed_rows, *decoder_rows, *decode_rows;
  Counter* passed_over;

  // Drafts.
  std::array<Counter*, kMaxDrafts> offered{}, accepted{};
  Histogram* accepted_length;
  Counter *confidence_error, *confidences;
  std::array<Counter*, kDraftPolicies> policy_steps{};
  std::array<Gauge*, kDraftPolicies> policy_rate{};
  Gauge* trial_ratio;

  // Caches.
  Gauge *used_blocks, *idle_blocks, *free_blocks, *used_slots, *free_slots, *snapshot_bytes;
  Counter *hit_tokens, *prompts, *repeatable_prompts, *hits;
  std::array<Counter*, kCacheTiers> tier_tokens{};
  Counter *published, *deduplicated, *evicted, *expired, *collisions;
  Counter *snapshots_put, *snapshots_found, *snapshots_missed, *snapshots_evicted, *snapshots_expired;

  // Constraints.
  Gauge *grammar_bytes, *grammars_waiting;
  Counter *grammars_compiled, *grammars_failed, *grammars_found, *grammars_evicted;

  // Of the window.
  Gauge *window_steps, *window_tokens, *window_prompt_rows, *window_prompt_time, *window_cached, *window_acceptance,
      *window_verified, *window_confidence_error, *window_first_token_mean, *window_first_token_max;
};

}  // namespace fathom
