#include "fathom/server/key_limits.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace fathom {
namespace {

Refusal too_many(std::string what, double seconds) {
  const int wait = int(std::clamp(std::ceil(seconds), 1.0, 3600.0));
  return {429, {ErrorCode::out_of_memory, std::move(what) + ": wait " + std::to_string(wait) + " s", "", ""}, wait};
}

}  // namespace

void KeyLimits::fill(Use& use, Clock::time_point now) {
  const double minutes = std::chrono::duration<double>(now - use.filled).count() / 60;
  use.filled = now;
  use.requests =
      std::min(double(use.key.requests_per_minute), use.requests + minutes * double(use.key.requests_per_minute));
  use.tokens = std::min(double(use.key.tokens_per_minute), use.tokens + minutes * double(use.key.tokens_per_minute));
}

KeyLimits::Admission KeyLimits::admit(const ApiKey& key, Clock::time_point now) {
  if (key.requests_per_minute == 0 && key.tokens_per_minute == 0 && key.concurrency == 0) return {};
  const std::lock_guard lock(mutex_);
  const auto [at, fresh] = uses_.try_emplace(key.digest);
  Use& use = at->second;
  if (fresh) {
    use.filled = now;
    use.requests = double(key.requests_per_minute);
    use.tokens = double(key.tokens_per_minute);
  }
  use.key = key;  // after a reload its limits may be others
  fill(use, now);
  Admission out;
  if (key.concurrency > 0 && use.running >= key.concurrency) {
    out.refused = too_many("this key runs " + std::to_string(use.running) + " requests, as many as it may", 1);
  } else if (key.requests_per_minute > 0 && use.requests < 1) {
    out.refused = too_many("this key may send " + std::to_string(key.requests_per_minute) + " requests a minute",
                           60 * (1 - use.requests) / double(key.requests_per_minute));
  } else if (key.tokens_per_minute > 0 && use.tokens <= 0) {
    out.refused = too_many("this key may use " + std::to_string(key.tokens_per_minute) + " tokens a minute",
                           60 * (1 - use.tokens) / double(key.tokens_per_minute));
  } else {
    use.requests -= 1;
    ++use.running;
    out.place = Place(this, key.digest);
  }
  return out;
}

void KeyLimits::Place::charge(int64_t tokens) {
  if (limits_ == nullptr) return;
  const std::lock_guard lock(limits_->mutex_);
  limits_->uses_[digest_].tokens -= double(tokens);
}

void KeyLimits::Place::release() {
  if (limits_ == nullptr) return;
  const std::lock_guard lock(limits_->mutex_);
  --limits_->uses_[digest_].running;
  limits_ = nullptr;
}

}  // namespace fathom
