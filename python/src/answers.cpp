// StreamProcessor, the events that it gives out, and the responses that gather them.
//
// A response is not read back from JSON: an event carries the steps of the answer that it stands for, and accumulate()
// feeds them to the body writer of the API. The steps of one push go with its last event (the opening with the first).
#include "python/src/answers.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <random>
#include <utility>
#include <variant>
#include <vector>

#include "fathom/recipe/answer_stream.h"
#include "fathom/recipe/json_text.h"
#include "python/src/chunks.h"
#include "python/src/tokenizer.h"

namespace fathom::python {
namespace {

using recipe::AnswerBody;
using recipe::AnswerStream;
using recipe::Api;
using recipe::Delta;
using recipe::PromptUsage;

// -- steps of an answer
// -------------------------------------------------------------------------------------------------

struct Start {
  PromptUsage prompt;
  std::optional<std::string> fingerprint;
};
/// A Delta that owns its texts.
struct Part {
  Delta::Kind kind = Delta::Kind::content;
  int call = 0;
  std::string text, id;
  std::vector<recipe::TokenLogprob> logprobs;
};
struct End {
  recipe::FinishReason reason = recipe::FinishReason::stop;
  std::optional<std::string> stop_sequence;
  recipe::Usage usage;
};
using Step = std::variant<Start, Part, End>;

struct EventData {
  std::shared_ptr<const AnswerForm> form;
  std::string json;
  std::string_view name;  // a literal
  std::vector<Step> steps;
};

/// ChatCompletionChunk, ResponsesStreamEvent, MessagesStreamEvent: an event until it is accumulated.
template <Api kApi>
struct Event {
  std::optional<EventData> data;

  const EventData& get() const {
    if (!data) raise_consumed("protocol chunk");
    return *data;
  }
};

// -- processor
// ----------------------------------------------------------------------------------------------------------

/// Seeds make call ids: no two answers may share one.
uint64_t random_seed() {
  std::random_device device;
  return uint64_t(device()) << 32 | device();
}

class Processor {
 public:
  Processor(AnswerForm form, const recipe::Parsing& parsing, const PyTokenizer* tokenizer)
      : form_(complete(std::move(form), parsing.policy, tokenizer)),
        stream_(make_writer(*form_), parsing, form_->tokenizer.get(), random_seed()) {}

  nb::list push(const PyChunk& chunk) {
    Start start;
    if (const auto* ready = std::get_if<ReadyChunk>(&chunk.chunk)) start = {ready->prompt, ready->fingerprint};
    return events(std::visit([this](const auto& one) { return feed(one); }, chunk.chunk), std::move(start));
  }

  nb::list finish() {
    if (stream_.finished()) return {};
    return events(stream_.end(out_), {});
  }

  bool finished() const { return stream_.finished(); }
  void close() { stream_.close(); }

 private:
  static std::shared_ptr<const AnswerForm> complete(AnswerForm form, recipe::Policy policy,
                                                    const PyTokenizer* tokenizer) {
    form.policy = policy;
    if (tokenizer != nullptr) form.tokenizer = tokenizer->tokenizer;
    return std::make_shared<const AnswerForm>(std::move(form));
  }

  Result<void> feed(const ReadyChunk& chunk) { return stream_.ready(chunk.prompt, chunk.fingerprint, out_); }
  Result<void> feed(const TextChunk& chunk) { return stream_.text(chunk.content, chunk.token_count, out_); }
  Result<void> feed(const TokensChunk& chunk) { return stream_.tokens(chunk.ids, chunk.logprobs, out_); }
  Result<void> feed(recipe::BackendFinish reason) { return stream_.finish(reason, out_); }

  /// What was written becomes objects; nothing is given out of a chunk that failed.
  nb::list events(const Result<void>& fed, Start start) {
    const recipe::WireEvents out = std::exchange(out_, {});
    if (!fed) raise_runtime_error(fed.error().message);
    const size_t number = out.events.size();
    std::vector<Step> opening;
    if (number > 0 && !std::exchange(started_, true)) opening.emplace_back(std::move(start));
    for (const Delta& delta : stream_.reader().deltas()) {
      pending_.emplace_back(part_of(delta));
    }
    if (stream_.finished()) pending_.emplace_back(end());
    nb::list list;
    for (size_t i = 0; i < number; ++i) {
      EventData data{form_, std::string(out.json(out.events[i])), out.events[i].name, {}};
      if (i == 0) data.steps = std::move(opening);
      if (i + 1 == number) {
        for (Step& step : pending_) data.steps.push_back(std::move(step));
        pending_.clear();
      }
      switch (form_->api) {
        case Api::chat_completions: list.append(Event<Api::chat_completions>{std::move(data)}); break;
        case Api::responses: list.append(Event<Api::responses>{std::move(data)}); break;
        case Api::messages: list.append(Event<Api::messages>{std::move(data)}); break;
      }
    }
    return list;
  }

  static Part part_of(const Delta& delta) {
    Part part;
    part.kind = delta.kind;
    part.call = delta.call;
    part.text = delta.text;
    part.id = delta.id;
    part.logprobs.assign(delta.logprobs.begin(), delta.logprobs.end());
    return part;
  }

  End end() const {
    const recipe::AnswerEnd end = stream_.reader().end();
    End out{end.reason, {}, end.usage};
    if (end.stop_sequence) out.stop_sequence = std::string(*end.stop_sequence);
    return out;
  }

  std::shared_ptr<const AnswerForm> form_;
  AnswerStream stream_;
  recipe::WireEvents out_;
  bool started_ = false;
  std::vector<Step> pending_;  // of a push that wrote no event
};

template <Api kApi>
auto constructor() {
  return [](Processor* self, Generator<kApi>& generator, const recipe::Parsing& options, const PyTokenizer* tokenizer) {
    new (self) Processor(generator.take(), options, tokenizer);
  };
}

void bind_processor(nb::module_& module) {
  nb::class_<Processor> processor(module, "StreamProcessor");
  const auto arguments = [&](auto made) {
    processor.def("__init__", made, "generator"_a, "options"_a, "tokenizer"_a = nb::none());
  };
  arguments(constructor<Api::chat_completions>());
  arguments(constructor<Api::responses>());
  arguments(constructor<Api::messages>());
  processor.def("push", &Processor::push, "chunk"_a)
      .def("finish", &Processor::finish)
      .def("close", &Processor::close)
      .def_prop_ro("finished", &Processor::finished);
}

// -- responses
// ----------------------------------------------------------------------------------------------------------

/// …Response. The checks of the order of steps keep a program's mistake from being one of the writer's.
template <Api kApi>
class Response {
 public:
  Response(std::string id, std::string model, uint64_t created, uint64_t prompt_tokens, uint64_t cached_tokens)
      : identity_{std::move(id), std::move(model), int64_t(created)},
        prompt_{int64_t(prompt_tokens), int64_t(cached_tokens)} {}

  void accumulate(Event<kApi>& event) {
    const EventData data = event.get();
    event.data.reset();
    if (form_ && form_ != data.form) raise_runtime_error("the chunk is of another answer");
    if (!body_) open(data);
    for (const Step& step : data.steps) std::visit([this](const auto& one) { take(one); }, step);
  }

  nb::str to_json() const {
    std::string out;
    if (body_) {
      std::visit([&](const auto& one) { one.append_to(out); }, *body_);
    } else {
      append_empty(out);
    }
    return nb::str(out.data(), out.size());
  }

 private:
  /// Chat keeps the identity that it was made with, the others take that of the stream.
  void open(const EventData& data) {
    form_ = data.form;
    body_ = make_body(*form_, kApi == Api::chat_completions ? identity_ : form_->identity);
    const bool begins = !data.steps.empty() && std::holds_alternative<Start>(data.steps.front());
    if (!begins) take(Start{prompt_, {}});
  }

  /// Without any chunk there is no form.
  void append_empty(std::string& out) const {
    if (kApi == Api::chat_completions) {
      out += R"({"id":)";
      recipe::append_quoted(out, identity_.id);
      out += R"(,"object":"chat.completion","created":)";
      recipe::append_integer(out, identity_.created);
      out += R"(,"model":)";
      recipe::append_quoted(out, identity_.model);
      out += R"(,"choices":[],"system_fingerprint":null})";
      return;
    }
    AnswerForm form;
    form.api = kApi;
    form.thinking = false;  // nothing is open
    AnswerBody body = make_body(form, identity_);
    if (kApi == Api::messages) {
      std::visit([&](auto& one) { one.start({prompt_, "", false}); }, body);
    }
    std::visit([&](const auto& one) { one.append_to(out); }, body);
  }

  void take(const Start& start) {
    const std::string_view fingerprint = start.fingerprint ? std::string_view(*start.fingerprint) : "";
    std::visit([&](auto& one) { one.start({start.prompt, fingerprint, start.fingerprint.has_value()}); }, *body_);
  }

  void take(const Part& part) {
    if (ended_) raise_runtime_error("the answer has ended");
    const bool announces = part.kind == Delta::Kind::call;
    const bool of_call = part.kind == Delta::Kind::arguments || part.kind == Delta::Kind::call_end ||
                         part.kind == Delta::Kind::call_dropped;
    if (of_call && part.call != call_) raise_runtime_error("a chunk before this one is missing: a call has no name");
    if (announces) call_ = part.call;
    const Delta delta{part.kind, part.call, part.text, part.id, part.logprobs};
    std::visit([&](auto& one) { one.write(delta); }, *body_);
    if (part.kind == Delta::Kind::call_dropped) call_ = -1;
  }

  void take(const End& end) {
    if (std::exchange(ended_, true)) raise_runtime_error("the answer has ended");
    recipe::AnswerEnd out{end.reason, {}, end.usage};
    if (end.stop_sequence) out.stop_sequence = *end.stop_sequence;
    std::visit([&](auto& one) { one.finish(out); }, *body_);
  }

  recipe::AnswerIdentity identity_;
  PromptUsage prompt_;
  std::shared_ptr<const AnswerForm> form_;
  std::optional<AnswerBody> body_;
  int call_ = -1;  // announced last
  bool ended_ = false;
};

template <Api kApi>
void bind_api(nb::module_& module, const char* event_name, const char* response_name) {
  nb::class_<Event<kApi>>(module, event_name).def("to_json", [](const Event<kApi>& self) { return self.get().json; });
  nb::class_<Response<kApi>>(module, response_name)
      .def(nb::init<std::string, std::string, uint64_t, uint64_t, uint64_t>(), "id"_a, "model"_a, "created"_a,
           "prompt_tokens"_a, "prompt_cache_hit_tokens"_a)
      .def("accumulate", &Response<kApi>::accumulate, "chunk"_a)
      .def("to_json", &Response<kApi>::to_json)
      .def_static(
          "sse_event_name",
          [](const Event<kApi>& event) -> std::optional<std::string> {
            const std::string_view name = event.get().name;
            if (name.empty()) return {};
            return std::string(name);
          },
          "chunk"_a)
      .def_static("sse_done_data", []() -> std::optional<std::string> {
        if (kApi != Api::chat_completions) return {};
        return std::string(recipe::ChatCompletionsWriter::kDone);
      });
}

}  // namespace

void bind_answers(nb::module_& module) {
  bind_api<Api::chat_completions>(module, "ChatCompletionChunk", "ChatCompletionResponse");
  bind_api<Api::responses>(module, "ResponsesStreamEvent", "ResponsesResponse");
  bind_api<Api::messages>(module, "MessagesStreamEvent", "MessagesResponse");
  bind_processor(module);
}

}  // namespace fathom::python
