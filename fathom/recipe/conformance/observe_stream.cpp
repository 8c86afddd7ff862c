// Rows about answers: chunks fed to an AnswerStream.
#include "fathom/recipe/conformance/observe.h"

namespace fathom::recipe {
namespace {

/// One answer under observation: the stream, its body, and what came out chunk by chunk.
class Answer {
 public:
  Answer(const CodecRequest& request, const Json& row, const Tokenizer* tokenizer)
      : body_(body(request, row, tokenizer)),
        stream_(writer(request, row, tokenizer), request.converted.parsing, tokenizer, 1) {
    stream_.collect_into(&body_);
  }

  /// Feeds one chunk of a row. Errors: those of the stream.
  Result<void> feed(const Json& chunk) {
    const size_t first = out_.events.size();
    const auto done = push(chunk);
    if (done) note(first);
    return done;
  }
  Result<void> end() {
    const size_t first = out_.events.size();
    const auto done = stream_.end(out_);
    if (done) note(first);
    return done;
  }
  bool finished() const { return stream_.finished(); }
  /// A list of events for each chunk.
  Json take_events() { return std::move(events_); }
  Json body() const {
    std::string text;
    append_body(text, body_);
    return parsed(text);
  }

 private:
  static AnswerIdentity identity(const CodecRequest& request) { return {"ID", request.model, 0}; }
  /// A row may give thinking blocks a signature of their own (Messages).
  static MessagesForm signed_form(const CodecRequest& request, const Json& signature) {
    MessagesForm form;
    form.identity = identity(request);
    form.policy = request.converted.parsing.policy;
    form.thinking = request.converted.conversation.thinking;
    form.signature = signature.text;
    return form;
  }
  static AnswerWriter writer(const CodecRequest& request, const Json& row, const Tokenizer* tokenizer) {
    const Json* signature = row.find("signature");
    if (signature != nullptr) return MessagesWriter(signed_form(request, *signature));
    return make_writer(request, identity(request), tokenizer);
  }
  static AnswerBody body(const CodecRequest& request, const Json& row, const Tokenizer* tokenizer) {
    const Json* signature = row.find("signature");
    if (signature != nullptr) return MessagesBody(signed_form(request, *signature));
    return make_body(request, identity(request), tokenizer);
  }

  Result<void> push(const Json& chunk) {
    if (const Json* ready = chunk.find("ready")) {
      const auto count = [&](const char* key) { return ready->find(key)->as_int64().value_or(0); };
      const Json* print = ready->find("system_fingerprint");
      std::optional<std::string_view> fingerprint;
      if (print != nullptr && print->is_string()) fingerprint = print->text;
      return stream_.ready({count("prompt_tokens"), count("prompt_cache_hit_tokens")}, fingerprint, out_);
    }
    if (const Json* text = chunk.find("text")) {
      const Json* count = chunk.find("token_count");
      return stream_.text(text->text, count != nullptr ? count->as_int64().value_or(0) : 0, out_);
    }
    if (const Json* ids = chunk.find("token_ids")) return push_tokens(*ids, chunk.find("logprobs"));
    const Json* finish = chunk.find("finish");
    const std::string reason = finish != nullptr ? finish->text : "";
    return stream_.finish(reason == "length"           ? BackendFinish::length
                          : reason == "content_filter" ? BackendFinish::content_filter
                                                       : BackendFinish::stop,
                          out_);
  }

  Result<void> push_tokens(const Json& ids, const Json* logprobs) {
    std::vector<int32_t> tokens;
    for (const Json& id : ids.items) tokens.push_back(int32_t(id.as_int64().value_or(-1)));
    std::vector<TokenLogprob> list;
    for (size_t i = 0; logprobs != nullptr && i < logprobs->items.size(); ++i) {
      const Json& one = logprobs->items[i];
      TokenLogprob entry{i < tokens.size() ? tokens[i] : 0, float(one.items.at(0).as_double().value_or(0)), {}};
      for (const Json& top : one.items.at(1).items) {
        entry.top.emplace_back(int32_t(top.items.at(0).as_int64().value_or(0)),
                               float(top.items.at(1).as_double().value_or(0)));
      }
      list.push_back(std::move(entry));
    }
    return stream_.tokens(tokens, list, out_);
  }

  void note(size_t first) {
    Json list = Json::array();
    for (size_t i = first; i < out_.events.size(); ++i) {
      Json event = Json::object();
      event.set("event", out_.events[i].name.empty() ? Json() : Json::of(out_.events[i].name));
      event.set("data", parsed(out_.json(out_.events[i])));
      list.push(std::move(event));
    }
    events_.push(std::move(list));
  }

  AnswerBody body_;
  AnswerStream stream_;
  WireEvents out_;
  Json events_ = Json::array();
};

Json chunk_of_text(std::string_view text) {
  Json chunk = Json::object();
  chunk.set("text", Json::of(text));
  chunk.set("token_count", Json::of(0));
  return chunk;
}

/// [channel, text] pairs of Chat chunks, as stream_splits.jsonl has them.
Json channels(const Json& events) {
  Json out = Json::array();
  const auto add = [&](const std::string& channel, const std::string& text) {
    Json pair = Json::array();
    pair.push(Json::of(channel));
    pair.push(Json::of(text));
    out.push(std::move(pair));
  };
  const auto text_at = [](const Json& value, const char* key) {
    const Json* found = value.find(key);
    return found != nullptr && found->is_string() ? &found->text : nullptr;
  };
  for (const Json& list : events.items) {
    for (const Json& event : list.items) {
      const Json& choice = event.find("data")->find("choices")->items.at(0);
      const Json& delta = *choice.find("delta");
      if (delta.find("role") != nullptr) continue;
      if (const std::string* reason = text_at(choice, "finish_reason")) {
        add("finish", *reason);
        continue;
      }
      if (const std::string* text = text_at(delta, "reasoning_content")) add("reasoning", *text);
      if (const std::string* text = text_at(delta, "content")) add("content", *text);
      if (const Json* calls = delta.find("tool_calls")) {
        const Json& call = calls->items.at(0);
        const std::string number = call.find("index")->text;
        const Json& function = *call.find("function");
        if (const std::string* name = text_at(function, "name"))
          add("name" + number, *name);
        else
          add("args" + number, *text_at(function, "arguments"));
      }
    }
  }
  return out;
}

struct Observed {
  Json deltas, body;
};

/// `pieces` as chunks between a fixed ready and a fixed finish.
Result<Observed> observe_pieces(const CodecRequest& request, const Json& row, const std::vector<std::string>& pieces) {
  Answer answer(request, row, nullptr);
  const Json ready =
      parsed(R"({"ready":{"prompt_tokens":20,"prompt_cache_hit_tokens":8,"system_fingerprint":"fp-1"}})");
  if (auto fed = answer.feed(ready); !fed) return fed.error();
  for (const std::string& piece : pieces) {
    if (answer.finished()) break;
    if (auto fed = answer.feed(chunk_of_text(piece)); !fed) return fed.error();
  }
  if (!answer.finished()) {
    if (auto fed = answer.feed(parsed(R"({"finish":"stop"})")); !fed) return fed.error();
  }
  if (auto ended = answer.end(); !ended) return ended.error();
  Observed out{channels(answer.take_events()), answer.body()};
  normalise_answer(out.body);
  return out;
}

std::vector<std::string> code_points(std::string_view text) {
  std::vector<std::string> out;
  for (char c : text) (uint8_t(c) & 0xC0) == 0x80 && !out.empty() ? out.back() += c : out.emplace_back(1, c);
  return out;
}

}  // namespace

Result<Json> observe_stream(const Json& row, const RowCheck& check) {
  const auto options = read_row_options(row.find("options"), check.policy);
  if (!options) return options.error();
  const Tokenizer* tokenizer = nullptr;
  if (row.find("tokenizer") != nullptr) {
    const auto found = row_tokenizer(row, check);
    if (!found) return found.error();
    tokenizer = *found;
  }
  const auto request = read_row_request(row, *options);
  if (!request) return refusal_as_json(request.error(), row);
  Answer answer(*request, row, tokenizer);
  Json failure;
  int64_t number = 0;
  for (const Json& chunk : row.find("chunks")->items) {
    if (answer.finished()) break;  // a stop sequence: the caller stops feeding
    if (auto fed = answer.feed(chunk); !fed) {
      failure.set("chunk", Json::of(number));
      failure.set("message", Json::of(fed.error().message));
      break;
    }
    ++number;
  }
  const bool failed = !failure.is_null();
  if (!failed) {
    if (auto ended = answer.end(); !ended) failure = Json::of(ended.error().message);
  }
  Json out = Json::object();
  out.set("events", answer.take_events());
  if (failed)
    out.set("error", failure);
  else
    out.set("final", answer.body());
  out.set("sse_done_data", request->api == Api::chat_completions ? Json::of(ChatCompletionsWriter::kDone) : Json());
  normalise_answer(out);
  return out;
}

Result<Json> observe_splits(const Json& row, const RowCheck& check) {
  const auto options = read_row_options(row.find("options"), check.policy);
  if (!options) return options.error();
  const auto request = read_row_request(row, *options);
  if (!request) return refusal_as_json(request.error(), row);
  const std::string& text = row.find("text")->text;
  const std::vector<std::string> characters = code_points(text);
  const auto whole = observe_pieces(*request, row, {text});
  if (!whole) return whole.error();
  const auto single = observe_pieces(*request, row, characters);
  if (!single) return single.error();
  Json others = Json::array(), splits = Json::array();
  size_t at = 0;
  for (size_t i = 1; i < characters.size(); ++i) {
    at += characters[i - 1].size();
    auto cut = observe_pieces(*request, row, {text.substr(0, at), text.substr(at)});
    if (!cut) return cut.error();
    Json entry = Json::object();
    entry.set("split", Json::of(int64_t(i)));
    entry.set("deltas", std::move(cut->deltas));
    splits.push(std::move(entry));
    if (cut->body != whole->body) others.push(Json::of(int64_t(i)));
  }
  Json out = Json::object();
  out.set("final", whole->body);
  out.set("splits_with_other_final", std::move(others));
  out.set("whole_deltas", whole->deltas);
  out.set("char_deltas", single->deltas);
  out.set("char_final_same", Json::of(single->body == whole->body));
  out.set("per_split", std::move(splits));
  return out;
}

}  // namespace fathom::recipe
