#include "fathom/recipe/conformance/laws.h"

#include <algorithm>

#include "fathom/recipe/codec.h"
#include "fathom/recipe/conformance/check_row.h"
#include "fathom/recipe/conformance/json_difference.h"
#include "fathom/recipe/conformance/random_answer.h"
#include "fathom/recipe/conformance/random_request.h"
#include "fathom/recipe/describe.h"

namespace fathom::recipe {
namespace {

ConversionOptions options_with(Policy policy) {
  ConversionOptions options;
  options.policy = policy;
  return options;
}

std::optional<std::string> bad_range(const Prompt& prompt, const TokenSpellings& spellings) {
  int64_t behind = 0;
  for (const SpecialRange& range : prompt.special) {
    if (range.begin < behind || range.end <= range.begin || range.end > int64_t(prompt.text.size())) return "order";
    const std::string text = prompt.text.substr(size_t(range.begin), size_t(range.end - range.begin));
    if (std::find(spellings.spelling.begin(), spellings.spelling.end(), text) == spellings.spelling.end()) return text;
    behind = range.end;
  }
  return {};
}

struct Answered {
  std::string body;
  Usage usage;
  std::string error;
};

/// Feeds the pieces as text chunks of one token each.
Answered answer(const CodecRequest& request, const std::vector<std::string>& pieces, BackendFinish finish) {
  const AnswerIdentity identity{"ID", request.model, 0};
  AnswerBody body = make_body(request, identity, nullptr);
  AnswerStream stream(make_writer(request, identity, nullptr), request.converted.parsing, nullptr, 1);
  stream.collect_into(&body);
  WireEvents events;
  Result<void> fed = stream.ready({}, {}, events);
  for (const std::string& piece : pieces) {
    if (!fed || stream.finished()) break;
    fed = stream.text(piece, 0, events);
    events.clear();
  }
  if (fed && !stream.finished()) fed = stream.finish(finish, events);
  if (fed) fed = stream.end(events);
  Answered out;
  out.usage = stream.usage();
  if (!fed) out.error = fed.error().message;
  append_body(out.body, body);
  if (auto tree = parse_json(out.body, "")) {
    normalise_answer(*tree);  // completed_at is read from the clock
    out.body = to_string(*tree);
  }
  return out;
}

/// Visits what a body says: its texts, and the arguments of its calls with whether the call is whole.
template <class OnText, class OnArguments>
void visit_body(const Json& body, OnText on_text, OnArguments on_arguments) {
  const auto text_of = [](const Json* value) { return value != nullptr ? value->text : std::string(); };
  if (const Json* choices = body.find("choices")) {
    const Json& message = *choices->items.at(0).find("message");
    on_text(text_of(message.find("content")));
    if (const Json* calls = message.find("tool_calls")) {
      for (const Json& call : calls->items) on_arguments(text_of(call.find("function")->find("arguments")), true);
    }
  }
  if (const Json* output = body.find("output")) {
    for (const Json& item : output->items) {
      if (const Json* content = item.find("content"); content != nullptr && item.find("type")->text == "message") {
        for (const Json& part : content->items) on_text(text_of(part.find("text")));
      }
      if (item.find("type")->text == "function_call") {
        on_arguments(text_of(item.find("arguments")), text_of(item.find("status")) == "completed");
      }
    }
  }
  if (const Json* content = body.find("content")) {
    for (const Json& block : content->items) {
      if (block.find("type")->text == "text") on_text(text_of(block.find("text")));
    }
  }
}

/// The first random request from `seed` on that is accepted.
CodecRequest accepted_request(Api api, uint64_t seed, const ConversionOptions& options) {
  for (uint64_t i = 0;; ++i) {
    if (auto request = read_request(api, random_request(api, seed + (i << 32)), options)) return std::move(*request);
  }
}

/// A text that no marker of an answer is in and that has no line break at its ends, where the markup would take it.
std::string plain_text(Dice& dice) {
  std::string out;
  for (uint32_t i = dice.below(5); i > 0; --i) {
    out += dice.pick_text(
        {"word", " two words", "你好", "👩‍🚀", "\nline", "{\"a\": 1}", "\"q\"", "<b>", "back\\slash"});
  }
  while (out.starts_with('\n')) out.erase(0, 1);
  return out;
}

std::string random_object(Dice& dice) {
  Json out = Json::object();
  for (uint32_t i = dice.below(4); i > 0; --i) {
    Json value;
    switch (dice.below(5)) {
      case 0: value = Json::of(int64_t(dice.below(1000000))); break;
      case 1: value = Json::of(dice.one_in(2)); break;
      case 2: value = Json::of(0.1 * dice.below(100)); break;
      case 3:
        value = Json::array();
        value.push(Json::of(plain_text(dice)));
        break;
      default: value = Json::of(plain_text(dice) + (dice.one_in(3) ? "\n" : "")); break;
    }
    out.set(dice.pick({"city", "days", "名", "q"}), std::move(value));
  }
  return to_string(out);
}

}  // namespace

std::optional<BrokenLaw> try_request(Api api, uint64_t seed, Policy policy) {
  const ConversionOptions options = options_with(policy);
  const std::string body = to_string(random_request(api, seed));
  const auto request = read_request(api, std::string_view(body), options);
  const auto again = read_request(api, std::string_view(body), options);
  if (request.ok() != again.ok()) return BrokenLaw{"converting twice gives the same", body};
  if (!request) {
    const std::string refusal = error_body(request.error(), api, policy);
    const auto tree = parse_json(refusal, "");
    if (!tree || tree->find("error") == nullptr || request.error().message.empty() ||
        status_of(request.error()) != 400) {
      return BrokenLaw{"a refusal is 400 with a JSON body and a message", body + "\n" + refusal};
    }
    return {};
  }
  if (describe(request->converted) != describe(again->converted))
    return BrokenLaw{"converting twice gives the same", body};
  const Prompt prompt = render(request->converted, options);
  if (const auto bad = bad_range(prompt, options.spellings)) {
    return BrokenLaw{"special ranges ascend and spell special tokens", *bad + "\n" + body + "\n" + prompt.text};
  }
  return {};
}

std::optional<BrokenLaw> try_answer(Api api, uint64_t seed, Policy policy) {
  Dice dice(seed, 200);
  const ConversionOptions options = options_with(policy);
  CodecRequest request = accepted_request(api, seed, options);
  const std::string text = random_answer(seed);
  const auto finish = dice.pick({BackendFinish::stop, BackendFinish::length, BackendFinish::content_filter});
  const Answered whole = answer(request, text.empty() ? std::vector<std::string>{} : std::vector{text}, finish);
  const Answered cut = answer(request, random_pieces(dice, text, false), finish);
  const std::string inputs = "request " + to_string(describe(request.converted.parsing)) + "\noutput " + text + "\n";
  if (!whole.error.empty() || !cut.error.empty())
    return BrokenLaw{"an answer does not fail", inputs + whole.error + cut.error};
  if (whole.body != cut.body && !(policy == Policy::strict && request.converted.parsing.json_output)) {
    return BrokenLaw{"cuts do not matter", inputs + "whole " + whole.body + "\nin pieces " + cut.body};
  }
  if (whole.usage.reasoning_tokens > whole.usage.completion_tokens) return BrokenLaw{"reasoning <= completion", inputs};
  const auto tree = parse_json(whole.body, "");
  if (!tree) return BrokenLaw{"a body is JSON", inputs + whole.body};
  std::optional<BrokenLaw> broken;
  visit_body(
      *tree,
      [&](const std::string& content) {
        const Parsing& parsing = request.converted.parsing;
        if (parsing.tool_calls && !parsing.json_output && content.find("<｜DSML｜") != content.npos) {
          broken = BrokenLaw{"markup of calls is never content", inputs + whole.body};
        }
      },
      [&](const std::string& arguments, bool complete) {
        if (policy == Policy::lenient && complete && !parse_json(arguments, "")) {
          broken = BrokenLaw{"arguments are JSON", inputs + whole.body};
        }
      });
  return broken;
}

std::optional<BrokenLaw> try_round_trip(uint64_t seed, Policy policy) {
  Dice dice(seed, 300);
  CodecRequest request;
  request.model = "m";
  request.converted.version = dice.one_in(2) ? ModelVersion::v4 : ModelVersion::v41;
  request.converted.parsing.policy = policy;
  request.converted.parsing.stage = ThinkingStage::reasoning_start;
  Conversation& conversation = request.converted.conversation;
  conversation.tools = {
      {.name = "f", .description = {}, .parameters = Json::object(), .strict = {}, .defer_loading = false}};
  Message user, turn;
  user.content = random_text(dice);
  turn.role = Message::Role::assistant;
  turn.content = plain_text(dice);
  turn.reasoning = plain_text(dice);
  if (dice.one_in(2)) {
    turn.calls.emplace();
    for (uint32_t i = dice.below(3) + 1; i > 0; --i) turn.calls->push_back({"1", "f", random_object(dice)});
  }
  const auto trim = [](std::string& text) {
    while (text.ends_with('\n')) text.pop_back();
  };
  trim(turn.content), trim(*turn.reasoning);
  conversation.messages = {user, turn};
  const Prompt prompt = render(request.converted, ConversionOptions{});
  const TokenSpellings spellings;
  const std::string head = spellings[SpecialToken::assistant] + spellings[SpecialToken::thinking_start];
  const size_t end = prompt.text.rfind(spellings[SpecialToken::eos]);
  const size_t begin = prompt.text.rfind(head, end == std::string::npos ? 0 : end);
  if (begin == std::string::npos || end == std::string::npos) return BrokenLaw{"a turn is rendered", prompt.text};
  const std::string output = prompt.text.substr(begin + head.size(), end - begin - head.size());
  const Answered back = answer(request, {output}, BackendFinish::stop);
  const auto tree = parse_json(back.body, "");
  if (!tree) return BrokenLaw{"a body is JSON", back.body};
  const Json& message = *tree->find("choices")->items.at(0).find("message");
  const auto same_text = [&](const char* key, const std::string& text) {
    const Json* found = message.find(key);
    return found != nullptr && found->text == text;
  };
  const Json* calls = message.find("tool_calls");
  const size_t count = turn.calls ? turn.calls->size() : 0;
  bool same = same_text("content", turn.content) && same_text("reasoning_content", *turn.reasoning) &&
              (calls != nullptr ? calls->items.size() : 0) == count;
  for (size_t i = 0; same && i < count; ++i) {
    const Json& function = *calls->items[i].find("function");
    const auto sent = parse_json((*turn.calls)[i].arguments, ""),
               got = parse_json(function.find("arguments")->text, "");
    same = sent && got && !first_difference(*sent, *got, KeyOrder::matters);
  }
  if (same) return {};
  return BrokenLaw{"a rendered turn parses to itself", to_string(describe(turn)) + "\n" + output + "\n" + back.body};
}

}  // namespace fathom::recipe
