// What people and programs read of statistics: lines and JSON. Pure.
#include <algorithm>

#include "fathom/engine/statistics.h"

namespace fathom {
namespace {

int64_t sum(const std::array<int64_t, kMaxDrafts>& values) {
  int64_t out = 0;
  for (const int64_t value : values) out += value;
  return out;
}

// The pairs of log_line without its level.
std::string pairs(std::span<const LogField> fields) {
  const std::string line = log_line(LogFormat::human, "", LogLevel::info, "", fields);
  return line.substr(std::min(line.size(), std::string("level=info ").size()));
}

double percent(double ratio) { return double(int64_t(ratio * 1000 + 0.5)) / 10; }
double round_to(double value, double unit) { return double(int64_t(value / unit + 0.5)) * unit; }
double milliseconds(double seconds) { return round_to(seconds * 1e3, 0.01); }

/// Where a request's rows and time went, derived from its usage.
struct RequestFigures {
  int64_t computed_rows = 0, offered = 0, accepted = 0;
  double tokens_per_second = 0;  // behind the first one
};

RequestFigures figures_of(const Usage& usage) {
  RequestFigures out;
  out.computed_rows = std::max<int64_t>(0, usage.encoder_rows - usage.replayed_tokens);
  out.offered = sum(usage.offered);
  out.accepted = sum(usage.accepted);
  const double seconds = usage.total_seconds - usage.first_token_seconds;
  if (usage.generated_tokens > 1 && seconds > 0) out.tokens_per_second = double(usage.generated_tokens - 1) / seconds;
  return out;
}

}  // namespace

std::string statistics_line(const WindowReport& r) {
  const auto of = [&](RequestState state) { return r.requests[size_t(state)]; };
  std::vector<LogField> fields = {{"step", r.step},
                                  {"steps_per_s", round_to(r.steps_per_second, 0.01)},
                                  {"tokens_per_s", round_to(r.tokens_per_second, 0.1)},
                                  {"prompt_rows_per_s", round_to(r.prompt_rows_per_second, 0.1)},
                                  {"running", of(RequestState::running)},
                                  {"waiting", of(RequestState::waiting)},
                                  {"loading", of(RequestState::loading)},
                                  {"step_ms", milliseconds(r.step_seconds)},
                                  {"forward_ms", milliseconds(r.forward_seconds)},
                                  {"sample_ms", milliseconds(r.sample_seconds)},
                                  {"host_ms", milliseconds(r.plan_seconds)},
                                  {"prompt_time_percent", percent(r.prompt_time_ratio)},
                                  {"cached_percent", percent(r.cached_ratio)},
                                  {"blocks_used_percent", percent(r.used_blocks_ratio)},
                                  {"blocks_idle_percent", percent(r.idle_blocks_ratio)},
                                  {"slots_used_percent", percent(r.used_slots_ratio)}};
  std::string by_position;
  if (r.rounds > 0) {
    for (size_t i = 0; i < r.acceptance.size() && double(i) < r.verified_mean; ++i) {
      by_position += (i > 0 ? "/" : "") + std::to_string(int64_t(r.acceptance[i] * 100 + 0.5));
    }
    fields.emplace_back("drafts_verified", round_to(r.verified_mean, 0.01));
    fields.emplace_back("drafts_accepted", round_to(r.accepted_mean, 0.01));
    fields.emplace_back("accepted_percent", percent(r.acceptance_ratio));
    fields.emplace_back("accepted_percent_by_position", by_position);
    if (r.confidence_error > 0) fields.emplace_back("confidence_error", round_to(r.confidence_error, 0.001));
  }
  if (r.first_tokens > 0) {
    fields.emplace_back("first_token_ms_mean", milliseconds(r.first_token_mean_seconds));
    fields.emplace_back("first_token_ms_max", milliseconds(r.first_token_max_seconds));
  }
  fields.emplace_back("finished", r.finished);
  if (r.finished > 0) {
    fields.emplace_back("prompt_tokens_mean", round_to(r.prompt_tokens_mean, 1));
    fields.emplace_back("generated_tokens_mean", round_to(r.generated_tokens_mean, 1));
  }
  if (r.preempted > 0) fields.emplace_back("preempted", r.preempted);
  if (r.cancelled > 0) fields.emplace_back("cancelled", r.cancelled);
  return pairs(fields);
}

Json json_of(const WindowReport& r) {
  Json out = Json::object(), acceptance = Json::array(), requests = Json::object();
  const auto set = [&](const char* key, auto value) { out.fields.emplace_back(key, Json::of(value)); };
  set("step", int64_t(r.step)), set("steps", r.steps), set("seconds", r.seconds);
  set("steps_per_second", r.steps_per_second), set("tokens_per_second", r.tokens_per_second);
  set("prompt_rows_per_second", r.prompt_rows_per_second);
  set("step_seconds", r.step_seconds), set("plan_seconds", r.plan_seconds);
  set("forward_seconds", r.forward_seconds), set("sample_seconds", r.sample_seconds);
  set("prompt_time_ratio", r.prompt_time_ratio), set("cached_ratio", r.cached_ratio);
  set("rounds", r.rounds), set("acceptance_ratio", r.acceptance_ratio);
  set("accepted_mean", r.accepted_mean), set("verified_mean", r.verified_mean);
  for (const double part : r.acceptance) acceptance.push(Json::of(part));
  out.fields.emplace_back("acceptance_by_position", std::move(acceptance));
  set("confidence_error", r.confidence_error);
  set("first_tokens", r.first_tokens), set("first_token_mean_seconds", r.first_token_mean_seconds);
  set("first_token_max_seconds", r.first_token_max_seconds);
  set("finished", r.finished), set("preempted", r.preempted), set("cancelled", r.cancelled);
  set("prompt_tokens_mean", r.prompt_tokens_mean), set("generated_tokens_mean", r.generated_tokens_mean);
  for (const RequestState state : {RequestState::loading, RequestState::waiting, RequestState::running}) {
    requests.set(name_of(state), Json::of(r.requests[size_t(state)]));
  }
  out.fields.emplace_back("requests", std::move(requests));
  set("used_blocks_ratio", r.used_blocks_ratio), set("idle_blocks_ratio", r.idle_blocks_ratio);
  set("used_slots_ratio", r.used_slots_ratio);
  return out;
}

std::string request_line(RequestId id, const Finish& finish) {
  const Usage& u = finish.usage;
  const RequestFigures figures = figures_of(u);
  std::vector<LogField> fields = {{"request", id},
                                  {"reason", name_of(finish.reason)},
                                  {"queue_ms", milliseconds(u.queue_seconds)},
                                  {"prompt_tokens", u.prompt_tokens},
                                  {"cached_tokens", u.cached_tokens},
                                  {"computed_rows", figures.computed_rows},
                                  {"replayed_rows", u.replayed_tokens},
                                  {"decoder_rows", u.decoder_rows},
                                  {"generated_tokens", u.generated_tokens},
                                  {"drafts", figures.offered},
                                  {"drafts_accepted", figures.accepted},
                                  {"first_token_ms", milliseconds(u.first_token_seconds)},
                                  {"tokens_per_s", round_to(figures.tokens_per_second, 0.1)},
                                  {"total_ms", milliseconds(u.total_seconds)}};
  if (u.preemptions > 0) fields.emplace_back("preemptions", u.preemptions);
  const std::string error = finish.error ? to_string(*finish.error) : "";
  if (finish.error) {
    fields.emplace_back("code", name_of(finish.error->code));
    fields.emplace_back("error", error);
  }
  return pairs(fields);
}

Json json_of(RequestId id, const Finish& finish) {
  const Usage& u = finish.usage;
  const RequestFigures figures = figures_of(u);
  Json out = Json::object(), offered = Json::array(), accepted = Json::array();
  const auto set = [&](const char* key, auto value) { out.fields.emplace_back(key, Json::of(value)); };
  set("request", int64_t(id)), set("reason", name_of(finish.reason));
  set("queue_seconds", u.queue_seconds), set("first_token_seconds", u.first_token_seconds);
  set("total_seconds", u.total_seconds), set("tokens_per_second", figures.tokens_per_second);
  set("prompt_tokens", u.prompt_tokens), set("cached_tokens", u.cached_tokens);
  set("computed_rows", figures.computed_rows), set("replayed_rows", u.replayed_tokens);
  set("decoder_rows", u.decoder_rows), set("generated_tokens", u.generated_tokens);
  set("preemptions", u.preemptions), set("rounds", u.rounds);
  const size_t most = size_t(std::find(u.offered.begin(), u.offered.end(), 0) - u.offered.begin());
  for (size_t i = 0; i < most; ++i) offered.push(Json::of(u.offered[i])), accepted.push(Json::of(u.accepted[i]));
  out.fields.emplace_back("drafts_offered", std::move(offered));
  out.fields.emplace_back("drafts_accepted", std::move(accepted));
  if (finish.error) {
    Json error = Json::object();
    error.set("code", Json::of(name_of(finish.error->code)));
    error.set("message", Json::of(to_string(*finish.error)));
    out.fields.emplace_back("error", std::move(error));
  }
  return out;
}

}  // namespace fathom
