#include "fathom/cli/engine_load.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <unordered_map>

#include "fathom/engine/trace_clock.h"

namespace fathom::cli {
namespace {

using Clock = std::chrono::steady_clock;

class Load {
 public:
  Load(Engine& engine, std::span<const TraceRequest> trace)
      : engine_(engine), trace_(trace), clock_(trace), open_(trace.size(), 0), running_(trace.size()) {
    for (const TraceRequest& one : trace) {
      for (const TextPart& part : one.prefix) repeated_.try_emplace(part.seed);
    }
  }

  Result<EngineLoad> run(const std::function<bool(int64_t)>& keep_going) {
    while (clock_.next() || !answers_.empty()) {
      if (keep_going && !keep_going(ended_)) {
        return Error{ErrorCode::interrupted, "the run was stopped", "fathom bench engine", ""};
      }
      while (const auto due = clock_.take(now())) {
        if (due->kind == TraceClock::Due::Kind::arrival) {
          arrive(due->request, due->time);
        } else {
          for (const RequestId id : running_[due->request]) engine_.cancel(id);
        }
      }
      if (answers_.empty()) {
        if (const auto next = clock_.next()) {
          const double wait = std::min(*next - now(), 0.05);  // so that Ctrl-C is seen
          if (wait > 0) std::this_thread::sleep_for(std::chrono::duration<double>(wait));
        }
        continue;
      }
      for (const Event& event : engine_.step()) take(event);
    }
    out_.load = meter_.report();
    return std::move(out_);
  }

 private:
  struct Answer {
    size_t record = 0, request = 0;
    uint64_t seed = 0;  // of its text in later prompts
  };
  double now() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }
  int32_t vocabulary() const { return int32_t(engine_.config().vocab_size); }

  std::vector<int32_t> prompt_of(const TraceRequest& one) const {
    std::vector<int32_t> ids;
    ids.reserve(size_t(one.prompt_tokens));
    for (const TextPart& part : one.prefix) {
      const size_t end = ids.size() + size_t(part.tokens);
      if (const auto said = repeated_.find(part.seed); said != repeated_.end()) {
        const auto count = std::min(said->second.size(), size_t(part.tokens));
        ids.insert(ids.end(), said->second.begin(), said->second.begin() + ptrdiff_t(count));
      }
      while (ids.size() < end) {
        ids.push_back(stream_token(part.seed, part.tokens - int64_t(end - ids.size()), vocabulary()));
      }
    }
    append_stream(one.seed, one.prompt_tokens - int64_t(ids.size()), vocabulary(), ids);
    return ids;
  }

  void arrive(size_t number, double time) {
    const TraceRequest& one = trace_[number];
    open_[number] = one.answers;
    for (int i = 0; i < one.answers; ++i) {
      const size_t record = meter_.arrive(time, one.prompt_tokens, one.tenant);
      AnswerRecord& answer = meter_.answer(record);
      answer.first_token_target = float(one.first_token_seconds.value_or(0));
      answer.between_tokens_target = float(one.between_tokens_seconds.value_or(0));
      Request request;
      request.ids = prompt_of(one);
      request.sampling.max_tokens = one.output_tokens;
      request.sampling.ignore_eos = true;
      request.sampling.seed = output_seed_of(one, i);
      request.priority = one.priority;
      request.tenant = one.tenant;
      request.first_token_seconds = one.first_token_seconds;
      request.between_tokens_seconds = one.between_tokens_seconds;
      const auto id = engine_.submit(std::move(request));
      if (!id) {  // longer than the context
        end(record, number, FinishReason::rejected);
        continue;
      }
      answers_.emplace(*id, Answer{record, number, output_seed_of(one, i)});
      running_[number].push_back(*id);
    }
  }

  void take(const Event& event) {
    const auto at = answers_.find(event.request);
    if (at == answers_.end()) return;
    const Answer answer = at->second;
    if (!event.ids.empty()) {
      meter_.tokens(answer.record, now(), int64_t(event.ids.size()));
      if (const auto text = repeated_.find(answer.seed); text != repeated_.end()) {
        text->second.insert(text->second.end(), event.ids.begin(), event.ids.end());
      }
    }
    if (!event.finish) return;
    const Usage& usage = event.finish->usage;
    AnswerRecord& record = meter_.answer(answer.record);
    // A request that was cancelled while it waited never began.
    if (usage.encoder_rows > 0) meter_.begin(answer.record, record.arrived + usage.queue_seconds);
    record.cached_tokens = usage.cached_tokens;
    record.preemptions = int(usage.preemptions);
    out_.rounds += usage.rounds;
    for (size_t k = 0; k < usage.offered.size(); ++k) {
      out_.offered += usage.offered[k];
      out_.accepted += usage.accepted[k];
    }
    answers_.erase(at);
    end(answer.record, answer.request, event.finish->reason);
  }

  void end(size_t record, size_t request, FinishReason reason) {
    meter_.end(record, now(), reason);
    ++ended_;
    if (--open_[request] == 0) {
      running_[request].clear();
      clock_.ended(request, now());
    }
  }

  Engine& engine_;
  std::span<const TraceRequest> trace_;
  TraceClock clock_;
  Clock::time_point begin_ = Clock::now();
  LoadMeter meter_;
  EngineLoad out_;
  std::vector<int> open_;                                        // answers of each request that have not ended
  std::vector<std::vector<RequestId>> running_;                  // of each request
  std::unordered_map<RequestId, Answer> answers_;                // that run or wait
  std::unordered_map<uint64_t, std::vector<int32_t>> repeated_;  // what was answered and stands in later prompts
  int64_t ended_ = 0;
};

}  // namespace

Result<EngineLoad> run_load(Engine& engine, std::span<const TraceRequest> trace,
                            const std::function<bool(int64_t ended)>& keep_going) {
  return Load(engine, trace).run(keep_going);
}

}  // namespace fathom::cli
