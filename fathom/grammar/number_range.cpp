#include "fathom/grammar/number_range.h"

#include <algorithm>

namespace fathom::grammar {
namespace {

using Expression = GrammarBuilder::Expression;
constexpr int64_t kNoLimit = GrammarBuilder::kNoLimit;
constexpr size_t kMostDigits = 60;

std::string plus_one(std::string digits) {
  size_t i = digits.size();
  while (i > 0 && digits[i - 1] == '9') digits[--i] = '0';
  if (i == 0) return '1' + digits;
  ++digits[i - 1];
  return digits;
}

std::string minus_one(std::string digits) {  // of at least 1
  size_t i = digits.size();
  while (digits[i - 1] == '0') digits[--i] = '9';
  --digits[i - 1];
  if (digits.size() > 1 && digits[0] == '0') digits.erase(0, 1);
  return digits;
}

bool less(const std::string& a, const std::string& b) { return a.size() != b.size() ? a.size() < b.size() : a < b; }

// Digit strings that begin behind the point or at the head of a number. `fixed`: exactly as many digits as the bound
// has (whole parts); otherwise more may follow (fractions), and absent ones count as zeros.
class Digits {
 public:
  explicit Digits(GrammarBuilder& builder) : b_(builder) {}

  Expression between(char first, char last) {
    return first > last ? b_.never() : b_.characters({{uint8_t(first), uint8_t(last)}});
  }
  Expression any(int64_t least, int64_t most) { return b_.repeat(between('0', '9'), least, most); }
  Expression one(char digit) { return b_.literal(std::string_view(&digit, 1)); }

  // As many digits as the bounds have.
  Expression same_length(std::string_view low, std::string_view high) {
    if (low.empty()) return b_.nothing();
    const auto more = int64_t(low.size()) - 1;
    if (low[0] == high[0]) return b_.sequence({one(low[0]), same_length(low.substr(1), high.substr(1))});
    const std::string nines(size_t(more), '9'), zeros(size_t(more), '0');
    return b_.choice({b_.sequence({one(low[0]), from(low.substr(1))}),
                      b_.sequence({between(char(low[0] + 1), char(high[0] - 1)), any(more, more)}),
                      b_.sequence({one(high[0]), up_to(high.substr(1))})});
  }
  Expression from(std::string_view low) {
    if (low.empty()) return b_.nothing();
    const auto more = int64_t(low.size()) - 1;
    return b_.choice({b_.sequence({between(char(low[0] + 1), '9'), any(more, more)}),
                      b_.sequence({one(low[0]), from(low.substr(1))})});
  }
  Expression up_to(std::string_view high) {
    if (high.empty()) return b_.nothing();
    const auto more = int64_t(high.size()) - 1;
    return b_.choice({b_.sequence({between('0', char(high[0] - 1)), any(more, more)}),
                      b_.sequence({one(high[0]), up_to(high.substr(1))})});
  }

  // Whole parts low to high (none: no limit), without leading zeros.
  Expression whole(const std::string& low, const std::optional<std::string>& high) {
    if (high && less(*high, low)) return b_.never();
    if (!high) {
      const auto length = int64_t(low.size());
      return b_.choice({low == "0" ? one('0') : b_.never(), low == "0" ? between('1', '9') : from_without_zero(low),
                        b_.sequence({between('1', '9'), any(length, kNoLimit)})});
    }
    std::vector<Expression> options;
    if (low.size() == high->size()) return same_length(low, *high);
    options.push_back(low == "0" ? any(1, 1) : from_without_zero(low));
    if (low.size() + 1 < high->size()) {
      options.push_back(b_.sequence({between('1', '9'), any(int64_t(low.size()), int64_t(high->size()) - 2)}));
    }
    options.push_back(same_length('1' + std::string(high->size() - 1, '0'), *high));
    return b_.choice(std::move(options));
  }

  // Fractions, behind the point. Bounds have no trailing zeros.
  Expression positive() { return b_.sequence({b_.repeat(one('0'), 0, kNoLimit), between('1', '9'), any(0, kNoLimit)}); }
  Expression fraction_from(std::string_view low, bool included) {
    if (low.empty()) return included ? any(0, kNoLimit) : positive();
    return b_.choice({b_.sequence({between(char(low[0] + 1), '9'), any(0, kNoLimit)}),
                      b_.sequence({one(low[0]), fraction_from(low.substr(1), included)})});
  }
  Expression fraction_up_to(std::string_view high, bool included, bool may_be_empty) {
    if (high.empty()) return included ? b_.repeat(one('0'), may_be_empty ? 0 : 1, kNoLimit) : b_.never();
    return b_.choice({may_be_empty ? b_.nothing() : b_.never(),
                      b_.sequence({between('0', char(high[0] - 1)), any(0, kNoLimit)}),
                      b_.sequence({one(high[0]), fraction_up_to(high.substr(1), included, true)})});
  }
  Expression positive_up_to(std::string_view high, bool included) {
    if (high.empty()) return b_.never();
    if (high[0] == '0') return b_.sequence({one('0'), positive_up_to(high.substr(1), included)});
    return b_.choice({b_.sequence({one('0'), positive()}),
                      b_.sequence({between('1', char(high[0] - 1)), any(0, kNoLimit)}),
                      b_.sequence({one(high[0]), fraction_up_to(high.substr(1), included, true)})});
  }
  Expression fraction_between(std::string_view low, bool low_included, std::string_view high, bool high_included,
                              bool may_be_empty) {
    if (low.empty()) {
      return low_included ? fraction_up_to(high, high_included, may_be_empty) : positive_up_to(high, high_included);
    }
    if (high.empty() || low[0] > high[0]) return b_.never();
    if (low[0] == high[0]) {
      return b_.sequence(
          {one(low[0]), fraction_between(low.substr(1), low_included, high.substr(1), high_included, true)});
    }
    return b_.choice({b_.sequence({one(low[0]), fraction_from(low.substr(1), low_included)}),
                      b_.sequence({between(char(low[0] + 1), char(high[0] - 1)), any(0, kNoLimit)}),
                      b_.sequence({one(high[0]), fraction_up_to(high.substr(1), high_included, true)})});
  }

  Expression point(Expression digits) { return b_.sequence({one('.'), digits}); }
  Expression any_fraction() { return b_.optional(point(any(1, kNoLimit))); }

  // Numbers without sign; both bounds at least 0.
  Expression magnitudes(const Bound& low, const std::optional<Bound>& high) {
    const Decimal& a = low.value;
    if (high && a.whole == high->value.whole) {
      const Decimal& c = high->value;
      const bool whole_fits = a.fraction.empty() && low.included && (!c.fraction.empty() || high->included);
      const Expression fraction = point(fraction_between(a.fraction, low.included, c.fraction, high->included, false));
      return b_.sequence({b_.literal(a.whole), b_.choice({whole_fits ? b_.nothing() : b_.never(), fraction})});
    }
    if (high && less(high->value.whole, a.whole)) return b_.never();
    Expression at_low;
    if (a.fraction.empty()) {
      at_low = low.included ? any_fraction() : point(positive());
    } else {
      at_low = point(fraction_from(a.fraction, low.included));
    }
    std::vector<Expression> options = {b_.sequence({b_.literal(a.whole), at_low})};
    std::optional<std::string> last;
    if (high) last = minus_one(high->value.whole);
    options.push_back(b_.sequence({whole(plus_one(a.whole), last), any_fraction()}));
    if (high) {
      const Decimal& c = high->value;
      Expression at_high;
      if (c.fraction.empty()) {
        at_high = high->included ? b_.optional(point(b_.repeat(one('0'), 1, kNoLimit))) : b_.never();
      } else {
        at_high = b_.optional(point(fraction_up_to(c.fraction, high->included, false)));
      }
      options.push_back(b_.sequence({b_.literal(c.whole), at_high}));
    }
    return b_.choice(std::move(options));
  }

  // Numbers of both signs from those of none: `part(low, high)` makes magnitudes.
  Expression signed_range(const NumberRange& range, const auto& part) {
    const Bound zero;
    std::vector<Expression> options;
    const bool below = !range.least || range.least->value.negative;  // negative numbers belong to it
    const bool above = !range.most || !range.most->value.negative;
    if (above) options.push_back(part(range.least && !range.least->value.negative ? *range.least : zero, range.most));
    if (below) {
      Bound low = {Decimal{}, false};  // no -0
      if (range.most && range.most->value.negative) low = *range.most;
      options.push_back(b_.sequence({one('-'), part(low, range.least)}));
    }
    return b_.choice(std::move(options));
  }

 private:
  Expression from_without_zero(const std::string& low) { return same_length(low, std::string(low.size(), '9')); }

  GrammarBuilder& b_;
};

}  // namespace

std::optional<Decimal> read_decimal(std::string_view number) {
  Decimal out;
  size_t i = 0;
  if (!number.empty() && number[0] == '-') out.negative = true, ++i;
  std::string digits;
  int64_t point = -1, exponent = 0;
  for (; i < number.size() && number[i] != 'e' && number[i] != 'E'; ++i) {
    if (number[i] == '.') {
      point = int64_t(digits.size());
    } else {
      digits += number[i];
    }
  }
  if (point < 0) point = int64_t(digits.size());
  if (i < number.size()) {
    const bool down = ++i < number.size() && number[i] == '-';
    if (i < number.size() && (number[i] == '-' || number[i] == '+')) ++i;
    for (; i < number.size(); ++i) exponent = std::min<int64_t>(exponent * 10 + (number[i] - '0'), 100'000);
    if (down) exponent = -exponent;
  }
  const size_t first = std::min(digits.find_first_not_of('0'), digits.size());
  if (first == digits.size()) return Decimal{};
  digits.erase(0, first);
  point += exponent - int64_t(first);
  const size_t last = digits.find_last_not_of('0');
  digits.resize(last + 1);
  if (digits.size() > kMostDigits || point > int64_t(kMostDigits) || point < -int64_t(kMostDigits)) return {};
  if (point <= 0) {
    out.fraction = std::string(size_t(-point), '0') + digits;
  } else if (size_t(point) >= digits.size()) {
    out.whole = digits + std::string(size_t(point) - digits.size(), '0');
  } else {
    out.whole = digits.substr(0, size_t(point));
    out.fraction = digits.substr(size_t(point));
  }
  return out;
}

int compare(const Decimal& a, const Decimal& b) {
  if (a.negative != b.negative) return a.negative ? -1 : 1;
  int order = 0;
  if (a.whole != b.whole) {
    order = less(a.whole, b.whole) ? -1 : 1;
  } else if (a.fraction != b.fraction) {
    order = a.fraction < b.fraction ? -1 : 1;  // a shorter one is followed by zeros
  }
  return a.negative ? -order : order;
}

GrammarBuilder::Expression integers(GrammarBuilder& builder, const NumberRange& range) {
  Digits digits(builder);
  return digits.signed_range(range, [&](const Bound& low, const std::optional<Bound>& high) {
    std::string least = low.value.whole;
    if (!low.value.fraction.empty() || !low.included) least = plus_one(least);
    std::optional<std::string> most;
    if (high) {
      most = high->value.whole;
      if (high->value.fraction.empty() && !high->included) {
        if (*most == "0") return builder.never();
        most = minus_one(*most);
      }
    }
    return digits.whole(least, most);
  });
}

GrammarBuilder::Expression numbers(GrammarBuilder& builder, const NumberRange& range) {
  Digits digits(builder);
  if (!range.least && !range.most) {
    const Expression exponent = builder.sequence({builder.characters({{'E', 'E'}, {'e', 'e'}}),
                                                  builder.optional(builder.characters({{'+', '+'}, {'-', '-'}})),
                                                  digits.any(1, 2)});  // never beyond the range of a double
    return builder.sequence(
        {builder.optional(digits.one('-')), digits.whole("0", {}), digits.any_fraction(), builder.optional(exponent)});
  }
  return digits.signed_range(
      range, [&](const Bound& low, const std::optional<Bound>& high) { return digits.magnitudes(low, high); });
}

// One rule for each remainder: what must follow digits whose number has that remainder.
GrammarBuilder::Expression multiples(GrammarBuilder& builder, int divisor) {
  std::vector<GrammarBuilder::Rule> rest;
  for (int i = 0; i < divisor; ++i) rest.push_back(builder.declare());
  const auto next = [&](int remainder, int digit) {
    return builder.sequence({builder.literal(std::string(1, char('0' + digit))),
                             builder.rule(rest[size_t((remainder * 10 + digit) % divisor)])});
  };
  for (int i = 0; i < divisor; ++i) {
    std::vector<Expression> options;
    if (i == 0) options.push_back(builder.nothing());
    for (int digit = 0; digit < 10; ++digit) options.push_back(next(i, digit));
    builder.define(rest[size_t(i)], builder.choice(std::move(options)));
  }
  std::vector<Expression> heads;
  for (int digit = 1; digit < 10; ++digit) heads.push_back(next(0, digit));
  return builder.choice({builder.literal("0"),
                         builder.sequence({builder.optional(builder.literal("-")), builder.choice(std::move(heads))})});
}

GrammarBuilder::Expression with_places(GrammarBuilder& builder, int places) {
  Digits digits(builder);
  return builder.sequence({builder.optional(digits.one('-')), digits.whole("0", {}),
                           builder.optional(digits.point(digits.any(1, places)))});
}

}  // namespace fathom::grammar
