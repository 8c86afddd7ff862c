#include "fathom/engine/load_report.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace fathom {

Quantiles quantiles_of(std::vector<float>& values) {
  Quantiles out;
  out.count = int64_t(values.size());
  if (values.empty()) return out;
  std::sort(values.begin(), values.end());
  double sum = 0;
  for (const float value : values) sum += double(value);
  const auto at = [&](double share) {
    const auto rank = size_t(std::ceil(share * double(values.size())));
    return double(values[std::max<size_t>(rank, 1) - 1]);
  };
  out.mean = sum / double(values.size());
  out.p50 = at(0.5), out.p90 = at(0.9), out.p99 = at(0.99), out.most = double(values.back());
  return out;
}

size_t LoadMeter::arrive(double now, int64_t prompt_tokens, const std::string& tenant) {
  const auto [at, is_new] = tenant_of_.try_emplace(tenant, int32_t(tenants_.size()));
  if (is_new) tenants_.push_back(tenant), gaps_.emplace_back();
  AnswerRecord record;
  record.arrived = now;
  record.prompt_tokens = prompt_tokens;
  record.tenant = at->second;
  answers_.push_back(record);
  return answers_.size() - 1;
}

void LoadMeter::begin(size_t answer, double now) {
  if (answers_[answer].begun < 0) answers_[answer].begun = now;
}

void LoadMeter::tokens(size_t answer, double now, int64_t count) {
  AnswerRecord& record = answers_[answer];
  if (record.output_tokens == 0) {
    record.first_token = now;
  } else {
    const auto gap = float(now - record.last_token);
    record.longest_gap = std::max(record.longest_gap, gap);
    gaps_[size_t(record.tenant)].push_back(gap);
  }
  record.last_token = now;
  record.output_tokens += count;
}

void LoadMeter::end(size_t answer, double now, FinishReason reason) {
  answers_[answer].ended = now;
  answers_[answer].reason = reason;
}

LoadReport LoadMeter::report() const {
  LoadReport out;
  out.answers = int64_t(answers_.size());
  double first = std::numeric_limits<double>::infinity(), last = 0;
  struct Times {
    std::vector<float> queue, first_token;
  };
  std::vector<Times> of(tenants_.size());
  std::vector<float> queue, first_token, per_token, total;
  std::vector<TenantReport> tenants(tenants_.size());
  for (const AnswerRecord& one : answers_) {
    TenantReport& tenant = tenants[size_t(one.tenant)];
    Times& times = of[size_t(one.tenant)];
    ++tenant.answers;
    first = std::min(first, one.arrived);
    last = std::max({last, one.ended, one.arrived});
    switch (one.reason) {
      case FinishReason::cancelled: ++out.cancelled; break;
      case FinishReason::rejected: ++out.rejected; continue;
      case FinishReason::failed: ++out.failed; break;
      default: out.finished += one.ended >= 0;
    }
    if (one.begun >= 0) {
      out.prompt_tokens += one.prompt_tokens;
      out.cached_tokens += one.cached_tokens;
      queue.push_back(float(one.begun - one.arrived));
      times.queue.push_back(queue.back());
    }
    out.output_tokens += one.output_tokens;
    tenant.output_tokens += one.output_tokens;
    out.preemptions += one.preemptions;
    if (one.first_token >= 0) {
      first_token.push_back(float(one.first_token - one.arrived));
      times.first_token.push_back(first_token.back());
    }
    if (one.output_tokens > 1) {
      per_token.push_back(float((one.last_token - one.first_token) / double(one.output_tokens - 1)));
    }
    if (one.reason == FinishReason::cancelled || one.reason == FinishReason::failed) continue;
    if (one.ended >= 0) total.push_back(float(one.ended - one.arrived));
    if (one.first_token_target > 0 && one.first_token >= 0) {
      ++out.first_token_targets;
      out.first_token_met += first_token.back() <= one.first_token_target;
    }
    if (one.between_tokens_target > 0 && one.output_tokens > 1) {
      ++out.between_targets;
      out.between_met += one.longest_gap <= one.between_tokens_target;
    }
  }
  out.seconds = answers_.empty() ? 0 : last - first;
  out.queue = quantiles_of(queue);
  out.first_token = quantiles_of(first_token);
  out.per_token = quantiles_of(per_token);
  out.total = quantiles_of(total);
  std::vector<float> gaps;
  for (size_t i = 0; i < tenants_.size(); ++i) {
    std::vector<float> own = gaps_[i];
    gaps.insert(gaps.end(), own.begin(), own.end());
    if (tenants_.size() == 1) continue;
    tenants[i].name = tenants_[i];
    tenants[i].queue = quantiles_of(of[i].queue);
    tenants[i].first_token = quantiles_of(of[i].first_token);
    tenants[i].gap = quantiles_of(own);
  }
  out.gap = quantiles_of(gaps);
  if (tenants_.size() > 1) out.tenants = std::move(tenants);
  return out;
}

}  // namespace fathom
