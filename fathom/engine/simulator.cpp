#include "fathom/engine/simulator.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <unordered_map>

#include "fathom/base/philox.h"
#include "fathom/engine/trace_clock.h"

namespace fathom {
namespace {

constexpr int32_t kVocabulary = 129'280, kEos = 1;

Error broken(const std::string& what) {
  return {ErrorCode::failed, "the scheduler broke a rule in simulation: " + what, "bench engine --simulate",
          "this is a bug of fathom: report it with the trace"};
}

/// One answer of the trace: request and number among its answers.
struct Answer {
  const TraceRequest* request = nullptr;
  size_t number = 0;  // of the request
  uint64_t output_seed = 0;
  int64_t output_tokens = 0;  // that it really gives
  int drafts = 0;
};

class Simulation {
 public:
  Simulation(std::span<const TraceRequest> trace, const SimulationOptions& options)
      : trace_(trace),
        options_(options),
        clock_(trace),
        requests_(trace.size()),
        scheduler_(options.limits),
        speculation_(options.policy, options.acceptance,
                     start_curve(options.machine, options.limits.sequences * (1 + options.drafts)),
                     options.machine.padded_to > 0) {}

  Result<SimulationReport> run() {
    const Result<void> done = options_.ahead ? run_ahead() : run_synchronous();
    if (!done) return done.error();
    if (auto checked = check_end(); !checked) return checked.error();
    return make_report();
  }

 private:
  struct Planned {
    StepPlan plan;
    std::vector<size_t> decode;  // its entries that decode
    std::vector<bool> alive;     // by entry, once it runs
    SimulatedSpeculation::Decision decision;
    double at = 0;
    bool mixed = false;
    StepResult result;
  };

  // ---------------------------------------------------------------------------------------------- what comes from
  // outside

  void happen(double now) {
    while (const auto due = clock_.take(now)) {
      if (due->kind == TraceClock::Due::Kind::arrival) {
        arrive(due->request, due->time);
      } else {
        cancel(due->request, due->time);
      }
    }
  }

  int32_t root_of(const std::string& tenant, int32_t account) {
    PrefixRoot root;
    root.model = "simulated";
    root.numerics = "simulated";
    root.replay = replay_class_of(options_.replay);
    root.salt = tenant;
    return scheduler_.pools().prefixes.open_root(root, xxh3_key, account);
  }

  int32_t account_of(const std::string& tenant) {
    if (tenant.empty()) return 0;
    const auto at = accounts_.find(tenant);
    if (at != accounts_.end()) return at->second;
    return accounts_.emplace(tenant, scheduler_.pools().blocks.idle().add_account({})).first->second;
  }

  void arrive(size_t number, double now) {
    const TraceRequest& request = trace_[number];
    RequestState& state = requests_[number];
    const int64_t room = options_.limits.context - request.prompt_tokens;
    const int64_t wanted = request.max_tokens == 0 ? request.output_tokens : request.max_tokens;
    const int64_t most = std::min(wanted, room);
    const bool fits = most >= 1 && blocks_for(request.prompt_tokens + most) <= options_.limits.blocks;
    state.open = request.answers;
    SequenceId parent = 0;
    std::vector<int32_t> prompt;
    if (fits) prompt = trace_prompt(request, kVocabulary);
    for (int i = 0; i < request.answers; ++i) {
      const size_t answer = meter_.arrive(now, request.prompt_tokens, request.tenant);
      AnswerRecord& record = meter_.answer(answer);
      record.first_token_target = float(request.first_token_seconds.value_or(0));
      record.between_tokens_target = float(request.between_tokens_seconds.value_or(0));
      answers_.push_back({&request, number, output_seed_of(request, i), std::min(request.output_tokens, most),
                          options_.policy == SpeculationPolicy::none ? 0 : options_.drafts});
      if (!fits) {
        end(answer, now, FinishReason::rejected);
        continue;
      }
      Sequence sequence;
      sequence.id = SequenceId(answer) + 1;
      if (i == 0) state.first = sequence.id;
      sequence.ids = prompt;
      sequence.prompt_tokens = request.prompt_tokens;
      sequence.max_tokens = most;
      sequence.stop_ids = {kEos};
      sequence.drafts = answers_.back().drafts;
      sequence.mode = options_.replay;
      sequence.priority = request.priority;
      sequence.tenant = uint32_t(account_of(request.tenant));
      sequence.arrived = now;
      if (request.first_token_seconds) sequence.first_token_by = now + *request.first_token_seconds;
      sequence.between_tokens = request.between_tokens_seconds;
      sequence.parent = parent;
      if (options_.prefix_cache) sequence.chain.root = root_of(request.tenant, int32_t(sequence.tenant));
      if (i == 0) parent = sequence.id;
      scheduler_.submit(std::move(sequence));
    }
  }

  void cancel(size_t number, double now) {
    const RequestState& state = requests_[number];
    if (state.first == 0) return;  // it was rejected
    for (int i = 0; i < trace_[number].answers; ++i) {
      const SequenceId id = state.first + SequenceId(i);
      if (!scheduler_.cancel(id)) continue;
      speculation_.forget(size_t(id - 1));
      end(size_t(id - 1), now, FinishReason::cancelled);
    }
  }

  void end(size_t answer, double now, FinishReason reason) {
    meter_.end(answer, now, reason);
    ++ended_;
    const size_t request = answers_[answer].number;
    if (--requests_[request].open == 0) clock_.ended(request, now);
  }

  // ------------------------------------------------------------------------------------------------------------ one
  // step

  SimulatedSpeculation::Entry entry_of(const StepPlan::Rows& rows, bool ahead, bool alive) const {
    const Answer& answer = answers_[size_t(rows.sequence - 1)];
    return {size_t(rows.sequence - 1), answer.output_seed, rows.drafts, ahead, alive, answer.request->acceptance};
  }

  void maybe_preempt() {
    if (options_.preempt_share <= 0 || scheduler_.running() == 0) return;
    const auto words = philox(options_.seed, {uint32_t(report_.steps), uint32_t(uint64_t(report_.steps) >> 32), 1, 0});
    if (double(words[0]) >= options_.preempt_share * 4294967296.0) return;
    const SequenceId id = scheduler_.running_ids()[words[1] % scheduler_.running()];
    if (scheduler_.preempt(id)) speculation_.forget(size_t(id - 1));
  }

  /// Plans a step at `now`; an empty plan when nothing can run.
  Result<Planned> plan(double now) {
    maybe_preempt();
    Planned out;
    out.at = now;
    out.plan = scheduler_.plan(now);
    for (const SequenceId id : out.plan.preempted) speculation_.forget(size_t(id - 1));
    std::vector<SimulatedSpeculation::Entry> entries;
    int64_t prompt_rows = 0;
    for (size_t i = 0; i < out.plan.rows.size(); ++i) {
      const StepPlan::Rows& rows = out.plan.rows[i];
      const Sequence& sequence = *scheduler_.find(rows.sequence);
      if (meter_.answer(size_t(rows.sequence - 1)).begun < 0) {
        meter_.begin(size_t(rows.sequence - 1), now);
        meter_.answer(size_t(rows.sequence - 1)).cached_tokens = std::min(sequence.hit_tokens, sequence.prompt_tokens);
      }
      if (rows.first < sequence.prefill_tokens) {
        prompt_rows += rows.count;
        continue;
      }
      out.decode.push_back(i);
      entries.push_back(entry_of(rows, sequence.in_flight_steps > 1, true));
      if (!entries.back().ahead)
        entries.back().bound = std::min(rows.drafts, speculation_.drafts_of(entries.back().answer));
    }
    if (prompt_rows > options_.limits.step_rows) return broken(std::to_string(prompt_rows) + " prompt rows in a step");
    if (int(scheduler_.running()) > options_.limits.sequences || out.plan.rows.size() > scheduler_.running()) {
      return broken(std::to_string(out.plan.rows.size()) + " entries in a step");
    }
    out.mixed = prompt_rows > 0;
    out.decision = speculation_.decide(entries, out.mixed);
    report_.most_waiting = std::max(report_.most_waiting, int(scheduler_.waiting()));
    report_.most_running = std::max(report_.most_running, int(scheduler_.running()));
    return out;
  }

  double jitter() const {
    if (options_.jitter <= 0) return 1;
    const auto words = philox(options_.seed, {uint32_t(report_.steps), uint32_t(uint64_t(report_.steps) >> 32), 2, 0});
    const auto uniform = [](uint32_t word) { return (double(word) + 0.5) / 4294967296.0; };
    const double normal =
        std::sqrt(-2 * std::log(uniform(words[0]))) * std::cos(2 * std::numbers::pi * uniform(words[1]));
    return std::exp(options_.jitter * normal - options_.jitter * options_.jitter / 2);
  }

  /// The device's part: tokens of every entry, and the seconds that it takes. The host has committed all steps before.
  double execute(Planned& step) {
    SimulatedStep work;
    std::vector<SimulatedSpeculation::Entry> entries;
    for (const size_t i : step.decode) {
      const Sequence* sequence = scheduler_.find(step.plan.rows[i].sequence);
      // It may have ended or been preempted since it was planned.
      const bool alive = sequence != nullptr && sequence->in_flight_steps > 0;
      entries.push_back(entry_of(step.plan.rows[i], false, alive));
    }
    speculation_.split(step.decision, entries, rows_);
    step.result.begin.assign(1, 0);
    step.result.proposed.clear();
    size_t decode = 0;
    int drafting = 0;
    for (size_t i = 0; i < step.plan.rows.size(); ++i) {
      const StepPlan::Rows& rows = step.plan.rows[i];
      const size_t number = size_t(rows.sequence - 1);
      const Answer& answer = answers_[number];
      const Sequence* sequence = scheduler_.find(rows.sequence);
      const bool alive = sequence != nullptr && sequence->in_flight_steps > 0;
      const bool decodes = decode < step.decode.size() && step.decode[decode] == i;
      int count = 0;  // tokens
      if (decodes) {
        const SimulatedSpeculation::Entry& entry = entries[decode];
        const int ran = rows_[decode++];
        add_decode(work, options_.machine, rows.first, ran);
        if (alive) {
          const int accepted = speculation_.accepted(entry, ran);
          count = 1 + accepted;
          note_round(ran - 1, accepted);
        } else {
          report_.wasted_rows += ran;
        }
      } else {
        add_prompt(work, options_.machine, rows.first, rows.count, rows.decoder_count);
        if (!alive) report_.wasted_rows += rows.count;
        count = alive && rows.first + rows.count >= sequence->prefill_tokens ? 1 : 0;
      }
      const int64_t before = alive ? sequence->generated() : 0;
      const int64_t left = alive ? answer.output_tokens - before : 0;
      if (count > left) count = int(left);
      for (int64_t j = before; j < before + count; ++j) {
        // The model ends its answer by itself when the request would allow more.
        const bool stops = j + 1 == answer.output_tokens && answer.output_tokens < sequence->max_tokens;
        step.result.tokens.push_back(stops ? kEos : stream_token(answer.output_seed, j, kVocabulary));
      }
      step.result.begin.push_back(int32_t(step.result.tokens.size()));
      step.result.proposed.push_back(0);
      if (count == 0 || !alive) continue;
      const bool goes_on = before + count < answer.output_tokens;
      // Without drafts there are none to verify in the step after (draft_guard.h); a last prompt piece always drafts.
      const bool drafts = goes_on && (step.decision.policy != DraftPolicy::none || !decodes);
      const int next = drafts ? drafts_for(sequence->max_tokens - before - count, answer.drafts) : 0;
      drafting += next > 0;
      speculation_.draft(entry_of(rows, false, true), before + count, next);
      step.result.proposed.back() = next;
    }
    return take_time(step, work, drafting);
  }

  double take_time(const Planned& step, const SimulatedStep& work, int drafting) {
    const double noise = jitter();
    const double forward = forward_ms(options_.machine, work) * noise;
    const double other = draft_ms(options_.machine, drafting) * noise + options_.machine.step_ms;
    ++report_.steps;
    report_.decode_rows += work.decode_rows;
    report_.prompt_rows += work.prompt_rows;
    if (work.sequences > 0) sequences_sum_ += work.sequences, ++sequences_steps_;
    int ran = int(work.decode_rows);
    if (!step.mixed) {
      ++report_.decode_steps;
      ran = padded_rows(options_.machine, ran);
      report_.padding_rows += ran - work.decode_rows;
    } else {
      ++(step.decode.empty() ? report_.prompt_steps : report_.mixed_steps);
    }
    last_ = {work.sequences, ran, forward, other};
    return (forward + other) / 1000;
  }

  void note_round(int verified, int accepted) {
    if (verified <= 0) return;
    ++report_.rounds;
    for (size_t k = 0; k < size_t(verified); ++k) {
      ++report_.offered[k];
      if (int(k) < accepted) ++report_.accepted[k];
    }
  }

  /// The host takes the results of a step that ended at `now`, `seconds` after the one before.
  Result<void> commit(const Planned& step, double now, double seconds) {
    const auto outcomes = scheduler_.commit(step.plan, step.result);
    int64_t tokens = 0;
    for (const Outcome& outcome : outcomes) {
      if (outcome.kept == 0) continue;
      const size_t answer = size_t(outcome.sequence - 1);
      tokens += outcome.kept;
      meter_.tokens(answer, now, outcome.kept);
      if (outcome.finish) {
        speculation_.forget(answer);
        finished_.push_back({answer, *outcome.finish});
      } else if (const Sequence* sequence = scheduler_.find(outcome.sequence)) {
        meter_.answer(answer).preemptions = sequence->preemptions;
      }
    }
    for (const auto& [answer, reason] : finished_) end(answer, now, reason);
    finished_.clear();
    if (!step.mixed && !step.decode.empty()) {
      speculation_.record(step.decision, last_.sequences, last_.rows, last_.forward, last_.other, tokens, seconds);
    }
    measure(step, seconds);
    report_.longest_step_seconds = std::max(report_.longest_step_seconds, seconds);
    if (options_.verify_every > 0 && report_.steps % options_.verify_every == 0) {
      if (auto state = scheduler_.verify(); !state) return broken(to_string(state.error()));
    }
    if (options_.keep_going && report_.steps % 64 == 0 && !options_.keep_going(ended_)) {
      return Error{ErrorCode::interrupted, "the simulation was stopped", "bench engine --simulate", ""};
    }
    return {};
  }

  // What decode protection divides by.
  void measure(const Planned& step, double seconds) {
    int64_t prompt_rows = 0;
    for (size_t i = 0, decode = 0; i < step.plan.rows.size(); ++i) {
      if (decode < step.decode.size() && step.decode[decode] == i) {
        ++decode;
      } else {
        prompt_rows += step.plan.rows[i].count;
      }
    }
    cost_.observe(prompt_rows, seconds);
    scheduler_.set_cost(cost_);
  }

  // ------------------------------------------------------------------------------------------------------------ the
  // clock

  /// Time of what comes next when nothing can run; an error when nothing comes and work is left.
  Result<double> next_event() const {
    if (const auto next = clock_.next()) return *next;
    return broken("nothing runs, nothing comes, and " + std::to_string(scheduler_.waiting()) + " requests wait");
  }

  Result<void> run_synchronous() {
    double now = 0;
    while (clock_.next() || !scheduler_.idle()) {
      happen(now);
      auto step = plan(now);
      if (!step) return step.error();
      if (step->plan.empty()) {
        if (scheduler_.idle() && !clock_.next()) break;
        const auto next = next_event();
        if (!next) return next.error();
        now = std::max(now, *next);
        continue;
      }
      const double device = execute(*step);
      const double seconds = device + host_ms(options_.machine, int(step->plan.rows.size())) / 1000;
      report_.busy_seconds += device;
      now += seconds;
      if (auto done = commit(*step, now, seconds); !done) return done;
    }
    return {};
  }

  Result<void> run_ahead() {
    double now = 0;  // when the host begins to plan
    while (clock_.next() || !scheduler_.idle()) {
      happen(now);
      auto first = plan(now);
      if (!first) return first.error();
      if (first->plan.empty()) {
        if (scheduler_.idle() && !clock_.next()) break;
        const auto next = next_event();
        if (!next) return next.error();
        now = std::max(now, *next);
        continue;
      }
      // The device idles: the first step of a run waits for its plan.
      Planned running = std::move(*first);
      double begins = now + host_ms(options_.machine, int(running.plan.rows.size())) / 1000;
      double ended_before = now;
      for (;;) {
        now = begins;  // the host has launched it, and plans the next one now
        happen(now);
        auto next = plan(now);
        if (!next) return next.error();
        const double device = execute(running);
        report_.busy_seconds += device;
        const double ends = begins + device;
        if (auto done = commit(running, ends, ends - ended_before); !done) return done;
        ended_before = ends;
        if (next->plan.empty()) {
          now = ends;
          break;
        }
        begins = std::max(ends, now + host_ms(options_.machine, int(next->plan.rows.size())) / 1000);
        running = std::move(*next);
      }
    }
    return {};
  }

  // -------------------------------------------------------------------------------------------------------------- the
  // end

  Result<void> check_end() const {
    if (auto state = scheduler_.verify(); !state) return broken(to_string(state.error()));
    const CachePools& pools = scheduler_.pools();
    if (pools.blocks.available() != pools.blocks.capacity()) {
      return broken(std::to_string(pools.blocks.capacity() - pools.blocks.available()) + " blocks were lost");
    }
    if (pools.slots.free_count() != pools.slots.capacity()) return broken("a state slot was lost");
    if (ended_ != int64_t(answers_.size())) return broken("an answer never ended");
    return {};
  }

  SimulationReport make_report() {
    report_.policy = name_of(options_.policy);
    report_.load = meter_.report();
    report_.replayed_rows = scheduler_.counts().replayed_rows;
    report_.passed_over = scheduler_.counts().passed_over;
    report_.preempted = scheduler_.counts().preempted;
    report_.mean_sequences = sequences_steps_ > 0 ? double(sequences_sum_) / double(sequences_steps_) : 0;
    report_.blocks = options_.limits.blocks;
    if (options_.keep_answers) report_.answers = meter_.answers();
    return std::move(report_);
  }

  struct RequestState {
    SequenceId first = 0;  // of its answers
    int open = 0;          // answers
  };
  struct LastStep {
    int sequences = 0, rows = 0;
    double forward = 0, other = 0;
  };

  std::span<const TraceRequest> trace_;
  const SimulationOptions& options_;
  TraceClock clock_;
  std::vector<RequestState> requests_;
  Scheduler scheduler_;
  SimulatedSpeculation speculation_;
  LoadMeter meter_;
  SimulationReport report_;
  std::vector<Answer> answers_;
  std::unordered_map<std::string, int32_t> accounts_;
  std::vector<std::pair<size_t, FinishReason>> finished_;
  std::vector<int> rows_;
  PieceCost cost_;
  LastStep last_;
  int64_t ended_ = 0, sequences_sum_ = 0, sequences_steps_ = 0;
};

// Blocks that all requests together can take at once: more are never touched.
int64_t blocks_of(std::span<const TraceRequest> trace, int64_t context) {
  int64_t blocks = 1;
  for (const TraceRequest& one : trace) {
    const int64_t wanted = one.max_tokens == 0 ? one.output_tokens : one.max_tokens;
    blocks += one.answers * blocks_for(std::min(one.prompt_tokens + wanted, context));
  }
  return blocks;
}

}  // namespace

double SimulationReport::tokens_per_round() const {
  int64_t all = 0;
  for (const int64_t one : accepted) all += one;
  return rounds > 0 ? 1 + double(all) / double(rounds) : 1;
}

double SimulationReport::verified_per_round() const {
  int64_t all = 0;
  for (const int64_t one : offered) all += one;
  return rounds > 0 ? double(all) / double(rounds) : 0;
}

Result<SimulationReport> simulate(std::span<const TraceRequest> trace, const SimulationOptions& options) {
  const auto wrong = [](const std::string& what, const char* where, const std::string& remedy) {
    return Error{ErrorCode::usage, what, where, remedy};
  };
  SimulationOptions resolved = options;
  SchedulerLimits& limits = resolved.limits;
  if (limits.context < 2)
    return wrong("context of " + std::to_string(limits.context) + " tokens", "--context",
                 "a prompt and an answer need at least 2");
  if (limits.step_rows < 1) return wrong("no prompt rows a step", "--step-rows", "use at least 1");
  if (limits.sequences == 0) limits.sequences = options.machine.sequences;
  if (options.drafts < 0 || options.drafts > kMaxDrafts) {
    return wrong(std::to_string(options.drafts) + " drafts a round", "--drafts",
                 "use 0 to " + std::to_string(kMaxDrafts));
  }
  if (limits.blocks == 0) limits.blocks = options.machine.blocks;
  const int64_t useful = blocks_of(trace, limits.context);
  if (limits.blocks == 0 || limits.blocks > useful) limits.blocks = int32_t(std::min<int64_t>(useful, 1 << 30));
  if (trace.empty()) return wrong("the trace has no request", "--trace", "write one JSON object a line");
  return Simulation(trace, resolved).run();
}

}  // namespace fathom
