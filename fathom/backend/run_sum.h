// fathom/backend/run_sum.h
// Sums of doubles in a fixed order, to the last bit, though many threads add. law.h adds the tokens of a lane one after
// the other, each sum rounded; what follows is the same sum.
//
// While a sum stays between two powers of two, 2^e <= sum < 2^(e+1), its unit in the last place u does not change, and
// adding w >= 0 adds a multiple of u that depends on w and, where w lies in the middle between two of them, on the
// sum's last bit (ties go to even), but on nothing else of the sum. So a run of numbers adds one of two amounts, which
// a thread finds without the sum: it adds the run to 2^e and to 2^e + u. Amounts of runs that follow each other join
// into those of both. Where the sum reaches the next power of two, a run is two such amounts and the number between
// them. Whether exponents were guessed right is seen when the sum is there: if not, the run is added number by number.
#pragma once
#include <bit>
#include <cstdint>
#include <limits>

namespace fathom {

/// What a run of numbers >= 0 adds to a sum whose last bit is 0 or 1, while its exponent field stays the same.
struct RunStep {
  double even, odd;
};

/// Sign and exponent of v; 0 for 0.
constexpr uint32_t exponent_field(double v) { return uint32_t(std::bit_cast<uint64_t>(v) >> 52); }
constexpr bool last_bit(double v) { return std::bit_cast<uint64_t>(v) & 1; }

/// The smallest sums of this exponent field with either last bit. Field 0: the sum 0 only, twice.
constexpr RunStep run_starts(uint32_t field) {
  const uint64_t bits = uint64_t(field) << 52;
  return {std::bit_cast<double>(bits), std::bit_cast<double>(field == 0 ? bits : bits | 1)};
}

/// A run's step from run_starts(), each with the run added.
constexpr RunStep run_step(uint32_t field, RunStep ends) {
  const RunStep starts = run_starts(field);
  return {ends.even - starts.even, ends.odd - starts.odd};
}

/// A step that is never taken.
constexpr RunStep no_step() {
  return {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::quiet_NaN()};
}

/// a, then b, both of this field.
constexpr RunStep join_steps(uint32_t field, RunStep a, RunStep b) {
  if (field == 0) return a.even == 0 ? b : no_step();
  const RunStep starts = run_starts(field);
  return {a.even + (last_bit(starts.even + a.even) ? b.odd : b.even),
          a.odd + (last_bit(starts.odd + a.odd) ? b.odd : b.even)};
}

/// Adds a step to a sum, if the sum has the field and keeps it (field 0: if it is 0). False: nothing was added; a step
/// of NaN always gives that.
constexpr bool take_step(double& sum, uint32_t field, RunStep step) {
  const double next = sum + (last_bit(sum) ? step.odd : step.even);
  const bool right =
      field == 0 ? sum == 0 && next == next : exponent_field(sum) == field && exponent_field(next) == field;
  if (right) sum = next;
  return right;
}

/// A run in which the sum's exponent changes once, if it was guessed right: a step, the number that changes it, a step.
struct CrossingRun {
  uint32_t field;
  RunStep step;
  double number;
  uint32_t next_field;  // 0: the exponent does not change, there is only `step`
  RunStep next_step;
};

/// The same as take_step().
constexpr bool take_run(double& sum, const CrossingRun& run) {
  double next = sum;
  if (!take_step(next, run.field, run.step)) return false;
  if (run.next_field != 0) {
    next += run.number;
    if (exponent_field(next) != run.next_field || !take_step(next, run.next_field, run.next_step)) return false;
  }
  sum = next;
  return true;
}

/// Makes a CrossingRun of numbers that come one by one.
class RunMaker {
 public:
  /// `before`, `after`: about the sum before the run and behind it.
  constexpr RunMaker(double before, double after)
      : field_(exponent_field(before)),
        crosses_(field_ != 0 && exponent_field(after) != field_),
        upto_(before),
        ends_(run_starts(field_)) {
    run_.field = field_;
  }
  /// Field of the sum now, for weight(): what is less than half a unit changes nothing.
  constexpr uint32_t field() const { return field_; }
  constexpr bool crosses() const { return crosses_; }
  /// rough: about the number, read where crosses(); weight(field): the number, 0 where it does not change a sum of this
  /// field (0: exactly it).
  template <class Rough, class Weight>
  constexpr void add(const Rough& rough, const Weight& weight) {
    uint32_t next = field_;
    if (crosses_) {
      upto_ += rough();
      next = exponent_field(upto_);
    }
    const double w = weight(next == field_ ? field_ : 0);
    if (next != field_) {
      run_.step = run_.next_field == 0 ? run_step(field_, ends_) : no_step();  // a second time: by number
      run_.number = w;
      run_.next_field = field_ = next;
      ends_ = run_starts(next);
    } else {
      ends_.even += w;
      ends_.odd += w;
    }
  }
  constexpr CrossingRun run() const {
    CrossingRun out = run_;
    (out.next_field == 0 ? out.step : out.next_step) = run_step(field_, ends_);
    return out;
  }

 private:
  uint32_t field_;
  bool crosses_;
  double upto_;
  RunStep ends_;
  CrossingRun run_{};
};

}  // namespace fathom
