// fathom/engine/trace_generator.h
// Made-up request traces: pure functions of their parameters and a seed (Philox: the same trace on any machine).
// Lengths are log-normal: exp(log-normal of `spread`) around `mean`, which is how lengths of prompts and answers are
// distributed in published traces, with a long tail. Source: issue 5 item 8.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "fathom/base/result.h"
#include "fathom/engine/trace.h"

namespace fathom {

struct LengthLaw {
  double mean = 1000;  // tokens
  double spread = 0;   // standard deviation of the logarithm; 0: always the mean
};

struct TraceShape {
  int64_t requests = 1000;
  double rate = 10;  // requests a second on average; 0: all at once
  LengthLaw prompt{2000, 0.8}, output{300, 0.6};
  int64_t most_tokens = 32'768;  // of prompt and answer: longer ones are cut
  uint64_t seed = 1;
};

/// Independent requests at random times (a Poisson process). Nothing is shared.
std::vector<TraceRequest> poisson_trace(const TraceShape& shape);

/// Requests come in bursts: `burst` at `factor` times the rate, then a pause that keeps the mean.
struct BurstShape {
  int64_t burst = 50;
  double factor = 10;
};
std::vector<TraceRequest> burst_trace(const TraceShape& shape, const BurstShape& bursts = {});

/// Agents: a session begins with a system prompt that all share, and a task; each turn's prompt is all of the session
/// so far (prompt, answer) and the result of a tool. A turn begins when the one before has ended, and a pause. Sessions
/// begin at random times such that `rate` requests come a second; `prompt` is the law of a task, `requests` counts
/// turns.
struct AgentShape {
  int turns = 12;
  int64_t system_tokens = 2048;  // tools and instructions
  LengthLaw tool{400, 0.8};      // tokens that a tool's result adds
  double pause_seconds = 1;      // the tool's run: exponential with this mean
};
std::vector<TraceRequest> agent_trace(const TraceShape& shape, const AgentShape& agents = {});

/// Three tenants at once: "chat" (half of the requests: class 1, short, a target for the first token and between
/// tokens, a system prompt of its own), "agents" (three tenths, class 0), "batch" (a fifth: class -1, prompts four
/// times as long, in bursts, answers that allow eight times what they take).
std::vector<TraceRequest> tenants_trace(const TraceShape& shape);

/// "poisson", "burst", "agent", "tenants". Errors: usage with the names.
Result<std::vector<TraceRequest>> make_trace(const std::string& kind, const TraceShape& shape);

}  // namespace fathom
