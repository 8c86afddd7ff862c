#include "fathom/engine/step_loop.h"

#include <algorithm>
#include <thread>

#include "fathom/grammar/constraint_grammar.h"

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
  if (request.constraint) {
    if (auto possible = check_constraint(*request.constraint); !possible) return possible.error();
    request.sampling.ignore_eos = false;
  }
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
  sequence.mode = mode;
  sequence.priority = request.priority;
  sequence.tenant = tenant_of(request.tenant);
  sequence.arrived = now();
  if (request.first_token_seconds) sequence.first_token_by = sequence.arrived + *request.first_token_seconds;
  sequence.between_tokens = request.between_tokens_seconds;
  if (options_.prefix_cache && !request.prompt_logprobs && request.use_cache) {
    sequence.chain.root = open_root(request, mode, sequence.tenant);
  }
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
  if (request.constraint) {
    if (!compile_pool_) {
      compile_pool_ = std::make_unique<grammar::CompilePool>(*options_.vocabulary, options_.grammar);
    }
    record.ticket = compile_pool_->submit(*request.constraint);
    sequence.ready = false;
    compiling_.push_back(id);
  }
  records_.emplace(id, std::move(record));
  scheduler_.submit(std::move(sequence));
  return id;
}

// Tenant 0 is everybody who does not say; each has an account in the prefix cache under the same number.
uint32_t StepLoop::tenant_of(const std::string& name) {
  if (name.empty()) return 0;
  const auto at = tenants_.find(name);
  if (at != tenants_.end()) return at->second;
  const auto tenant = uint32_t(scheduler_.pools().blocks.idle().add_account({}));
  tenants_.emplace(name, tenant);
  return tenant;
}

int32_t StepLoop::open_root(const Request& request, ReplayMode mode, uint32_t tenant) {
  PrefixRoot root = options_.prefix;
  root.replay = replay_class_of(mode);
  // Without a salt of its own a tenant's name keeps its prefixes apart from those of others.
  root.salt = request.cache_salt.value_or(request.tenant);
  const bool shared = request.cache_salt.has_value();
  return scheduler_.pools().prefixes.open_root(root, key_hash_of(shared), int32_t(tenant));
}

// Medians would forget faster; a mean that forgets a tenth a step follows a change of load within a few steps.
void StepLoop::measure(const StepPlan& plan, double seconds) {
  constexpr double kForget = 0.1;
  int64_t prompt_rows = 0;
  for (const StepPlan::Rows& rows : plan.rows) {
    if (rows.count > 1 + rows.drafts || rows.logit_rows == 0) prompt_rows += rows.count;
  }
  double& value = prompt_rows == 0 ? cost_.decode_seconds : cost_.prompt_row_seconds;
  const double sample =
      prompt_rows == 0 ? seconds : std::max(0.0, seconds - cost_.decode_seconds) / double(prompt_rows);
  value = value == 0 ? sample : value + kForget * (sample - value);
  scheduler_.set_cost(cost_);
}

void StepLoop::cancel(RequestId id) {
  if (scheduler_.cancel(id)) cancelled_.push_back(id);
}

// Queue time ends when the first row of a request is planned.
void StepLoop::note_start(const StepPlan& plan, Clock::time_point now) {
  for (const StepPlan::Rows& rows : plan.rows) {
    Record& record = records_.at(rows.sequence);
    if (record.started) continue;
    record.started = true;
    record.usage.queue_seconds = seconds(now - record.submitted);
  }
}

void StepLoop::note_rows(const StepPlan::Rows& rows, const Sequence& sequence, size_t tokens, Usage& usage) const {
  if (sequence.in_prompt()) {
    usage.cached_tokens = sequence.hit_tokens;
    usage.replayed_tokens = sequence.replayed_tokens;
    usage.preemptions = sequence.preemptions;
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

void StepLoop::finish(Event& event, FinishReason reason, Clock::time_point now, std::optional<Error> error) {
  Record& record = records_.at(event.request);
  record.usage.total_seconds = seconds(now - record.submitted);
  event.finish = Finish{reason, std::move(error), record.usage};
  records_.erase(event.request);
}

// Pure text work, before anything is queued: what passes here can be compiled within the limits.
Result<void> StepLoop::check_constraint(const grammar::Constraint& constraint) const {
  if (!options_.vocabulary) {
    return Error{ErrorCode::usage, "this engine was opened without a vocabulary, so it can keep no constraint",
                 "constraint", "open it with one, or leave the constraint out"};
  }
  auto grammar = grammar::grammar_of(constraint, options_.grammar.limits.grammar);
  if (grammar.ok()) return {};
  Error error = grammar.error();
  error.code = ErrorCode::usage;
  return error;
}

Result<void> StepLoop::begin_constrained(Sequence& sequence, Record& record, const grammar::CompiledGrammar& grammar) {
  record.guide = std::make_unique<AnswerGuide>(grammar, *options_.vocabulary, sequence.sampler, sequence.stop_ids,
                                               std::min(sequence.drafts, runner_.block()));
  if (auto begun = record.guide->begin(); !begun) return begun;
  sequence.guide = record.guide.get();
  sequence.sampler.masks = &record.guide->masks();
  scheduler_.make_ready(sequence.id);
  return {};
}

// One request whose constraint fails ends alone.
void StepLoop::poll_constraints() {
  std::erase_if(compiling_, [&](RequestId id) {
    Sequence* sequence = scheduler_.find(id);
    if (sequence == nullptr) return true;  // cancelled
    Record& record = records_.at(id);
    const auto compiled = compile_pool_->poll(record.ticket);
    if (!compiled) return false;
    const auto begun = compiled->ok() ? begin_constrained(*sequence, record, **compiled) : compiled->error();
    if (begun.ok()) return true;
    scheduler_.cancel(id);
    events_.push_back({});
    events_.back().request = id;
    finish(events_.back(), FinishReason::failed, Clock::now(), begun.error());
    return true;
  });
}

// Takes tokens that did not end the answer into account.
Result<void> StepLoop::advance(Sequence& sequence, std::span<const int32_t> kept) {
  for (const int32_t token : kept) count_token(sequence.sampler, token);
  if (sequence.guide == nullptr) return {};
  return sequence.guide->commit(kept);
}

std::span<const Event> StepLoop::step() {
  events_.clear();
  for (const RequestId id : cancelled_) {
    events_.push_back({});
    events_.back().request = id;
    finish(events_.back(), FinishReason::cancelled, Clock::now());
  }
  cancelled_.clear();
  poll_constraints();
  const StepPlan& plan = scheduler_.plan(now());
  for (const SequenceId id : plan.preempted) scheduler_.find(id)->sampler.draft_laws.clear();
  if (plan.empty()) {
    if (events_.empty() && !compiling_.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return events_;
  }
  const auto begun = Clock::now();
  note_start(plan, Clock::now());
  entries_.clear();
  for (const StepPlan::Rows& rows : plan.rows) entries_.push_back(scheduler_.find(rows.sequence));

  const StepResult& result = runner_.run(plan, entries_);
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    Record& record = records_.at(plan.rows[i].sequence);
    note_rows(plan.rows[i], *entries_[i], result.of(i).size(), record.usage);
    read_logprobs(i, plan.rows[i], *entries_[i], result.of(i), record);
    if (record.prompt_logprobs && entries_[i]->in_prompt() && entries_[i]->generated() == 0) {
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
    } else if (auto advanced = advance(*entries_[i], kept); !advanced) {
      scheduler_.cancel(outcome.sequence);
      finish(events_.back(), FinishReason::failed, now, advanced.error());
    } else {
      drafting_.push_back(entries_[i]);
    }
  }
  for (const Scheduler::SnapshotWish& wish : scheduler_.snapshot_wishes()) {
    scheduler_.put_snapshot(wish, [&](std::span<uint8_t> out) { runner_.save_windows(wish.slot, wish.position, out); });
  }
  runner_.propose(drafting_);
  measure(plan, seconds(Clock::now() - begun));
  return events_;
}

}  // namespace fathom
