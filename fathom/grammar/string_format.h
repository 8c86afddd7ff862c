// fathom/grammar/string_format.h
// `format` of strings, as expressions. Others are refused: an answer that only looks checked is worse than none.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace fathom::grammar {

/// The expression (of a whole string) for "date", "time", "date-time", "duration", "email", "hostname", "ipv4", "ipv6",
/// "uuid", "uri"; nothing for other names. They admit less than the standards do (no quoted local parts, no leap
/// seconds, 28 days in February), nothing
/// more, but for lengths: a label of a host name may have more than 63 characters.
std::optional<std::string> expression_of_format(std::string_view format);

/// Names for messages.
inline constexpr std::string_view kFormats =
    "date, time, date-time, duration, email, hostname, ipv4, ipv6, uuid and uri can be enforced";

}  // namespace fathom::grammar
