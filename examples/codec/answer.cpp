// examples/codec/answer.cpp
// One request, answered: the codec around an engine of your own. Reads a request body from stdin, writes the answer to
// stdout: server-sent events or one body, as the request asks. docs/guides/codec.md walks through it.
//
//   example_codec TOKENIZER.json chat|responses|messages [answers|waits|fails] < request.json
#include <algorithm>
#include <ctime>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "fathom/recipe/codec.h"
#include "fathom/recipe/image_layout.h"
#include "fathom/tokenizer/tokenizer.h"

using namespace fathom;
using namespace fathom::recipe;

namespace {

constexpr int64_t kContext = 1 << 20;  // tokens that the model's context holds

/// Stands for your engine: says the same to everybody, four tokens at a time.
class Engine {
 public:
  struct Step {
    enum class Kind { tokens, waiting, stop, length, failed };
    Kind kind;
    std::vector<int32_t> ids;
  };

  Engine(const CodecRequest& request, const Tokenizer& tokenizer, int64_t max_tokens, std::string how)
      : max_tokens_(max_tokens), how_(std::move(how)) {
    const Conversation& conversation = request.converted.conversation;
    std::string text = conversation.thinking ? "Two and two.</think>" : "";
    if (conversation.tools_active()) {
      text += "<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"" + conversation.tools[0].name +
              "\">\n<｜DSML｜ parameter name=\"n\" string=\"false\">4</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n"
              "</｜DSML｜ calls>";
    } else {
      text += "The sum is 4.";
    }
    ids_ = tokenizer.encode(text);
  }

  Step next() {
    if (at_ == 0 && how_ == "waits" && !waited_) {
      waited_ = true;
      return {Step::Kind::waiting, {}};
    }
    if (at_ > 0 && how_ == "fails") return {Step::Kind::failed, {}};
    if (at_ == int64_t(ids_.size())) return {Step::Kind::stop, {}};
    if (at_ == max_tokens_) return {Step::Kind::length, {}};
    const int64_t end = std::min({at_ + 4, int64_t(ids_.size()), max_tokens_});
    Step step{Step::Kind::tokens, {ids_.begin() + at_, ids_.begin() + end}};
    at_ = end;
    return step;
  }

 private:
  std::vector<int32_t> ids_;
  int64_t max_tokens_, at_ = 0;
  std::string how_;
  bool waited_ = false;
};

/// Refused: what the client gets, with status_of(error) as HTTP status.
int refuse(const Error& error, Api api, const ConversionOptions& options) {
  std::cout << error_body(error, api, options.policy) << "\n";
  return 1;
}

/// Width and height of an image. Yours: from its first bytes.
std::pair<int64_t, int64_t> pixel_size_of(const ImageSource&) { return {640, 480}; }

/// The ids that the engine gets: each image takes as many places as its layout has tokens.
Result<std::vector<int32_t>> prompt_ids(const Prompt& prompt, const Tokenizer& tokenizer,
                                        const ConversionOptions& options) {
  auto ids = encode(prompt, tokenizer);
  if (!ids || prompt.images.empty()) return ids;
  std::vector<int> tokens;
  for (const ImageSource& image : prompt.images) {
    const auto [width, height] = pixel_size_of(image);
    const auto layout = lay_out_image(width, height, image.detail);
    if (!layout) return layout.error();
    tokens.push_back(layout->tokens);
  }
  const auto image_id = tokenizer.added_id_of(options.spellings[SpecialToken::image]);
  return expand_images(*ids, image_id.value_or(-1), tokens);
}

/// Feeds the stream until it or the engine ends; sends what comes out. An error has been sent as the API's event.
Result<void> answer(Engine& engine, AnswerStream& stream, bool send) {
  WireEvents events;
  std::string frames;
  while (!stream.finished()) {
    const Engine::Step step = engine.next();
    Result<void> fed;
    switch (step.kind) {
      case Engine::Step::Kind::tokens: fed = stream.tokens(step.ids, {}, events); break;
      case Engine::Step::Kind::waiting: stream.keep_alive(events); break;  // after ten seconds without an event
      case Engine::Step::Kind::stop: fed = stream.finish(BackendFinish::stop, events); break;
      case Engine::Step::Kind::length: fed = stream.finish(BackendFinish::length, events); break;
      case Engine::Step::Kind::failed: fed = Error{ErrorCode::failed, "the device was lost", "", "try again"}; break;
    }
    if (!fed) stream.fail(fed.error(), events);
    append_sse(frames, events);
    if (send) std::cout << frames << std::flush;
    frames.clear();
    events.clear();
    if (!fed) return fed;
  }
  return {};
}

int run(const std::string& tokenizer_file, Api api, const std::string& how) {
  const auto tokenizer = Tokenizer::open(tokenizer_file);
  if (!tokenizer) {
    std::cerr << to_string(tokenizer.error()) << "\n";
    return 3;
  }
  const std::string body(std::istreambuf_iterator<char>(std::cin), {});

  // 1. Request -> prompt ids and settings.
  ConversionOptions options;  // policy, default thinking, bounds, model names
  const auto request = read_request(api, std::string_view(body), options);
  if (!request) return refuse(request.error(), api, options);
  const Prompt prompt = render(request->converted, options);
  const auto ids = prompt_ids(prompt, *tokenizer, options);
  if (!ids) return refuse(ids.error(), api, options);
  const auto max_tokens = resolve_max_tokens(request->converted, int64_t(ids->size()), kContext);
  if (!max_tokens) return refuse(max_tokens.error(), api, options);

  // 2. The engine gets *ids, *max_tokens and these.
  const Inference& settings = request->converted.inference;
  std::cerr << ids->size() << " prompt tokens, at most " << *max_tokens << " new ones, temperature "
            << settings.temperature;
  if (settings.constraint) std::cerr << ", constraint " << grammar::name_of(settings.constraint->kind);
  std::cerr << "\n";
  Engine engine(*request, *tokenizer, *max_tokens, how);

  // 3. Tokens -> answer.
  const AnswerIdentity identity{"answer-1", request->model, std::time(nullptr)};
  AnswerStream stream(make_writer(*request, identity, &*tokenizer), request->converted.parsing, &*tokenizer, 1);
  AnswerBody complete = make_body(*request, identity, &*tokenizer);
  const bool streamed = request->converted.stream;
  if (!streamed) stream.collect_into(&complete);
  WireEvents opening;
  std::string text;
  if (auto ready = stream.ready({.prompt_tokens = int64_t(ids->size())}, {}, opening); !ready) return 1;
  if (streamed) append_sse(text, opening);
  std::cout << text;
  if (const auto answered = answer(engine, stream, streamed); !answered) {
    return streamed ? 1 : refuse(answered.error(), api, options);  // here with status 500
  }
  text = streamed && api == Api::chat_completions ? "data: [DONE]\n\n" : "";
  if (!streamed) append_body(text, complete);
  std::cout << text << "\n";
  return 0;
}

}  // namespace

int main(int count, char** words) {
  const auto api = count > 2 ? api_of(words[2]) : std::nullopt;
  if (!api) {
    std::cerr << "usage: example_codec TOKENIZER.json chat|responses|messages [answers|waits|fails] < request.json\n";
    return 2;
  }
  return run(words[1], *api, count > 3 ? words[3] : "answers");
}
