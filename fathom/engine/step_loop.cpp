#include "fathom/engine/step_loop.h"

#include <algorithm>

namespace fathom {
namespace {

double seconds(std::chrono::steady_clock::duration time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

StepLoop::StepLoop(LoopOptions options, ModelPort port, const Operations& ops, Queue& queue)
    : options_(options), scheduler_(options.limits), runner_(std::move(port), ops, queue) {
  check(options.drafts >= 0 && options.drafts <= std::min(runner_.block(), kMaxDrafts), "drafts come from one block");
}

Result<RequestId> StepLoop::submit(Request request) {
  const int64_t context = options_.limits.context;
  const RequestLimits limits{runner_.vocabulary(), context, std::min(runner_.block(), kMaxDrafts), options_.eos_id,
                             options_.token_blacklist};
  if (auto checked = check_request(request, limits); !checked) return checked.error();
  const Sampling& sampling = request.sampling;

  Sequence sequence;
  sequence.id = next_id_++;
  sequence.prompt_tokens = int64_t(request.ids.size());
  const int64_t total = sampling.max_total_tokens > 0 ? std::min(sampling.max_total_tokens, context) : context;
  const int64_t room = total - sequence.prompt_tokens;
  sequence.max_tokens = sampling.max_tokens == 0 ? room : std::min(sampling.max_tokens, room);
  sequence.drafts = request.drafts.value_or(options_.drafts);
  sequence.prompt_logits = request.prompt_logprobs;
  const ReplayMode mode = request.prompt_logprobs ? ReplayMode::off : request.replay.value_or(options_.replay);
  sequence.replay = plan_replay(options_.replay_shape, mode, sequence.prompt_tokens);
  const uint64_t seed = sampling.seed ? *sampling.seed : uint64_t(entropy_()) << 32 | entropy_();
  sequence.sampler = make_sampler_state(sampling, seed, options_.eos_id, request.ids,
                                        request.verification.value_or(options_.verification), options_.token_blacklist);
  sequence.stop_ids = sequence.sampler.end_ids;
  std::sort(sequence.stop_ids.begin(), sequence.stop_ids.end());
  sequence.ids = std::move(request.ids);

  Record record;
  record.submitted = Clock::now();
  record.usage.prompt_tokens = sequence.prompt_tokens;
  record.top_logprobs = sampling.top_logprobs;
  record.prompt_logprobs = request.prompt_logprobs;
  const RequestId id = sequence.id;
  records_.emplace(id, std::move(record));
  scheduler_.submit(std::move(sequence));
  return id;
}

void StepLoop::cancel(RequestId id) {
  if (scheduler_.cancel(id)) cancelled_.push_back(id);
}

// Queue time ends when the first row of a request is planned.
void StepLoop::note_start(const StepPlan& plan, Clock::time_point now) {
  for (const StepPlan::Rows& rows : plan.rows) {
    Record& record = records_.at(rows.sequence);
    if (rows.first == scheduler_.find(rows.sequence)->replay.start) {
      record.usage.queue_seconds = seconds(now - record.submitted);
    }
  }
}

void StepLoop::note_rows(const StepPlan::Rows& rows, const Sequence& sequence, size_t tokens, Usage& usage) const {
  if (sequence.in_prompt()) {
    usage.encoder_rows += rows.count;
    usage.decoder_rows += rows.decoder_count;
    return;
  }
  if (rows.drafts == 0) return;
  ++usage.rounds;
  for (size_t i = 0; i < size_t(rows.drafts); ++i) {
    ++usage.offered[i];
    if (i + 1 < tokens) ++usage.accepted[i];
  }
}

// The row at position p tells the token at p + 1; the last row of a prompt tells the first token of the answer.
void StepLoop::read_prompt_logprobs(size_t entry, const StepPlan::Rows& rows, const Sequence& sequence,
                                    Record& record) const {
  for (int64_t i = 0; i < rows.logit_rows && rows.first + i + 1 < sequence.prompt_tokens; ++i) {
    record.prompt.push_back(
        logprob_of(runner_.logits(entry, i), sequence.ids[size_t(rows.first + i + 1)], record.top_logprobs));
  }
}

// Before the commit: the law of a token depends on the answer so far.
void StepLoop::read_logprobs(size_t entry, const StepPlan::Rows& rows, const Sequence& sequence,
                             std::span<const int32_t> tokens, Record& record) {
  record.answer.clear();
  if (record.top_logprobs < 0) return;
  for (size_t i = 0; i < tokens.size(); ++i) {
    record.answer.push_back(runner_.logprob_of_chosen(entry, rows, sequence, tokens.first(i + 1), record.top_logprobs));
  }
}

Event StepLoop::event_of(const StepPlan::Rows& rows, std::span<const int32_t> tokens, Record& record) const {
  Event event;
  event.request = rows.sequence;
  event.ids.assign(tokens.begin(), tokens.end());
  if (record.top_logprobs >= 0) {
    record.answer.resize(tokens.size());
    event.logprobs = std::move(record.answer);
    record.answer.clear();
  }
  event.prompt_logprobs = std::move(record.prompt);
  record.prompt.clear();
  return event;
}

void StepLoop::finish(Event& event, FinishReason reason, Clock::time_point now) {
  Record& record = records_.at(event.request);
  record.usage.total_seconds = seconds(now - record.submitted);
  event.finish = Finish{reason, {}, record.usage};
  records_.erase(event.request);
}

std::span<const Event> StepLoop::step() {
  events_.clear();
  for (const RequestId id : cancelled_) {
    events_.push_back({});
    events_.back().request = id;
    finish(events_.back(), FinishReason::cancelled, Clock::now());
  }
  cancelled_.clear();
  const StepPlan& plan = scheduler_.plan();
  if (plan.empty()) return events_;
  note_start(plan, Clock::now());
  entries_.clear();
  for (const StepPlan::Rows& rows : plan.rows) entries_.push_back(scheduler_.find(rows.sequence));

  const StepResult& result = runner_.run(plan, entries_);
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    Record& record = records_.at(plan.rows[i].sequence);
    note_rows(plan.rows[i], *entries_[i], result.of(i).size(), record.usage);
    read_logprobs(i, plan.rows[i], *entries_[i], result.of(i), record);
    if (record.prompt_logprobs && entries_[i]->in_prompt()) {
      read_prompt_logprobs(i, plan.rows[i], *entries_[i], record);
    }
  }
  const auto outcomes = scheduler_.commit(plan, result);
  const auto now = Clock::now();
  drafting_.clear();
  for (size_t i = 0; i < outcomes.size(); ++i) {
    const Outcome& outcome = outcomes[i];
    if (outcome.kept == 0) continue;
    Record& record = records_.at(outcome.sequence);
    const auto kept = result.of(i).first(size_t(outcome.kept));
    if (record.usage.generated_tokens == 0) record.usage.first_token_seconds = seconds(now - record.submitted);
    record.usage.generated_tokens += outcome.kept;
    events_.push_back(event_of(plan.rows[i], kept, record));
    if (outcome.finish) {
      finish(events_.back(), *outcome.finish, now);
    } else {
      for (const int32_t token : kept) count_token(entries_[i]->sampler, token);
      drafting_.push_back(entries_[i]);
    }
  }
  runner_.propose(drafting_);
  return events_;
}

}  // namespace fathom
