#include "fathom/cli/option_value.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

namespace fathom::cli {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};

constexpr std::array<Unit, 10> kSizes{{{"B", 1},
                                       {"kB", 1e3},
                                       {"KB", 1e3},
                                       {"MB", 1e6},
                                       {"GB", 1e9},
                                       {"TB", 1e12},
                                       {"KiB", 0x1p10},
                                       {"MiB", 0x1p20},
                                       {"GiB", 0x1p30},
                                       {"TiB", 0x1p40}}};
constexpr std::array<Unit, 4> kDurations{{{"ms", 1}, {"s", 1e3}, {"m", 60e3}, {"h", 3600e3}}};  // in milliseconds

/// Splits "1.5GiB" and multiplies; nothing when number or unit is unknown or the product leaves [0, 2^63).
std::optional<double> scaled(std::string_view text, std::span<const Unit> units) {
  const size_t end = std::min(text.find_first_not_of("0123456789."), text.size());
  const auto number = parse_number(text.substr(0, end));
  const auto unit = std::find_if(units.begin(), units.end(), [&](const Unit& u) { return u.name == text.substr(end); });
  if (!number || unit == units.end()) return {};
  const double value = *number * unit->factor;
  if (!(value >= 0 && value < 0x1p63)) return {};
  return value;
}

}  // namespace

std::optional<int64_t> parse_integer(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return {};
  return value;
}

std::optional<double> parse_number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty() || !std::isfinite(value)) return {};
  return value;
}

std::optional<int64_t> parse_size(std::string_view text) {
  if (const auto plain = parse_integer(text)) return *plain >= 0 ? plain : std::nullopt;
  const auto bytes = scaled(text, kSizes);
  if (!bytes) return {};
  return int64_t(*bytes);
}

std::optional<std::chrono::milliseconds> parse_duration(std::string_view text) {
  const auto milliseconds = scaled(text, kDurations);
  if (!milliseconds) return {};
  return std::chrono::milliseconds(int64_t(*milliseconds));
}

std::optional<bool> parse_switch(std::string_view text) {
  for (std::string_view yes : {"true", "yes", "on", "1"}) {
    if (text == yes) return true;
  }
  for (std::string_view no : {"false", "no", "off", "0"}) {
    if (text == no) return false;
  }
  return {};
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (;;) {
    const size_t at = text.find(separator);
    parts.emplace_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

std::optional<std::vector<int64_t>> parse_integers(std::string_view text) {
  std::vector<int64_t> values;
  if (text.empty()) return values;
  for (const std::string& part : split(text, ',')) {
    const size_t begin = std::min(part.find_first_not_of(' '), part.size());
    const auto value = parse_integer(std::string_view(part).substr(begin, part.find_last_not_of(' ') + 1 - begin));
    if (!value) return {};
    values.push_back(*value);
  }
  return values;
}

int edit_distance(std::string_view a, std::string_view b) {
  // Three rows of the usual table: a swap of neighbours looks two rows back.
  std::vector<int> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = int(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = int(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({row[j - 1] + 1, last[j] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before = last;
    last = row;
  }
  return last[b.size()];
}

std::optional<std::string> closest(std::string_view word, std::span<const std::string> candidates) {
  std::optional<std::string> best;
  int least = int(std::max<size_t>(1, word.size() / 3)) + 1;
  for (const std::string& candidate : candidates) {
    // A word that was begun but not finished ("--temp") is nearer than its letters say.
    const bool begun = word.size() >= 3 && candidate.starts_with(word);
    const int distance = begun ? 1 : edit_distance(word, candidate);
    if (distance < least && distance < int(word.size())) {
      least = distance;
      best = candidate;
    }
  }
  return best;
}

std::string joined(std::span<const std::string> words, std::string_view last) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0) text += i + 1 == words.size() ? " " + std::string(last) + " " : ", ";
    text += words[i];
  }
  return text;
}

}  // namespace fathom::cli
