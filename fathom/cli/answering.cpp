#include "fathom/cli/answering.h"

#include <sys/resource.h>

#include <algorithm>
#include <random>

#include "fathom/base/check.h"
#include "fathom/cli/terminal.h"

namespace fathom::cli {
namespace {

Json logprob_json(int32_t id, float logprob, const Tokenizer* tokenizer) {
  Json entry = Json::object();
  entry.set("id", Json::of(int64_t(id)));
  if (tokenizer != nullptr) entry.set("token", Json::of(tokenizer->token_text(id)));
  entry.set("logprob", Json::of(double(logprob)));
  return entry;
}

Json logprobs_json(const std::vector<TokenLogprob>& tokens, const Tokenizer* tokenizer) {
  Json list = Json::array();
  for (const TokenLogprob& token : tokens) {
    Json entry = logprob_json(token.id, token.logprob, tokenizer);
    Json top = Json::array();
    for (const auto& [id, logprob] : token.top) top.push(logprob_json(id, logprob, tokenizer));
    entry.set("top", std::move(top));
    if (token.nextn_logprob != kNoDraft) entry.set("nextn_logprob", Json::of(double(token.nextn_logprob)));
    if (token.sum_smaller_probs >= 0) entry.set("sum_smaller_probs", Json::of(double(token.sum_smaller_probs)));
    list.push(std::move(entry));
  }
  return list;
}

Json counts_json(const std::array<int64_t, kMaxDrafts>& counts, const std::array<int64_t, kMaxDrafts>& offered) {
  Json list = Json::array();
  for (size_t i = 0; i < counts.size() && offered[i] > 0; ++i) list.push(Json::of(counts[i]));
  return list;
}

double decode_rate(const Usage& usage) {
  const double seconds = usage.total_seconds - usage.first_token_seconds;
  return usage.generated_tokens > 1 && seconds > 0 ? double(usage.generated_tokens - 1) / seconds : 0;
}

}  // namespace

Json to_json(const Answer& answer, int64_t index, const Tokenizer* tokenizer) {
  Json tree = Json::object();
  tree.set("index", Json::of(index));
  tree.set("text", Json::of(answer.text));
  tree.set("reasoning", Json::of(answer.reasoning));
  Json calls = Json::array();
  for (const recipe::ToolCall& call : answer.calls) {
    Json entry = Json::object();
    entry.set("id", Json::of(call.id));
    entry.set("name", Json::of(call.name));
    entry.set("arguments", Json::of(call.arguments));
    calls.push(std::move(entry));
  }
  tree.set("tool_calls", std::move(calls));
  Json ids = Json::array();
  for (int32_t id : answer.ids) ids.push(Json::of(int64_t(id)));
  tree.set("token_ids", std::move(ids));
  tree.set("finish_reason", Json::of(answer.finish_reason));
  const Usage& u = answer.usage;
  Json usage = Json::object();
  usage.set("prompt_tokens", Json::of(u.prompt_tokens));
  usage.set("cached_tokens", Json::of(u.cached_tokens));
  usage.set("replayed_tokens", Json::of(u.replayed_tokens));
  usage.set("completion_tokens", Json::of(u.generated_tokens));
  usage.set("reasoning_tokens", Json::of(answer.reasoning_tokens));
  usage.set("total_tokens", Json::of(u.prompt_tokens + u.generated_tokens));
  usage.set("encoder_rows", Json::of(u.encoder_rows));
  usage.set("decoder_rows", Json::of(u.decoder_rows));
  usage.set("rounds", Json::of(u.rounds));
  usage.set("drafts_offered", counts_json(u.offered, u.offered));
  usage.set("drafts_accepted", counts_json(u.accepted, u.offered));
  tree.set("usage", std::move(usage));
  Json timing = Json::object();
  timing.set("queue_seconds", Json::of(u.queue_seconds));
  timing.set("first_token_seconds", Json::of(u.first_token_seconds));
  timing.set("total_seconds", Json::of(u.total_seconds));
  timing.set("tokens_per_second", Json::of(decode_rate(u)));
  tree.set("timing", std::move(timing));
  if (!answer.logprobs.empty()) tree.set("logprobs", logprobs_json(answer.logprobs, tokenizer));
  if (!answer.prompt_logprobs.empty()) tree.set("prompt_logprobs", logprobs_json(answer.prompt_logprobs, tokenizer));
  return tree;
}

Error for_people(Error error) {
  if (error.where == "ids") error.where = "the prompt";
  const std::string engine = "open the engine with a longer context";
  if (const size_t at = error.remedy.find(engine); at != std::string::npos) {
    error.remedy.replace(at, engine.size(), "pass a larger --context");
  }
  return error;
}

recipe::Parsing plain_parsing(std::vector<std::string> stops) {
  recipe::Parsing parsing;
  parsing.tool_calls = false;
  parsing.stage = recipe::ThinkingStage::content_continuation;
  parsing.stop_sequences = std::move(stops);
  // Without a spelling it is never found, so nothing is taken out of the text.
  parsing.spellings[recipe::SpecialToken::thinking_end].clear();
  return parsing;
}

Answering::Answering(Engine& engine, const Tokenizer* tokenizer) : engine_(engine), tokenizer_(tokenizer) {
  std::random_device random;
  seed_ = uint64_t(random()) << 32 | random();
}

Result<void> Answering::ask(int64_t key, Question question) {
  const Sampling& sampling = question.request.sampling;
  std::vector<int32_t> end_ids = sampling.stop_ids;
  if (!sampling.ignore_eos || question.request.constraint) end_ids.push_back(engine_.config().eos_token_id);
  const auto prompt_tokens = int64_t(question.request.ids.size());
  const int answers = question.request.answers;
  check(answers == 1 || !question.body, "a body holds one answer");
  const auto id = engine_.submit(std::move(question.request));
  if (!id) return id.error();
  for (int answer = 0; answer < answers; ++answer) {
    Open open;
    open.key = key + answer;
    open.end_ids = end_ids;
    if (tokenizer_ != nullptr) open.reader.emplace(question.parsing, tokenizer_, seed_++);
    open.body = std::move(question.body);
    if (open.body) {
      const recipe::AnswerStart start{{prompt_tokens, 0}, "", false};
      std::visit([&](auto& body) { body.start(start); }, *open.body);
    }
    open_.emplace(*id + RequestId(answer), std::move(open));
  }
  return {};
}

void Answering::cancel(int64_t key) {
  for (const auto& [id, open] : open_) {
    if (open.key == key) engine_.cancel(id);
  }
}

void Answering::deliver(Open& open, const OnDelta& on_delta) {
  using Kind = recipe::Delta::Kind;
  Answer& answer = open.answer;
  for (const recipe::Delta& delta : open.reader->deltas()) {
    switch (delta.kind) {
      case Kind::reasoning: answer.reasoning += delta.text; break;
      case Kind::content: answer.text += delta.text; break;
      case Kind::call:
        answer.calls.push_back({std::string(delta.id), std::string(delta.text), ""});
        open.whole.push_back(false);
        break;
      case Kind::arguments: answer.calls[size_t(delta.call)].arguments += delta.text; break;
      case Kind::call_end: open.whole[size_t(delta.call)] = true; break;
      case Kind::call_dropped: break;
    }
    if (open.body) std::visit([&](auto& body) { body.write(delta); }, *open.body);
    on_delta(open.key, delta);
  }
}

void Answering::take(Open& open, const Event& event, const OnDelta& on_delta) {
  Answer& answer = open.answer;
  answer.prompt_logprobs.insert(answer.prompt_logprobs.end(), event.prompt_logprobs.begin(),
                                event.prompt_logprobs.end());
  if (open.stopped || event.ids.empty()) return;
  answer.ids.insert(answer.ids.end(), event.ids.begin(), event.ids.end());
  answer.logprobs.insert(answer.logprobs.end(), event.logprobs.begin(), event.logprobs.end());
  if (!open.reader) return;
  std::span<const int32_t> ids = event.ids;
  // The token that ended the answer is no text, but it was generated and is counted.
  const bool ended = event.finish && event.finish->reason == FinishReason::stop &&
                     std::count(open.end_ids.begin(), open.end_ids.end(), ids.back()) > 0;
  if (ended) ids = ids.first(ids.size() - 1);
  open.logprobs.clear();
  if (open.body) {
    for (size_t i = 0; i < ids.size() && !event.logprobs.empty(); ++i) {
      const TokenLogprob& from = event.logprobs[i];
      open.logprobs.push_back({from.id, from.logprob, from.top});
    }
  }
  const Result<void> fed = open.reader->tokens(ids, open.logprobs);
  check(fed.ok(), "an open answer takes tokens");
  deliver(open, on_delta);
  if (open.reader->finished()) {
    open.stopped = true;
    const auto kept = size_t(open.reader->usage().completion_tokens);
    answer.ids.resize(kept);
    if (!answer.logprobs.empty()) answer.logprobs.resize(kept);
  } else if (ended) {
    const Result<void> counted = open.reader->text("", 1);
    check(counted.ok(), "an open answer takes the end token");
  }
}

void Answering::finish(Open& open, const Finish& end, const OnDelta& on_delta, const OnAnswer& on_answer) {
  Answer& answer = open.answer;
  answer.usage = end.usage;
  answer.error = end.error;
  answer.finish_reason = name_of(end.reason);
  if (open.stopped) answer.usage.generated_tokens = int64_t(answer.ids.size());
  if (open.reader) {
    if (!open.stopped) {
      const bool stop = end.reason == FinishReason::stop;
      const Result<void> ended =
          open.reader->finish(stop ? recipe::BackendFinish::stop : recipe::BackendFinish::length);
      check(ended.ok(), "an open answer can be finished");
      deliver(open, on_delta);
    }
    recipe::AnswerEnd read = open.reader->end();
    answer.reasoning_tokens = read.usage.reasoning_tokens;
    if (open.stopped || end.reason == FinishReason::stop) {
      answer.finish_reason = read.reason == recipe::FinishReason::tool_calls ? "tool_calls" : "stop";
    }
    if (open.body) {
      read.usage.prompt_tokens = end.usage.prompt_tokens;
      read.usage.cached_tokens = end.usage.cached_tokens;
      std::visit([&](auto& body) { body.finish(read); }, *open.body);
      recipe::append_body(answer.body, *open.body);
    }
  }
  size_t whole = 0;
  for (size_t i = 0; i < answer.calls.size(); ++i) {
    if (open.whole[i] && whole++ != i) answer.calls[whole - 1] = std::move(answer.calls[i]);
  }
  answer.calls.resize(whole);
  on_answer(open.key, std::move(answer));
}

void Answering::step(const OnDelta& on_delta, const OnAnswer& on_answer) {
  for (const Event& event : engine_.step()) {
    const auto found = open_.find(event.request);
    if (found == open_.end()) continue;
    Open& open = found->second;
    const bool was_stopped = open.stopped;
    take(open, event, on_delta);
    if (open.stopped && !was_stopped && !event.finish) engine_.cancel(event.request);
    if (event.finish) {
      finish(open, *event.finish, on_delta, on_answer);
      open_.erase(found);
    }
  }
}

void add(Usage& total, const Usage& one) {
  total.prompt_tokens += one.prompt_tokens;
  total.cached_tokens += one.cached_tokens;
  total.replayed_tokens += one.replayed_tokens;
  total.generated_tokens += one.generated_tokens;
  total.encoder_rows += one.encoder_rows;
  total.decoder_rows += one.decoder_rows;
  total.rounds += one.rounds;
  for (size_t i = 0; i < total.offered.size(); ++i) {
    total.offered[i] += one.offered[i];
    total.accepted[i] += one.accepted[i];
  }
  total.queue_seconds = std::max(total.queue_seconds, one.queue_seconds);
  total.first_token_seconds = std::max(total.first_token_seconds, one.first_token_seconds);
  total.total_seconds = std::max(total.total_seconds, one.total_seconds);
}

int64_t peak_memory_bytes() {
  rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  return int64_t(usage.ru_maxrss) * 1024;
}

std::string stats_text(const Usage& u, int64_t answers) {
  const int64_t fresh = u.prompt_tokens - u.cached_tokens;
  std::string out = "prompt         " + with_commas(u.prompt_tokens) + " tokens: " + with_commas(u.cached_tokens) +
                    " cached, " + with_commas(u.replayed_tokens) + " replayed, " + with_commas(fresh) + " new; " +
                    with_commas(u.encoder_rows) + " rows in the encoder, " + with_commas(u.decoder_rows) +
                    " in the decoder\n";
  out += "first token    " + brief(1000 * u.first_token_seconds) + " ms";
  if (answers > 1) out += " at worst";
  if (answers == 1 && u.first_token_seconds > 0) {
    out += ", " + brief(double(fresh) / u.first_token_seconds) + " prompt tokens/s";
  }
  out += (answers > 1 ? "\nanswers        " : "\nanswer         ") + with_commas(u.generated_tokens) + " tokens";
  if (const double rate = decode_rate(u); answers == 1 && rate > 0) out += ", " + brief(rate) + " tokens/s";
  out += "\n";
  int64_t offered = 0, accepted = 0;
  std::string positions;
  for (size_t i = 0; i < u.offered.size() && u.offered[i] > 0; ++i) {
    offered += u.offered[i];
    accepted += u.accepted[i];
    positions += (i > 0 ? ", " : "") + with_commas(u.accepted[i]) + "/" + with_commas(u.offered[i]);
  }
  if (offered > 0) {
    out += "drafts         " + with_commas(accepted) + " of " + with_commas(offered) + " accepted in " +
           with_commas(u.rounds) + " rounds (" + fixed(double(accepted) / double(std::max<int64_t>(u.rounds, 1)), 2) +
           " a round); by position: " + positions + "\n";
  } else {
    out += "drafts         none\n";
  }
  return out + "peak memory    " + size_text(peak_memory_bytes()) + "\n";
}

std::string stats_text(const StreamStatistics& s) {
  std::string out = "experts        " + with_commas(s.uses) + " used, ";
  const std::string where = s.over_bus ? "on the device" : "in memory";
  if (s.uses > 0) out += fixed(100 * double(s.hits) / double(s.uses), 1) + " % of them " + where + "; ";
  if (s.over_bus) {
    return out + size_text(s.loaded_bytes) + " over the bus, " + with_commas(s.guesses) + " of them ahead of a gate, " +
           with_commas(s.guesses_used) + " rightly; " + size_text(s.resident_bytes) + " of at most " +
           size_text(s.limit_bytes) + " there\n";
  }
  return out + size_text(s.loaded_bytes) + " brought, " + size_text(s.disk_bytes) + " of it by the disk; waited " +
         duration_text(s.wait_seconds) + "; " + size_text(s.resident_bytes) + " of at most " +
         size_text(s.limit_bytes) + " in memory\n";
}

}  // namespace fathom::cli
