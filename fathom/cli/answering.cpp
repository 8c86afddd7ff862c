#include "fathom/cli/answering.h"

#include <sys/resource.h>

#include <algorithm>

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
  for (const ToolCall& call : answer.calls) {
    Json entry = Json::object();
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

Result<void> Answering::ask(int64_t key, Question question) {
  const auto id = engine_.submit(question.request);
  if (!id) return id.error();
  Open open;
  open.key = key;
  open.splitter = AnswerSplitter(question.start, question.tools);
  open.question = std::move(question);
  open_.emplace(*id, std::move(open));
  return {};
}

void Answering::cancel(int64_t key) {
  for (const auto& [id, open] : open_) {
    if (open.key == key) engine_.cancel(id);
  }
}

void Answering::show(Open& open, const AnswerPiece& piece, const OnPiece& on_piece) {
  using Channel = AnswerPiece::Channel;
  if (piece.text.empty()) return;
  switch (piece.channel) {
    case Channel::reasoning: open.answer.reasoning += piece.text; break;
    case Channel::text: open.answer.text += piece.text; break;
    case Channel::calls: open.calls += piece.text; break;
  }
  on_piece(open.key, piece);
}

void Answering::take(Open& open, const Event& event, const OnPiece& on_piece) {
  using Channel = AnswerPiece::Channel;
  Answer& answer = open.answer;
  answer.prompt_logprobs.insert(answer.prompt_logprobs.end(), event.prompt_logprobs.begin(),
                                event.prompt_logprobs.end());
  const Sampling& sampling = open.question.request.sampling;
  for (size_t i = 0; i < event.ids.size() && !open.stopped; ++i) {
    const int32_t id = event.ids[i];
    answer.ids.push_back(id);
    if (i < event.logprobs.size()) answer.logprobs.push_back(event.logprobs[i]);
    // The token that ended the answer is no text.
    const bool last = event.finish && event.finish->reason == FinishReason::stop && i + 1 == event.ids.size();
    const bool ends = (id == engine_.config().eos_token_id && !sampling.ignore_eos) ||
                      std::count(sampling.stop_ids.begin(), sampling.stop_ids.end(), id) > 0;
    if (tokenizer_ == nullptr || (last && ends)) continue;
    for (AnswerPiece& piece : open.splitter.push(open.utf8.push(tokenizer_->bytes_of(id)))) {
      if (piece.channel != Channel::text || open.question.stops.empty()) {
        show(open, piece, on_piece);
        continue;
      }
      // A stop text may be spread over tokens: hold back what may be its beginning.
      open.held += piece.text;
      size_t found = std::string::npos, keep = 0;
      for (const std::string& stop : open.question.stops) {
        found = std::min(found, open.held.find(stop));
        for (size_t n = std::min(stop.size() - 1, open.held.size()); n > keep; --n) {
          if (stop.compare(0, n, open.held, open.held.size() - n, n) == 0) keep = n;
        }
      }
      const size_t shown = found != std::string::npos ? found : open.held.size() - keep;
      show(open, {Channel::text, open.held.substr(0, shown)}, on_piece);
      open.held.erase(0, shown);
      if (found != std::string::npos) {
        open.stopped = true;
        open.held.clear();
        break;
      }
    }
  }
}

void Answering::finish(Open& open, const Finish& end, const OnPiece& on_piece, const OnAnswer& on_answer) {
  Answer& answer = open.answer;
  if (!open.stopped) {
    for (AnswerPiece& piece : open.splitter.finish()) {
      if (piece.channel == AnswerPiece::Channel::text) piece.text = std::exchange(open.held, {}) + piece.text;
      show(open, piece, on_piece);
    }
    show(open, {AnswerPiece::Channel::text, open.held}, on_piece);
  }
  answer.calls = parse_calls(open.calls);
  answer.usage = end.usage;
  answer.error = end.error;
  answer.finish_reason = name_of(end.reason);
  if (open.stopped) answer.finish_reason = name_of(FinishReason::stop);
  if (answer.finish_reason == name_of(FinishReason::stop) && !answer.calls.empty()) answer.finish_reason = "tool_calls";
  on_answer(open.key, std::move(answer));
}

void Answering::step(const OnPiece& on_piece, const OnAnswer& on_answer) {
  for (const Event& event : engine_.step()) {
    const auto found = open_.find(event.request);
    if (found == open_.end()) continue;
    Open& open = found->second;
    const bool was_stopped = open.stopped;
    take(open, event, on_piece);
    if (open.stopped && !was_stopped && !event.finish) engine_.cancel(event.request);
    if (event.finish) {
      finish(open, *event.finish, on_piece, on_answer);
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

}  // namespace fathom::cli
