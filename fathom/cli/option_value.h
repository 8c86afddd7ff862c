// fathom/cli/option_value.h
// Text to values: numbers, sizes, durations, lists, and the closest of several words. Pure.
#pragma once
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fathom::cli {

/// Decimal, with an optional sign; nothing for anything else or what does not fit into 64 bits.
std::optional<int64_t> parse_integer(std::string_view text);
std::optional<double> parse_number(std::string_view text);
/// Bytes: `1024`, `500MB` (decimal: kB, MB, GB, TB), `64GiB` (binary: KiB, MiB, GiB, TiB); fractions with a unit.
std::optional<int64_t> parse_size(std::string_view text);
/// `250ms`, `30s`, `5m`, `2h`; fractions allowed.
std::optional<std::chrono::milliseconds> parse_duration(std::string_view text);
/// true/false, yes/no, on/off, 1/0.
std::optional<bool> parse_switch(std::string_view text);
/// Comma list; nothing when an item is no integer. An empty text is an empty list.
std::optional<std::vector<int64_t>> parse_integers(std::string_view text);
std::vector<std::string> split(std::string_view text, char separator);

/// Edits (insert, delete, replace, swap of neighbours) that turn one word into the other.
int edit_distance(std::string_view a, std::string_view b);
/// The candidate that a typo most likely meant; nothing when none is near (more than a third of the letters wrong).
std::optional<std::string> closest(std::string_view word, std::span<const std::string> candidates);
/// "a, b or c".
std::string joined(std::span<const std::string> words, std::string_view last = "or");

}  // namespace fathom::cli
