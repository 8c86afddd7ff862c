// fathom/server/request_spans.h
// What a request tells a trace: one span for all of it and, when it was generated, one each for waiting, the prompt and
// the answer. No text of prompts or answers. Names follow OpenTelemetry's conventions for HTTP servers and generative
// models where there are some.
#pragma once
#include <chrono>
#include <vector>

#include "fathom/server/answer.h"
#include "fathom/server/service.h"
#include "fathom/server/trace_export.h"

namespace fathom {

/// Of a request that ended at `end`; `outcome` is null when nothing was generated. `exchange.span` must be set.
std::vector<Span> spans_of(const Exchange& exchange, int status, const AnswerOutcome* outcome,
                           std::chrono::system_clock::time_point end);

}  // namespace fathom
