// fathom/engine/draft_guard.h
// Keeps scheduled verification honest. Its choice rests on a cost curve and on confidences, and both may be wrong: a
// curve measured cold, a confidence head off its calibration. So the engine also measures what really counts, tokens a
// second, of three policies: no drafts, all drafts (fixed), scheduled. It runs the best of them and is promised never
// to be worse than 0.95 of the better of the two fixed ones, at any load (issue 5).
//
// How the 5 % are spent. A load is a power of two of sequences; each load has its own three estimates.
//   exploration  Other policies are tried for kTrial steps at a time. What a trial loses, seconds * (1 - rate / best
//                rate), is booked, and a new one begins only while the book is below its budget: kBudget = 1 % of
//                this load's seconds for `fixed` and `scheduled` together, kQuietBudget = 0.3 % for `none`, because
//                what that brings does not depend on the text: one token a sequence. So a policy that is nearly as good
//                is tried often and a poor one seldom. The first trials, of policies nothing is known of, are booked
//                like the others and paid back by waiting; that of `none` waits for its budget too where the cost curve
//                says that it is clearly worse.
//   exploitation The scheduled policy runs unless another one's rate is above it by kMargin = 1 %, beyond the doubt
//                about both (kDoubt standard errors); after a change the new one stays under the same rule. Doubt
//                shrinks with what runs and what is tried, so a true difference of a few per cent is found in the end
//                and a larger one soon. An estimate older than kFresh steps is not acted upon: the policy that seems
//                ahead is tried at once, whatever its book says.
//   change       Estimates forget: a step counts half after kMemory steps of its own policy, and of a policy that is
//                only tried the last few trials count. A trial, or the last steps of the running policy, that leave the
//                estimate by more than kShift = 15 % mean that the text has changed (another acceptance): the estimate
//                begins anew with them.
// The first kLead steps after a change of policy are not measured: their drafts are the old policy's (without drafts
// there are none to verify in the first step after). Their time is booked.
//
// Pure: no clock, no randomness. Steps with prompt pieces are not recorded; where there are no others, the scheduled
// policy runs.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>

namespace fathom {

enum class DraftPolicy { none, fixed, scheduled };
const char* name_of(DraftPolicy policy);

/// One thread at a time. Nothing is allocated.
class DraftGuard {
 public:
  static constexpr int kTrial = 12, kLead = 2;
  static constexpr double kBudget = 0.01, kQuietBudget = 0.003, kMargin = 0.01, kDoubt = 1, kMemory = 400,
                          kShift = 0.15;
  static constexpr double kTrialMemory = 40;  // steps
  static constexpr int kFresh = 1000;         // steps
  static constexpr double kClearly = 1.3;     // a forecast counts where it leaves a margin of this factor

  /// The policy of the next step. Call once a step without prompt pieces; `sequences` decode in it. `none_forecast`:
  /// tokens a second that the cost curve says of steps without drafts; infinite: it says nothing.
  DraftPolicy choose(int sequences, double none_forecast = std::numeric_limits<double>::infinity());
  /// What that step brought: tokens emitted (accepted drafts and one more a sequence), seconds from the end of the step
  /// before to its own. In asynchronous mode it may come one step late; `policy` is that which the step ran with.
  void record(int sequences, DraftPolicy policy, int64_t tokens, double seconds);

  /// For metrics: of one load.
  struct Report {
    DraftPolicy runs = DraftPolicy::scheduled;
    std::array<double, 3> tokens_per_second{};  // 0: not known
    double lost_seconds = 0, seconds = 0;       // booked for trials; all
  };
  Report report(int sequences) const { return loads_[load_of(sequences)].report(); }

 private:
  /// Tokens and seconds of a policy, forgetting; the rate is their ratio, its doubt from the spread of tokens.
  struct Estimate {
    double weight = 0, seconds = 0, tokens = 0, squares = 0;  // squares: of tokens - rate * seconds
    double lost = 0;                                          // by its trials, seconds
    int64_t measured_at = 0;                                  // Load::steps
    double squared_weight = 0;
    int64_t steps = 0;
    double quick = 0;  // rate of the last dozen steps

    double rate() const { return seconds > 0 ? tokens / seconds : 0; }
    double doubt() const;
    void add(double step_tokens, double step_seconds);
    void fade(double part);
    /// Keeps the book.
    void begin_anew(const Estimate& with);
  };
  struct Load {
    std::array<Estimate, 3> of;
    DraftPolicy runs = DraftPolicy::scheduled;
    DraftPolicy tried = DraftPolicy::scheduled;
    Estimate trial;       // by the running trial alone
    int trial_steps = 0;  // left
    int since_trial = 0;  // steps
    DraftPolicy last_tried = DraftPolicy::fixed;
    double seconds = 0;
    int64_t steps = 0;

    Report report() const;
    bool may_try(DraftPolicy policy, double none_forecast) const;
    /// The policy whose rate is ahead of the running one's beyond margin and doubt.
    std::optional<DraftPolicy> ahead() const;
    void begin_trial(double none_forecast);
  };
  static constexpr int kLoads = 16;  // 1, 2, 3-4, 5-8, ..., more than 16,384
  static size_t load_of(int sequences);
  static bool has_shifted(const Estimate& estimate, const Estimate& now);

  std::array<Load, kLoads> loads_;
  DraftPolicy last_ = DraftPolicy::scheduled;  // of the last recorded step
  int lead_ = 0;
};

}  // namespace fathom
