// fathom/server/trace_export.h
// Spans of requests for a collector of OpenTelemetry: OTLP over HTTP in JSON, sent in batches by a thread of its own. A
// collector that is slow or gone costs spans, which are counted, and no request its time.
// Source: spec/engine.md R-40; https://opentelemetry.io/docs/specs/otlp/ (OTLP/HTTP, JSON Protobuf encoding).
#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "fathom/base/log.h"
#include "fathom/base/result.h"
#include "fathom/server/trace_context.h"

namespace fathom {

struct Span {
  TraceContext context;
  std::string parent_id;  // empty: it begins the trace here
  std::string name;
  bool server = false;  // of the request; else a part of it
  bool failed = false;
  std::chrono::system_clock::time_point begin, end;
  std::vector<std::pair<std::string, std::variant<std::string, int64_t>>> attributes;
};

struct TraceExportOptions {
  std::string endpoint = {};  // http(s)://HOST:PORT, then its /v1/traces, or with a path of its own
  std::string version = {};   // of the service, as its resource says
  int64_t most_waiting = 8192;
  int64_t most_sent = 512;                // spans of one message
  std::chrono::milliseconds wait{2'000};  // for more of them
};

/// Where the spans of a collector go: "http://host:4318" -> "http://host:4318/v1/traces". Errors: usage, for what is
/// no URL.
Result<std::string> traces_url(const std::string& endpoint);

class TraceExport {
 public:
  /// `log` must outlive it. Errors: those of traces_url.
  static Result<std::unique_ptr<TraceExport>> open(TraceExportOptions options, Log& log);
  ~TraceExport();  // sends what waits, for two seconds at most

  /// Any thread; never blocks.
  void add(std::vector<Span> spans);
  int64_t sent() const;
  int64_t dropped() const;  // too many waited, or the collector did not take them

 private:
  struct State;
  explicit TraceExport(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// The message of some spans.
std::string otlp_json(const std::vector<Span>& spans, const std::string& version);

}  // namespace fathom
