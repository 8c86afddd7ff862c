// fathom/recipe/conformance/dice.h
// Random choices that a seed names: the same seed makes the same request on every machine. For tests and `codec fuzz`.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "fathom/base/philox.h"

namespace fathom::recipe {

class Dice {
 public:
  /// `stream` separates uses of one seed.
  Dice(uint64_t seed, uint32_t stream) : seed_(seed), stream_(stream) {}

  /// 0 to n - 1; n > 0. The bias of the remainder (below n / 2^32) does not matter here.
  uint32_t below(uint32_t n) { return philox(seed_, {next_++, stream_, 0, 0})[0] % n; }
  bool one_in(uint32_t n) { return below(n) == 0; }
  template <class T>
  T pick(std::initializer_list<T> values) {
    return *(values.begin() + below(uint32_t(values.size())));
  }
  std::string_view pick_text(std::initializer_list<std::string_view> values) { return pick(values); }

 private:
  uint64_t seed_;
  uint32_t stream_, next_ = 0;
};

/// A short text: words, line breaks, other scripts, emoji, quotes, and now and then the spelling of a special token.
std::string random_text(Dice& dice);

}  // namespace fathom::recipe
