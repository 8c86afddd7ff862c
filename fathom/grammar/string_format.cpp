#include "fathom/grammar/string_format.h"

namespace fathom::grammar {
namespace {

// A day that every year has.
const std::string kDate =
    "[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|"
    "02-(?:0[1-9]|1[0-9]|2[0-8]))";
const std::string kTime =
    "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])";
// Of any length: counting to 63 in each label took 10 s to compile.
const std::string kLabel = "[A-Za-z0-9]+(?:-+[A-Za-z0-9]+)*";
const std::string kHost = kLabel + "(?:\\." + kLabel + ")*";
const std::string kByte = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
const std::string kGroup = "[0-9A-Fa-f]{1,4}";

std::string ipv6() {
  std::string out = "(?:" + kGroup + ":){7}" + kGroup + "|::|::" + kGroup + "(?::" + kGroup + "){0,6}";
  // `before` groups, "::", then at most as many as leave one group out.
  for (int before = 1; before <= 7; ++before) {
    const std::string head = kGroup + (before > 1 ? "(?::" + kGroup + "){" + std::to_string(before - 1) + "}" : "");
    const int most = 7 - before;
    out += "|" + head + "::";
    if (most > 0)
      out += "(?:" + kGroup + (most > 1 ? "(?::" + kGroup + "){0," + std::to_string(most - 1) + "}" : "") + ")?";
  }
  return out;
}

}  // namespace

std::optional<std::string> expression_of_format(std::string_view format) {
  std::string body;
  if (format == "date") {
    body = kDate;
  } else if (format == "time") {
    body = kTime;
  } else if (format == "date-time") {
    body = kDate + "T" + kTime;
  } else if (format == "duration") {
    body =
        "P(?:[0-9]{1,9}W|(?:[0-9]{1,9}Y(?:[0-9]{1,9}M(?:[0-9]{1,9}D)?)?|[0-9]{1,9}M(?:[0-9]{1,9}D)?|[0-9]{1,9}D)"
        "(?:T[0-9]{1,9}[HMS])?|T(?:[0-9]{1,9}H(?:[0-9]{1,9}M(?:[0-9]{1,9}S)?)?|[0-9]{1,9}M(?:[0-9]{1,9}S)?|"
        "[0-9]{1,9}S))";
  } else if (format == "email") {
    body = "[A-Za-z0-9_+-]+(?:\\.[A-Za-z0-9_+-]+)*@" + kHost;
  } else if (format == "hostname") {
    body = kHost;
  } else if (format == "ipv4") {
    body = kByte + "(?:\\." + kByte + "){3}";
  } else if (format == "ipv6") {
    body = ipv6();
  } else if (format == "uuid") {
    body = "[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}";
  } else if (format == "uri") {
    // One '#' at most, no brackets, no "//" without a host: what is left is a URI by RFC 3986.
    const std::string rest = "(?:[A-Za-z0-9._~:/?@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*";
    const std::string path = "(?:[A-Za-z0-9._~:@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})" + rest;
    body = "[A-Za-z][A-Za-z0-9+.-]*:(?://" + kHost + "(?::[0-9]{1,5})?(?:[/?]" + rest + ")?|/?" + path + ")(?:#" +
           rest + ")?";
  } else {
    return {};
  }
  return "^(?:" + body + ")$";
}

}  // namespace fathom::grammar
