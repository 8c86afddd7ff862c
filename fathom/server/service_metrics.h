// fathom/server/service_metrics.h
// What the service counts, beside the engine's own metrics: requests by route and status, what runs and waits, tokens,
// times as clients see them. Registered once; recording is atomic additions. Source: spec/engine.md R-40,
// spec/codec-policy.md 3 (dropped calls).
#pragma once
#include <array>
#include <map>
#include <mutex>
#include <string>

#include "fathom/base/metrics.h"
#include "fathom/net/http_server.h"
#include "fathom/server/answer.h"
#include "fathom/server/engine_service.h"

namespace fathom {

class ServiceMetrics {
 public:
  /// `metrics` must outlive it.
  explicit ServiceMetrics(Metrics& metrics);

  /// A request that was answered. `route` is one of the table's paths, or "other".
  void count_request(const std::string& route, int status, double seconds);
  /// An answer that was generated, also one that failed.
  void count_answer(const AnswerOutcome& outcome);
  /// A request that was refused for its key or its limits.
  void count_refusal(int status);
  /// Values of now, before they are shown.
  void set(const EngineHealth& health, const net::HttpServerCounts& counts, int64_t store_failures);

 private:
  struct Family {
    std::map<int, Counter*> by_status;
    Histogram* seconds = nullptr;
  };
  Metrics& metrics_;
  std::mutex mutex_;  // of `families_`, which learns routes and statuses as they come
  std::map<std::string, Family> families_;
  Counter &prompt_tokens_, &cached_tokens_, &answer_tokens_, &reasoning_tokens_;
  Counter &calls_dropped_, &arguments_repaired_;
  Histogram &queue_seconds_, &first_token_seconds_, &token_seconds_, &answer_seconds_;
  Gauge &open_, &waiting_, &ready_, &connections_, &slow_readers_, &clients_gone_, &store_failures_, &step_age_;
};

}  // namespace fathom
