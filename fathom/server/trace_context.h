// fathom/server/trace_context.h
// W3C Trace Context: which trace a request belongs to, and which of its spans asked.
// https://www.w3.org/TR/trace-context/
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace fathom {

struct TraceContext {
  std::string trace_id;  // 32 hexadecimal digits, not all 0
  std::string span_id;   // 16, not all 0
  bool sampled = false;  // whoever began the trace wants its spans
};

/// The field `traceparent`: 00-<trace id>-<span id>-<flags>; of later versions what 00 has. Nothing: it is malformed,
/// and then counts as absent.
std::optional<TraceContext> read_traceparent(std::string_view text);
std::string traceparent_of(const TraceContext& context);

/// A span of its own: of the parent's trace, or of a new one, which is sampled.
TraceContext new_span(const std::optional<TraceContext>& parent);

}  // namespace fathom
