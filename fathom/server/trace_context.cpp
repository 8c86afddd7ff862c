#include "fathom/server/trace_context.h"

#include <cstdint>
#include <random>

namespace fathom {
namespace {

constexpr std::string_view kHex = "0123456789abcdef";

bool is_hex(std::string_view text) { return text.find_first_not_of(kHex) == std::string_view::npos; }
bool is_id(std::string_view text) { return is_hex(text) && text.find_first_not_of('0') != std::string_view::npos; }

/// 16 digits, not all 0.
std::string random_digits() {
  thread_local std::mt19937_64 random = [] {
    std::random_device device;
    std::seed_seq seed{device(), device(), device(), device()};
    return std::mt19937_64(seed);
  }();
  uint64_t bits = 0;
  while (bits == 0) bits = random();
  std::string digits(16, '0');
  for (char& digit : digits) {
    digit = kHex[bits & 15];
    bits >>= 4;
  }
  return digits;
}

}  // namespace

std::optional<TraceContext> read_traceparent(std::string_view text) {
  constexpr size_t kBytes = 55;
  if (text.size() < kBytes || text[2] != '-' || text[35] != '-' || text[52] != '-') return {};
  const std::string_view version = text.substr(0, 2), flags = text.substr(53, 2);
  if (!is_hex(version) || version == "ff" || !is_hex(flags)) return {};
  if (text.size() > kBytes && (version == "00" || text[kBytes] != '-')) return {};
  TraceContext context{std::string(text.substr(3, 32)), std::string(text.substr(36, 16)), false};
  if (!is_id(context.trace_id) || !is_id(context.span_id)) return {};
  context.sampled = kHex.find(flags[1]) & 1;
  return context;
}

std::string traceparent_of(const TraceContext& context) {
  return "00-" + context.trace_id + "-" + context.span_id + (context.sampled ? "-01" : "-00");
}

TraceContext new_span(const std::optional<TraceContext>& parent) {
  if (parent) return {parent->trace_id, random_digits(), parent->sampled};
  return {random_digits() + random_digits(), random_digits(), true};
}

}  // namespace fathom
