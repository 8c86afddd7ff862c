#include "fathom/engine/trace_generator.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "fathom/base/philox.h"

namespace fathom {
namespace {

enum class Role : uint32_t { arrival = 1, prompt, output, tool, pause, tenant };

/// Draws of one request, by what they are for.
class Draws {
 public:
  Draws(uint64_t seed, int64_t request) : seed_(seed), request_(uint64_t(request)) {}

  double uniform(Role role, uint32_t word = 0) const { return (double(words(role)[word]) + 0.5) / 4294967296.0; }
  double exponential(Role role, double mean) const { return -mean * std::log(uniform(role)); }
  int64_t tokens(Role role, const LengthLaw& law, int64_t most) const {
    const double radius = std::sqrt(-2 * std::log(uniform(role)));
    const double normal = radius * std::cos(2 * std::numbers::pi * uniform(role, 1));
    const double value = law.mean * std::exp(law.spread * normal - law.spread * law.spread / 2);
    return std::clamp<int64_t>(std::llround(value), 1, std::max<int64_t>(most, 1));
  }

 private:
  std::array<uint32_t, 4> words(Role role) const {
    return philox(seed_, {uint32_t(request_), uint32_t(request_ >> 32), uint32_t(role), 0x67656e});
  }
  uint64_t seed_, request_;
};

// Streams of different generators, requests and purposes do not meet.
uint64_t stream_of(uint64_t seed, uint64_t request, uint32_t purpose) {
  const auto words = philox(seed, {uint32_t(request), uint32_t(request >> 32), purpose, 0x736d});
  return (words[0] | uint64_t(words[1]) << 32) >> 11;  // 53 bits: any reader of JSON keeps them
}

TraceRequest request_of(const TraceShape& shape, int64_t number, double arrival) {
  const Draws draws(shape.seed, number);
  TraceRequest one;
  one.arrival = arrival;
  one.output_tokens = draws.tokens(Role::output, shape.output, shape.most_tokens - 1);
  one.prompt_tokens = draws.tokens(Role::prompt, shape.prompt, shape.most_tokens - one.output_tokens);
  one.seed = stream_of(shape.seed, uint64_t(number), 1);
  one.output_seed = stream_of(shape.seed, uint64_t(number), 2);
  return one;
}

double gap(const TraceShape& shape, int64_t number, double rate) {
  return rate > 0 ? Draws(shape.seed, number).exponential(Role::arrival, 1 / rate) : 0;
}

void sort_by_arrival(std::vector<TraceRequest>& requests) {
  std::stable_sort(requests.begin(), requests.end(),
                   [](const TraceRequest& a, const TraceRequest& b) { return a.arrival < b.arrival; });
}

}  // namespace

std::vector<TraceRequest> poisson_trace(const TraceShape& shape) {
  std::vector<TraceRequest> out;
  double time = 0;
  for (int64_t i = 0; i < shape.requests; ++i) {
    time += gap(shape, i, shape.rate);
    out.push_back(request_of(shape, i, time));
  }
  return out;
}

std::vector<TraceRequest> burst_trace(const TraceShape& shape, const BurstShape& bursts) {
  std::vector<TraceRequest> out;
  const double factor = std::max(bursts.factor, 1.0);
  double time = 0;
  for (int64_t i = 0; i < shape.requests; ++i) {
    time += gap(shape, i, shape.rate * factor);
    out.push_back(request_of(shape, i, time));
    if (shape.rate > 0 && (i + 1) % bursts.burst == 0) time += double(bursts.burst) / shape.rate * (1 - 1 / factor);
  }
  return out;
}

std::vector<TraceRequest> agent_trace(const TraceShape& shape, const AgentShape& agents) {
  check(shape.most_tokens >= 16, "a turn has room");
  std::vector<TraceRequest> out;
  const int turns = std::max(agents.turns, 1);
  const TextPart system{stream_of(shape.seed, 0, 3), std::min(agents.system_tokens, shape.most_tokens / 4)};
  double time = 0;
  for (int64_t session = 0; int64_t(out.size()) < shape.requests; ++session) {
    time += gap(shape, session, shape.rate / turns);
    std::vector<TextPart> text;
    if (system.tokens > 0) text.push_back(system);
    int64_t length = system.tokens;
    for (int turn = 0; turn < turns && int64_t(out.size()) < shape.requests; ++turn) {
      const int64_t number = session * turns + turn;
      const Draws draws(shape.seed, number);
      TraceRequest one = request_of(shape, number, time);
      int64_t added = draws.tokens(Role::tool, agents.tool, shape.most_tokens);
      if (turn == 0) {  // a session has at least one turn
        one.output_tokens = std::min(one.output_tokens, (shape.most_tokens - length) / 2);
        added = std::min(one.prompt_tokens, shape.most_tokens - length - one.output_tokens);
      }
      one.prefix = text;
      one.prompt_tokens = length + added;
      if (one.prompt_tokens + one.output_tokens > shape.most_tokens) break;  // its context is full
      one.session = "s" + std::to_string(session);
      if (turn > 0) one.pause_seconds = draws.exponential(Role::pause, agents.pause_seconds);
      text.push_back({one.seed, added});
      text.push_back({one.output_seed, one.output_tokens});
      length = one.prompt_tokens + one.output_tokens;
      out.push_back(std::move(one));
    }
  }
  return out;
}

std::vector<TraceRequest> tenants_trace(const TraceShape& shape) {
  const auto part = [&](uint32_t number, double share) {
    TraceShape out = shape;
    out.seed = stream_of(shape.seed, number, 4);
    out.requests = std::max<int64_t>(1, int64_t(double(shape.requests) * share));
    out.rate = shape.rate * share;
    return out;
  };
  TraceShape chat = part(0, 0.5), agents = part(1, 0.3), batch = part(2, 0.2);
  batch.prompt.mean *= 4;
  std::vector<TraceRequest> out;
  const TextPart system{stream_of(chat.seed, 0, 3), 1024};
  for (TraceRequest& one : poisson_trace(chat)) {
    one.tenant = "chat";
    one.priority = 1;
    one.first_token_seconds = 0.5;
    one.between_tokens_seconds = 0.05;
    if (one.prompt_tokens + system.tokens + one.output_tokens <= shape.most_tokens) {
      one.prefix = {system};
      one.prompt_tokens += system.tokens;
    }
    out.push_back(std::move(one));
  }
  for (TraceRequest& one : agent_trace(agents)) {
    one.tenant = "agents";
    out.push_back(std::move(one));
  }
  for (TraceRequest& one : burst_trace(batch)) {
    one.tenant = "batch";
    one.priority = -1;
    one.max_tokens = std::min(8 * one.output_tokens, shape.most_tokens - one.prompt_tokens);
    out.push_back(std::move(one));
  }
  sort_by_arrival(out);
  return out;
}

Result<std::vector<TraceRequest>> make_trace(const std::string& kind, const TraceShape& shape) {
  if (kind == "poisson") return poisson_trace(shape);
  if (kind == "burst") return burst_trace(shape);
  if (kind == "agent") return agent_trace(shape);
  if (kind == "tenants") return tenants_trace(shape);
  return Error{ErrorCode::usage, "unknown arrivals \"" + kind + "\"", "--arrivals",
               "known are poisson, burst, agent and tenants"};
}

}  // namespace fathom
