// fathom/engine/load_report.h
// What a load on an engine came to: throughput, and the times that its users saw. The same for a simulated and a real
// run; times are seconds of any clock. Source: spec/engine.md 14, R-40.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "fathom/engine/request.h"

namespace fathom {

struct Quantiles {
  int64_t count = 0;
  double mean = 0, p50 = 0, p90 = 0, p99 = 0, most = 0;
};
/// Sorts. The smallest value that at least the share is at or below; zeros for no values.
Quantiles quantiles_of(std::vector<float>& values);

/// One answer.
struct AnswerRecord {
  double arrived = 0, begun = -1, first_token = -1, last_token = -1, ended = -1;  // -1: it did not come to that
  int64_t prompt_tokens = 0, cached_tokens = 0, output_tokens = 0;
  int preemptions = 0;
  FinishReason reason = FinishReason::length;
  int32_t tenant = 0;
  float first_token_target = 0, between_tokens_target = 0;  // 0: none
  float longest_gap = 0;
};

struct TenantReport {
  std::string name;
  int64_t answers = 0, output_tokens = 0;
  Quantiles queue, first_token, gap;
};

struct LoadReport {
  int64_t answers = 0, finished = 0, cancelled = 0, rejected = 0, failed = 0;
  double seconds = 0;  // from the first arrival to the last end
  int64_t prompt_tokens = 0, cached_tokens = 0, output_tokens = 0, preemptions = 0;
  Quantiles queue;        // from arrival to its first row
  Quantiles first_token;  // from arrival
  Quantiles gap;          // between two steps that bring it tokens
  Quantiles per_token;    // of one answer: (last - first) / (tokens - 1)
  Quantiles total;        // from arrival to the end
  int64_t first_token_targets = 0, first_token_met = 0, between_targets = 0, between_met = 0;  // answers
  std::vector<TenantReport> tenants;                                                           // when there are several

  double tokens_per_second() const { return seconds > 0 ? double(output_tokens) / seconds : 0; }
  double requests_per_second() const { return seconds > 0 ? double(finished) / seconds : 0; }
  /// Share of prompt tokens that were found.
  double hit_rate() const { return prompt_tokens > 0 ? double(cached_tokens) / double(prompt_tokens) : 0; }
};

/// Collects; one thread at a time.
class LoadMeter {
 public:
  /// A number for the answer that arrives.
  size_t arrive(double now, int64_t prompt_tokens, const std::string& tenant);
  void begin(size_t answer, double now);
  void tokens(size_t answer, double now, int64_t count);
  void end(size_t answer, double now, FinishReason reason);

  AnswerRecord& answer(size_t number) { return answers_[number]; }
  const std::vector<AnswerRecord>& answers() const { return answers_; }
  LoadReport report() const;

 private:
  std::vector<AnswerRecord> answers_;
  std::vector<std::string> tenants_;
  std::map<std::string, int32_t> tenant_of_;
  std::vector<std::vector<float>> gaps_;  // by tenant
};

}  // namespace fathom
