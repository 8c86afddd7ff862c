// fathom/grammar/number_range.h
// Numbers between bounds, digit by digit. A bound may have any number of digits.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "fathom/grammar/grammar_builder.h"

namespace fathom::grammar {

/// A number as digits: `whole` without leading zeros ("0" for none), `fraction` without trailing zeros.
struct Decimal {
  bool negative = false;
  std::string whole = "0";
  std::string fraction;

  bool is_zero() const { return whole == "0" && fraction.empty(); }
};

/// Reads the text of a JSON number. Nothing: an exponent would make more than 60 digits of it.
std::optional<Decimal> read_decimal(std::string_view number);

/// <0, 0, >0 as a < b, a = b, a > b.
int compare(const Decimal& a, const Decimal& b);

struct Bound {
  Decimal value;
  bool included = true;
};

struct NumberRange {
  std::optional<Bound> least, most;
};

/// Integers of the range, as JSON spells them: no fraction, no exponent, no -0. never() when there are none.
GrammarBuilder::Expression integers(GrammarBuilder& builder, const NumberRange& range);

/// Numbers of the range; without an exponent when there is a bound.
GrammarBuilder::Expression numbers(GrammarBuilder& builder, const NumberRange& range);

/// Integers that `divisor` (2 to 100) divides.
GrammarBuilder::Expression multiples(GrammarBuilder& builder, int divisor);

/// Numbers with at most `places` digits behind the point, without exponent.
GrammarBuilder::Expression with_places(GrammarBuilder& builder, int places);

}  // namespace fathom::grammar
