// Requests on their way into the loop: checked, made sequences, their constraints compiled.
#include <algorithm>

#include "fathom/engine/step_loop.h"
#include "fathom/grammar/constraint_grammar.h"

namespace fathom {

Result<void> StepLoop::check_submitted(Request& request) const {
  const RequestLimits limits{executor_.vocabulary(), options_.limits.context,  std::min(executor_.block(), kMaxDrafts),
                             options_.eos_id,        options_.token_blacklist, options_.batch_invariant};
  if (auto checked = check_request(request, limits); !checked) return checked;
  if (!request.constraint) return {};
  request.sampling.ignore_eos = false;
  return check_constraint(*request.constraint);
}

Result<RequestId> StepLoop::submit(Request request) {
  if (auto checked = check_submitted(request); !checked) {
    if (options_.statistics != nullptr) options_.statistics->reject(checked.error());
    return checked.error();
  }
  const uint64_t seed = request.sampling.seed ? *request.sampling.seed : uint64_t(entropy_()) << 32 | entropy_();
  const RequestId first = next_id_;
  for (int answer = 0; answer < request.answers; ++answer) {
    Sequence sequence = sequence_of(request);
    if (answer > 0) sequence.parent = first;
    Record record;
    record.submitted = Clock::now();
    record.usage.prompt_tokens = sequence.prompt_tokens;
    record.live = live_of(request, sequence, seed + uint64_t(answer));
    sequence.stop_ids = record.live->stop_ids;
    record.account = int32_t(sequence.tenant);
    if (sequence.chain.root != 0) {
      record.root_account = scheduler_.pools().prefixes.account_of(sequence.chain.root);
      scheduler_.pools().blocks.idle().hold_account(record.root_account);
    }
    sequence.ready = !request.constraint;
    const RequestId id = sequence.id;
    if (options_.statistics != nullptr) options_.statistics->arrive(record.progress, id, now(), !sequence.ready);
    records_.emplace(id, std::move(record));
    recorder_.submit(std::move(sequence));
    if (request.constraint) compile(id, *request.constraint);
  }
  return first;
}

Sequence StepLoop::sequence_of(const Request& request) {
  const Sampling& sampling = request.sampling;
  const int64_t context = options_.limits.context;
  Sequence out;
  out.id = next_id_++;
  out.ids = request.ids;
  out.prompt_tokens = int64_t(request.ids.size());
  const int64_t total = sampling.max_total_tokens > 0 ? std::min(sampling.max_total_tokens, context) : context;
  const int64_t room = total - out.prompt_tokens;
  out.max_tokens = sampling.max_tokens == 0 ? room : std::min(sampling.max_tokens, room);
  out.drafts = request.drafts.value_or(options_.drafts);
  out.prompt_logits = request.prompt_logprobs;
  out.mode = request.prompt_logprobs ? ReplayMode::off : request.replay.value_or(options_.replay);
  out.priority = request.priority;
  out.tenant = open_tenant(request.tenant);
  out.arrived = now();
  if (request.first_token_seconds) out.first_token_by = out.arrived + *request.first_token_seconds;
  out.between_tokens = request.between_tokens_seconds;
  if (options_.prefix_cache && !request.prompt_logprobs && request.use_cache) {
    out.chain.root = open_root(request, out.mode, out.tenant);
  }
  return out;
}

std::unique_ptr<LiveSequence> StepLoop::live_of(const Request& request, const Sequence& sequence, uint64_t seed) const {
  auto out = std::make_unique<LiveSequence>();
  out->ids = sequence.ids;
  out->prompt_tokens = sequence.prompt_tokens;
  out->max_tokens = sequence.max_tokens;
  out->drafts = sequence.drafts;
  out->mode = sequence.mode;
  out->snapshots = sequence.chain.root != 0 && options_.limits.snapshots.budget_bytes > 0;
  out->top_logprobs = request.sampling.top_logprobs;
  out->prompt_logprobs = request.prompt_logprobs;
  out->sampler = make_sampler_state(request.sampling, seed, options_.eos_id, request.ids,
                                    request.verification.value_or(options_.verification), options_.token_blacklist);
  out->stop_ids = out->sampler.end_ids;
  std::sort(out->stop_ids.begin(), out->stop_ids.end());
  // Under rejection the text of a seed depends on how many drafts are verified, and that on measured times.
  const bool promised = request.sampling.seed && verified_by_laws(out->sampler);
  out->verify_all = !schedule_ || request.drafts || promised;
  return out;
}

// An account of the prefix cache, and a lane of the queue under the same number, as long as somebody uses it: tenant 0
// is everybody who does not say. Closed in finish().
uint32_t StepLoop::open_tenant(const std::string& name) {
  const auto [account, fresh] = open_account(scheduler_.pools(), name);
  if (fresh) recorder_.forget_tenant(uint32_t(account));
  return uint32_t(account);
}

int32_t StepLoop::open_root(const Request& request, ReplayMode mode, uint32_t tenant) {
  PrefixRoot root = options_.prefix;
  root.replay = replay_class_of(mode);
  // Without a salt of its own a tenant's name keeps its prefixes apart from those of others.
  root.salt = request.cache_salt.value_or(request.tenant);
  const bool shared = request.cache_salt.has_value();
  return scheduler_.pools().prefixes.open_root(root, key_hash_of(shared), int32_t(tenant));
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

void StepLoop::compile(RequestId id, const grammar::Constraint& constraint) {
  if (!compile_pool_) {
    compile_pool_ = std::make_unique<grammar::CompilePool>(*options_.vocabulary, options_.grammar);
  }
  records_.at(id).ticket = compile_pool_->submit(constraint);
  compiling_.push_back(id);
}

Result<void> StepLoop::begin_constrained(Record& record, RequestId id, const grammar::CompiledGrammar& grammar) {
  LiveSequence& live = *record.live;
  live.guide = std::make_unique<AnswerGuide>(grammar, *options_.vocabulary, live.sampler, live.stop_ids,
                                             std::min(live.drafts, executor_.block()));
  if (auto begun = live.guide->begin(); !begun) return begun;
  live.sampler.masks = &live.guide->masks();
  recorder_.make_ready(id);
  if (options_.statistics != nullptr) options_.statistics->ready(record.progress, now());
  return {};
}

// One request whose constraint fails ends alone.
void StepLoop::poll_constraints() {
  std::erase_if(compiling_, [&](RequestId id) {
    if (scheduler_.find(id) == nullptr) return true;  // cancelled
    Record& record = records_.at(id);
    const auto compiled = compile_pool_->poll(record.ticket);
    if (!compiled) return false;
    const auto begun = compiled->ok() ? begin_constrained(record, id, **compiled) : compiled->error();
    if (begun.ok()) return true;
    recorder_.cancel(id);
    events_.push_back({});
    events_.back().request = id;
    finish(events_.back(), FinishReason::failed, Clock::now(), begun.error());
    return true;
  });
}

}  // namespace fathom
