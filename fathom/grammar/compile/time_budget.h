// How long the masks of one answer may take. A grammar that reads a text in many ways at once can make a mask or a
// token take a second, and nothing in it can be interrupted; but it becomes slow gradually, so a balance that is looked
// at after every call ends such a request, and only it, before it holds up many steps of the others.
//
// What counts is time of the processor, so that a busy machine fails nobody. Asking for it takes longer than many a
// mask, so it is measured only near slow calls: the first slow one is free. Masks and tokens take turns, and one of the
// two may be slow alone.
#pragma once
#include <time.h>

#include <algorithm>
#include <chrono>

namespace fathom::grammar {

/// Of the calling thread.
inline std::chrono::nanoseconds processor_time() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

/// A balance: each mask adds kEach, up to kMost; what calls take is subtracted. A value; one thread at a time.
class TimeBudget {
 public:
  static constexpr std::chrono::microseconds kEach{200};  // four times what a mask should take
  static constexpr std::chrono::milliseconds kMost{100};
  static constexpr std::chrono::microseconds kSlow{100};
  static constexpr int kNear = 16;  // calls after a slow one

  bool used_up() const { return left_.count() < 0; }
  void earn() { left_ = std::min<std::chrono::nanoseconds>(left_ + kEach, kMost); }
  /// Runs and counts it.
  template <class Call>
  auto spend(Call call) {
    const auto begun = std::chrono::steady_clock::now();
    const bool watched = watched_ > 0;
    const std::chrono::nanoseconds before = watched ? processor_time() : std::chrono::nanoseconds{};
    auto result = call();
    if (watched) left_ -= processor_time() - before;
    watched_ = std::chrono::steady_clock::now() - begun > kSlow ? kNear : std::max(0, watched_ - 1);
    return result;
  }

 private:
  std::chrono::nanoseconds left_ = kMost;
  int watched_ = 0;  // calls that are still measured
};

}  // namespace fathom::grammar
