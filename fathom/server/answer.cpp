#include "fathom/server/answer.h"

#include <algorithm>
#include <utility>

#include "fathom/base/check.h"
#include "fathom/net/server_sent_events.h"
#include "fathom/server/receipt.h"

namespace fathom {
namespace {

const char* word_of(recipe::FinishReason reason) {
  switch (reason) {
    case recipe::FinishReason::stop: return "stop";
    case recipe::FinishReason::length: return "length";
    case recipe::FinishReason::content_filter: return "content_filter";
    case recipe::FinishReason::tool_calls: return "tool_calls";
  }
  return "stop";
}

}  // namespace

Answer::Answer(AnswerPlan plan, std::shared_ptr<net::HttpResponder> responder, EngineService& engine,
               const Tokenizer* tokenizer, uint64_t seed)
    : plan_(std::move(plan)),
      responder_(std::move(responder)),
      engine_(engine),
      reader_(std::move(plan_.parsing), tokenizer, seed),
      last_write_(plan_.begun) {
  if (!plan_.body) return;
  const recipe::AnswerStart opening{{plan_.prompt_tokens, 0}, plan_.fingerprint, !plan_.fingerprint.empty()};
  std::visit([&](auto& body) { body.start(opening); }, *plan_.body);
}

void Answer::on_event(const Event& event) {
  if (!given_up_ && !stopped_) feed(event);
  if (!event.finish) {
    if (stopped_ && !given_up_) engine_.cancel(event.request);
    flush();
    if (!given_up_ && plan_.writer && header_sent_ && responder_->gone()) give_up(event.request);
    return;
  }
  end(*event.finish);
}

void Answer::feed(const Event& event) {
  if (event.cached_tokens) cached_tokens_ = *event.cached_tokens;
  if (event.ids.empty()) return;
  std::span<const int32_t> ids = event.ids;
  // The token that ended the answer is no text, but it was generated and is counted.
  const bool ended = event.finish && event.finish->reason == FinishReason::stop &&
                     std::find(plan_.end_ids.begin(), plan_.end_ids.end(), ids.back()) != plan_.end_ids.end();
  if (ended) ids = ids.first(ids.size() - 1);
  logprobs_.clear();
  for (size_t i = 0; i < ids.size() && !event.logprobs.empty(); ++i) {
    const TokenLogprob& from = event.logprobs[i];
    logprobs_.push_back({from.id, from.logprob, from.top});
  }
  const Result<void> fed = reader_.tokens(ids, logprobs_);
  check(fed.ok(), "an open answer takes tokens");
  if (plan_.writer) {
    begin_stream();
    if (reader_.fed()) start();
  }
  deliver();
  if (reader_.finished()) {
    stopped_ = true;
  } else if (ended) {
    const Result<void> counted = reader_.text("", 1);
    check(counted.ok(), "an open answer takes the end token");
    deliver();
  }
}

void Answer::deliver() {
  for (const recipe::Delta& delta : reader_.deltas()) {
    if (plan_.writer) {
      start();
      std::visit([&](auto& writer) { writer.write(delta, wire_); }, *plan_.writer);
    }
    if (plan_.body) std::visit([&](auto& body) { body.write(delta); }, *plan_.body);
  }
}

void Answer::begin_stream() {
  if (std::exchange(header_sent_, true)) return;
  net::HttpFields fields = plan_.fields;
  if (plan_.writer) {
    for (const net::HttpField& field : net::event_stream_fields().fields) fields.add(field.name, field.value);
  } else {
    fields.add("Content-Type", "application/json");
  }
  responder_->begin_stream(200, std::move(fields));
  last_write_ = Clock::now();
  if (plan_.writer && plan_.starts_early) start();
}

void Answer::start() {
  if (std::exchange(started_, true)) return;
  const recipe::AnswerStart opening{
      {plan_.prompt_tokens, cached_tokens_}, plan_.fingerprint, !plan_.fingerprint.empty()};
  std::visit([&](auto& writer) { writer.start(opening, wire_); }, *plan_.writer);
}

void Answer::flush() {
  if (wire_.events.empty()) return;
  frames_.clear();
  recipe::append_sse(frames_, wire_);
  wire_.clear();
  responder_->write(frames_);
  last_write_ = Clock::now();
}

// Nobody reads: the engine need not go on.
void Answer::give_up(Ticket ticket) {
  given_up_ = true;
  engine_.cancel(ticket);
}

void Answer::on_tick(Ticket ticket) {
  if (given_up_ || stopped_) return;
  const auto now = Clock::now();
  if (plan_.writer && !header_sent_ && now - plan_.begun >= plan_.header_delay) begin_stream();
  if (now - last_write_ >= plan_.silence) give_life();
  flush();
  if (responder_->gone()) give_up(ticket);
}

void Answer::give_life() {
  begin_stream();
  last_write_ = Clock::now();
  if (plan_.writer) {
    std::visit([&](auto& writer) { writer.keep_alive(wire_); }, *plan_.writer);
  } else {
    responder_->write(" ");
  }
}

void Answer::end(const Finish& finish) {
  outcome_.usage = finish.usage;
  outcome_.finish_reason = name_of(finish.reason);
  outcome_.calls_dropped = reader_.calls_dropped();
  if (responder_->gone()) given_up_ = true;
  if (plan_.on_complete) plan_.on_complete(reader_.usage().completion_tokens);
  if (given_up_) {
    outcome_.status = kClientGone;
  } else if (stopped_ || finish.reason == FinishReason::stop || finish.reason == FinishReason::length) {
    end_well(finish);
  } else {
    const Error shutting_down{ErrorCode::interrupted, "the request was cancelled", "", ""};
    end_badly(finish.error ? *finish.error : shutting_down);
  }
  outcome_.told = reader_.usage();
  outcome_.told.prompt_tokens = plan_.prompt_tokens;
  outcome_.told.cached_tokens = finish.usage.cached_tokens;
  outcome_.arguments_repaired = reader_.arguments_repaired();
  responder_.reset();
  if (plan_.on_end) plan_.on_end(std::move(outcome_));
}

void Answer::end_well(const Finish& finish) {
  if (!stopped_) {
    const bool stop = finish.reason == FinishReason::stop;
    const Result<void> ended = reader_.finish(stop ? recipe::BackendFinish::stop : recipe::BackendFinish::length);
    check(ended.ok(), "an open answer can be finished");
    if (plan_.writer) start();
    deliver();
  }
  recipe::AnswerEnd end = reader_.end();
  end.usage.prompt_tokens = plan_.prompt_tokens;
  end.usage.cached_tokens = finish.usage.cached_tokens;
  outcome_.finish_reason = word_of(end.reason);
  outcome_.calls_dropped = reader_.calls_dropped();
  if (plan_.body) {
    std::visit(
        [&](auto& body) {
          body.finish(end);
          body.append_to(outcome_.body);
        },
        *plan_.body);
    if (plan_.keep) plan_.keep(outcome_.body);
  }
  if (plan_.writer) {
    begin_stream();
    start();
    std::visit([&](auto& writer) { writer.finish(end, wire_); }, *plan_.writer);
    if (plan_.receipt) {
      add_receipt(wire_.text, finish.usage);
      wire_.events.back().end = wire_.text.size();
    }
    flush();
    if (plan_.done_frame) responder_->write("data: [DONE]\n\n");
    responder_->end();
    return;
  }
  std::string sent = outcome_.body;
  if (plan_.receipt) add_receipt(sent, finish.usage);
  if (header_sent_) {
    responder_->write(sent);
    responder_->end();
    return;
  }
  plan_.fields.add("Content-Type", "application/json");
  responder_->respond(200, std::move(plan_.fields), std::move(sent));
}

void Answer::end_badly(const Error& error) {
  outcome_.error = error;
  const int wait = plan_.retry_after_seconds ? plan_.retry_after_seconds() : 1;
  Refusal refusal = refusal_of(told_to_client(error), wait);
  // The engine's failures while it runs are not the fault of how much is asked.
  if (refusal.status == 429) refusal.status = 503;
  outcome_.status = refusal.status;
  if (!header_sent_) {
    net::HttpAnswer answer = error_answer(refusal, plan_.dialect, plan_.policy, plan_.request_id);
    for (const net::HttpField& field : plan_.fields.fields) answer.fields.add(field.name, field.value);
    responder_->respond(std::move(answer));
    return;
  }
  if (plan_.writer) {
    std::visit([&](auto& writer) { writer.fail(refusal.error, wire_); }, *plan_.writer);
    flush();
    responder_->end();
    return;
  }
  responder_->write(error_answer(refusal, plan_.dialect, plan_.policy, plan_.request_id).body);
  responder_->abort();
}

RequestSink sink_of(std::shared_ptr<Answer> answer) {
  return {[answer](const Event& event) { answer->on_event(event); },
          [answer](Ticket ticket) { answer->on_tick(ticket); }};
}

}  // namespace fathom
