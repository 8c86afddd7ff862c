// fathom/server/key_limits.h
// Counts what each key uses: requests and tokens a minute, and how many run at once. The minute is a bucket that fills
// steadily, so a burst of a whole minute's worth is allowed once and then the steady rate. Tokens are charged when they
// are known: the prompt's when it was counted, the answer's at its end; a bucket may fall below zero, and whoever asks
// then waits until it has filled again. Thread-safe.
#pragma once
#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "fathom/server/api_keys.h"
#include "fathom/server/http_error.h"

namespace fathom {

class KeyLimits {
 public:
  using Clock = std::chrono::steady_clock;

  /// One request that runs; gives its place back when it goes. Must not outlive the KeyLimits.
  class Place {
   public:
    Place() = default;
    Place(KeyLimits* limits, const std::array<uint8_t, 32>& digest) : limits_(limits), digest_(digest) {}
    Place(Place&& other) noexcept : limits_(std::exchange(other.limits_, nullptr)), digest_(other.digest_) {}
    Place& operator=(Place&& other) noexcept {
      release();
      limits_ = std::exchange(other.limits_, nullptr);
      digest_ = other.digest_;
      return *this;
    }
    ~Place() { release(); }
    /// Charges tokens of the prompt or of the answer.
    void charge(int64_t tokens);

   private:
    void release();
    KeyLimits* limits_ = nullptr;
    std::array<uint8_t, 32> digest_{};
  };

  /// Takes a place, or says why not: 429 with the seconds until there may be one.
  struct Admission {
    Place place;
    std::optional<Refusal> refused;
  };
  Admission admit(const ApiKey& key, Clock::time_point now);

 private:
  struct Use {
    ApiKey key;                       // its limits at the last request
    double requests = 0, tokens = 0;  // what the buckets hold
    Clock::time_point filled;
    int64_t running = 0;
  };
  void fill(Use& use, Clock::time_point now);

  std::mutex mutex_;
  std::map<std::array<uint8_t, 32>, Use> uses_;
};

}  // namespace fathom
