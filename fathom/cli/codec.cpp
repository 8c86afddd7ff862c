// fathom/cli/codec.cpp
// `fathom codec`: the token codec by itself, without a model (design/cli.md 5).
#include "fathom/cli/codec.h"

#include <unistd.h>

#include <chrono>
#include <memory>
#include <sstream>

#include "fathom/cli/loaded_model.h"
#include "fathom/cli/option_value.h"
#include "fathom/cli/program.h"
#include "fathom/cli/terminal.h"
#include "fathom/cli/text_input.h"
#include "fathom/recipe/describe.h"

namespace fathom::cli {
namespace {

using recipe::Api;

Json pairs(const std::vector<SpecialRange>& ranges) {
  Json list = Json::array();
  for (const SpecialRange& range : ranges) {
    Json pair = Json::array();
    pair.push(Json::of(range.begin));
    pair.push(Json::of(range.end));
    list.push(std::move(pair));
  }
  return list;
}

Json description(const recipe::CodecRequest& request) {
  Json out = recipe::describe(request.converted);
  if (request.api == Api::responses) out.set("namespace_tool_map", recipe::describe(request.namespaces));
  return out;
}

/// Special tokens stand out on a terminal; elsewhere the text is exactly the prompt.
std::string shown_prompt(const recipe::Prompt& prompt) {
  if (!colours_on_stdout()) return prompt.text;
  std::string out;
  size_t at = 0;
  for (const SpecialRange& range : prompt.special) {
    out.append(prompt.text, at, size_t(range.begin) - at);
    out += "\x1b[36m" + prompt.text.substr(size_t(range.begin), size_t(range.end - range.begin)) + "\x1b[0m";
    at = size_t(range.end);
  }
  return out.append(prompt.text, at);
}

/// The refusal as the service would send it, on stdout; exit 1.
Result<int> refuse(const Error& error, Api api, const recipe::ConversionOptions& options) {
  if (auto printed = print(recipe::error_body(error, api, options.policy) + "\n"); !printed) return printed.error();
  return kFailed;
}

Result<int> show(const std::string& text) {
  if (auto printed = print(text); !printed) return printed.error();
  return kDone;
}

Result<std::string> read_input(const CodecSettings& s) {
  if (s.words.size() > 2) {
    return Error{ErrorCode::usage, "more than one file", "fathom codec " + s.verb(), "pass one, or - for stdin"};
  }
  if (s.words.size() == 2) return read_text_input(s.words[1]);
  if (::isatty(STDIN_FILENO) == 1) {
    return Error{ErrorCode::usage, "no request", "fathom codec " + s.verb(), "name a file, or pipe one in"};
  }
  return read_standard_input();
}

/// convert, render and encode: one request, looked at in three depths.
Result<int> run_request(const CodecSettings& s, const Common& common) {
  const auto body = read_input(s);
  if (!body) return body.error();
  const recipe::ConversionOptions options = s.options();
  const Api api = *recipe::api_of(s.api);
  const auto request = recipe::read_request(api, std::string_view(*body), options);
  if (!request) return refuse(request.error(), api, options);
  if (s.verb() == "convert") {
    const Json out = description(*request);
    return show(common.json ? to_string(out) + "\n" : indented(out));
  }
  const recipe::Prompt prompt = recipe::render(request->converted, options);
  if (s.verb() == "render") {
    if (!common.json) return show(shown_prompt(prompt) + "\n");
    Json images = Json::array();
    for (const auto& image : prompt.images) images.push(recipe::describe(image));
    Json out = Json::object();
    out.set("prompt", Json::of(prompt.text));
    out.set("special_ranges_bytes", pairs(prompt.special));
    out.set("image_sources", std::move(images));
    return show(to_string(out) + "\n");
  }
  const auto tokenizer = load_tokenizer(s.tokenizer, common);
  if (!tokenizer) return tokenizer.error();
  const auto ids = recipe::encode(prompt, *tokenizer);
  if (!ids) return ids.error();
  if (common.json) {
    Json list = Json::array();
    for (int32_t id : *ids) list.push(Json::of(int64_t(id)));
    Json out = Json::object();
    out.set("ids", std::move(list));
    out.set("count", Json::of(int64_t(ids->size())));
    return show(to_string(out) + "\n");
  }
  std::string out;
  for (int32_t id : *ids) out += (out.empty() ? "" : " ") + std::to_string(id);
  return show(out + "\n");
}

/// What an answer without --request belongs to: thinking on and any tool.
recipe::CodecRequest any_request(const CodecSettings& s, const recipe::ConversionOptions& options) {
  recipe::CodecRequest request;
  request.api = *recipe::api_of(s.api);
  request.model = options.models.back().first;
  request.converted.parsing.policy = options.policy;
  request.converted.parsing.stage = recipe::ThinkingStage::reasoning_start;
  return request;
}

Result<std::vector<int32_t>> read_ids(const std::string& text) {
  std::vector<int32_t> ids;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const auto values = parse_integers(word);
    if (!values) return Error{ErrorCode::bad_input, "\"" + word + "\" is no token id", "stdin", "pass 6895 1883"};
    for (int64_t id : *values) ids.push_back(int32_t(id));
  }
  return ids;
}

recipe::BackendFinish finish_of(const std::string& word) {
  return word == "length"           ? recipe::BackendFinish::length
         : word == "content_filter" ? recipe::BackendFinish::content_filter
                                    : recipe::BackendFinish::stop;
}

/// Feeds text or ids in pieces. Errors: those of the stream.
Result<void> feed(recipe::AnswerStream& stream, const std::string& text, const CodecSettings& s,
                  recipe::WireEvents& out) {
  const size_t piece = s.chunk > 0 ? size_t(s.chunk) : std::max<size_t>(text.size(), 1);
  if (!s.ids) {
    for (size_t at = 0; at < text.size() && !stream.finished(); at += piece) {
      if (auto fed = stream.text(std::string_view(text).substr(at, piece), 0, out); !fed) return fed;
    }
    return {};
  }
  const auto ids = read_ids(text);
  if (!ids) return ids.error();
  for (size_t at = 0; at < ids->size() && !stream.finished(); at += piece) {
    const std::span<const int32_t> some(ids->data() + at, std::min(piece, ids->size() - at));
    if (auto fed = stream.tokens(some, {}, out); !fed) return fed;
  }
  return {};
}

Result<int> run_parse(const CodecSettings& s, const Common& common) {
  const auto text = read_input(s);
  if (!text) return text.error();
  const recipe::ConversionOptions options = s.options();
  Result<recipe::CodecRequest> request = any_request(s, options);
  if (!s.request.empty()) {
    const auto body = read_text_input(s.request);
    if (!body) return body.error();
    const Api api = *recipe::api_of(s.api);
    request = recipe::read_request(api, std::string_view(*body), options);
    if (!request) return refuse(request.error(), api, options);
  }
  std::optional<Tokenizer> tokenizer;
  if (s.ids) {
    auto loaded = load_tokenizer(s.tokenizer, common);
    if (!loaded) return loaded.error();
    tokenizer.emplace(std::move(*loaded));
  }
  const Tokenizer* names = tokenizer ? &*tokenizer : nullptr;
  const int64_t now =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  const recipe::AnswerIdentity identity{"answer-1", request->model, now};
  recipe::AnswerBody body = recipe::make_body(*request, identity, names);
  recipe::AnswerStream stream(recipe::make_writer(*request, identity, names), request->converted.parsing, names,
                              uint64_t(now));
  stream.collect_into(&body);
  recipe::WireEvents events;
  if (auto begun = stream.ready({}, {}, events); !begun) return begun.error();
  if (auto fed = feed(stream, *text, s, events); !fed) return fed.error();
  if (!stream.finished()) {
    if (auto ended = stream.finish(finish_of(s.finish), events); !ended) return ended.error();
  }
  if (auto ended = stream.end(events); !ended) return ended.error();
  std::string out;
  if (s.stream) {
    recipe::append_sse(out, events);
    if (request->api == Api::chat_completions) out += "data: [DONE]\n\n";
    return show(out);
  }
  recipe::append_body(out, body);
  if (common.json) return show(out + "\n");
  const auto tree = parse_json(out, "the answer");
  return tree ? show(indented(*tree)) : Result<int>(tree.error());
}

Result<int> run_codec(const CodecSettings& s, const Common& common) {
  if (s.words.empty()) {
    return Error{ErrorCode::usage, "no verb", "fathom codec",
                 "pass convert, render, encode, parse, check or fuzz: fathom codec --help"};
  }
  if (s.verb() == "parse") return run_parse(s, common);
  if (s.verb() == "check") return run_codec_check(s, common);
  if (s.verb() == "fuzz") return run_codec_fuzz(s, common);
  return run_request(s, common);
}

void append_indented(std::string& out, const Json& value, size_t depth) {
  constexpr size_t kOneLine = 72;
  const std::string flat = to_string(value);
  const bool nested = !value.items.empty() || !value.fields.empty();
  if (!nested || flat.size() + 2 * depth <= kOneLine) {
    out += flat;
    return;
  }
  const std::string indent(2 * depth + 2, ' ');
  out += value.is_array() ? "[" : "{";
  bool first = true;
  const auto next = [&] {
    if (!std::exchange(first, false)) out += ",";
    out += "\n" + indent;
  };
  for (const Json& item : value.items) {
    next();
    append_indented(out, item, depth + 1);
  }
  for (const auto& [key, member] : value.fields) {
    next();
    append_json_string(out, key);
    out += ": ";
    append_indented(out, member, depth + 1);
  }
  out += "\n" + std::string(2 * depth, ' ') + (value.is_array() ? "]" : "}");
}

}  // namespace

recipe::ConversionOptions CodecSettings::options() const {
  recipe::ConversionOptions out;
  out.policy = *recipe::policy_of(policy);
  return out;
}

std::string indented(const Json& value) {
  std::string out;
  append_indented(out, value, 0);
  return out + "\n";
}

Command codec_command() {
  const auto s = std::make_shared<CodecSettings>();
  const std::string which = "Which rules", answer = "parse: the model's output", test = "check and fuzz";
  return {.name = "codec",
          .summary = "requests to prompt tokens, and model output to answers",
          .example = "fathom codec render --api chat request.json",
          .note = "no model needed",
          .arguments = "VERB [FILE...]",
          .options = {{.name = "api",
                       .value = "API",
                       .help = "form of the request and the answer",
                       .group = which,
                       .target = &s->api,
                       .choices = {"chat", "responses", "messages"}},
                      {.name = "codec-policy",
                       .value = "P",
                       .help = "default, or strict: exactly as deepseek-recipe 0.2.0",
                       .group = which,
                       .target = &s->policy,
                       .choices = {"default", "strict"}},
                      {.name = "tokenizer",
                       .value = "FILE",
                       .help = "a tokenizer.json (encode, parse --ids, check)",
                       .fallback = "that of --model",
                       .group = which,
                       .target = &s->tokenizer},
                      {.name = "request",
                       .value = "FILE",
                       .help = "the request that was answered: its tools, thinking and stop texts",
                       .fallback = "thinking on, any tool",
                       .group = answer,
                       .target = &s->request},
                      {.name = "ids", .help = "the input is token ids", .group = answer, .target = &s->ids},
                      {.name = "stream",
                       .help = "events as a client receives them, instead of one body",
                       .group = answer,
                       .target = &s->stream},
                      {.name = "chunk",
                       .value = "N",
                       .help = "feed N bytes or ids at once",
                       .fallback = "all",
                       .group = answer,
                       .target = &s->chunk,
                       .least = 0},
                      {.name = "finish",
                       .value = "WHY",
                       .help = "why the model stopped",
                       .group = answer,
                       .target = &s->finish,
                       .choices = {"stop", "length", "content_filter"}},
                      {.name = "all", .help = "show every row that differs", .group = test, .target = &s->all},
                      {.name = "expectations",
                       .value = "FILE",
                       .help = "what the policy expects otherwise (tests/conformance)",
                       .fallback = "none",
                       .group = test,
                       .target = &s->expectations},
                      {.name = "count",
                       .value = "N",
                       .help = "random requests, and as many answers",
                       .group = test,
                       .target = &s->count,
                       .least = 1},
                      {.name = "seed",
                       .value = "N",
                       .help = "where the random numbers begin",
                       .group = test,
                       .target = &s->seed,
                       .least = 0},
                      {.name = "print-inputs",
                       .help = "fuzz: print the requests and outputs instead, a JSON object a line",
                       .group = test,
                       .target = &s->print_inputs}},
          .positional = &s->words,
          .words = {"convert", "render", "encode", "parse", "check", "fuzz"},
          .run = [s](const Common& common) { return run_codec(*s, common); }};
}

}  // namespace fathom::cli
