#include "fathom/cli/endpoint_request.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace fathom::cli {
namespace {

// Words that byte-pair vocabularies of English text usually have as one token with their blank.
constexpr std::array<std::string_view, 64> kWords = {
    "time",   "year",     "people",   "way",   "day",     "man",   "thing", "woman",   "life",   "child",  "world",
    "school", "state",    "family",   "group", "country", "hand",  "part",  "place",   "case",   "week",   "company",
    "system", "program",  "question", "work",  "number",  "night", "point", "home",    "water",  "room",   "mother",
    "area",   "money",    "story",    "fact",  "month",   "lot",   "right", "study",   "book",   "eye",    "job",
    "word",   "business", "issue",    "side",  "kind",    "head",  "house", "service", "friend", "father", "power",
    "hour",   "game",     "line",     "end",   "member",  "law",   "car",   "city",    "name"};

void set_all(Json& body, const Json& fields) {
  for (const auto& [key, value] : fields.fields) body.set(key, value);
}

Json message(const char* role, const std::string& text) {
  Json out = Json::object();
  out.set("role", Json::of(role));
  out.set("content", Json::of(text));
  return out;
}

/// The text of a field, when it is a text that is not empty.
const std::string* text_of(const Json& tree, std::string_view key) {
  const Json* found = tree.find(key);
  return found != nullptr && found->is_string() && !found->text.empty() ? &found->text : nullptr;
}

int64_t count_of(const Json* tree, std::string_view key) {
  const Json* found = tree != nullptr ? tree->find(key) : nullptr;
  return found != nullptr ? found->as_int64().value_or(-1) : -1;
}

void read_choice(const Json& choice, EndpointEvent& event) {
  if (const std::string* text = text_of(choice, "text")) event.text = *text;
  if (const Json* delta = choice.find("delta"); delta != nullptr && delta->is_object()) {
    if (const std::string* text = text_of(*delta, "content")) event.text = *text;
    // Two names are in use for what a model thinks.
    event.brings_text = text_of(*delta, "reasoning_content") != nullptr || text_of(*delta, "reasoning") != nullptr;
    const Json* calls = delta->find("tool_calls");
    if (calls != nullptr && !calls->items.empty()) event.brings_text = true;
  }
  if (!event.text.empty()) event.brings_text = true;
  if (const std::string* reason = text_of(choice, "finish_reason")) event.finish = *reason;
}

}  // namespace

void append_words(uint64_t seed, int64_t words, std::string& out) {
  for (int64_t i = 0; i < words; ++i) {
    out += ' ';
    out += kWords[size_t(stream_token(seed, i, int32_t(kWords.size()) + 2) - 2)];
  }
}

std::vector<PromptPart> prompt_of(const TraceRequest& request, const std::map<uint64_t, std::string>& answers,
                                  double tokens_per_word) {
  std::vector<PromptPart> parts;
  const auto words = [&](int64_t count) { return std::max<int64_t>(std::llround(double(count) / tokens_per_word), 1); };
  const auto text_to = [&](bool answer) -> std::string& {
    if (parts.empty() || parts.back().answer != answer) parts.push_back({answer, {}});
    return parts.back().text;
  };
  int64_t tokens = 0;
  for (const TextPart& part : request.prefix) {
    tokens += part.tokens;
    const auto said = answers.find(part.seed);
    if (said != answers.end()) {
      text_to(true) += said->second;
    } else {
      append_words(part.seed, words(part.tokens), text_to(false));
    }
  }
  append_words(request.seed, words(request.prompt_tokens - tokens), text_to(false));
  return parts;
}

Result<std::vector<Json>> read_prompts(std::string_view text, const std::string& where) {
  std::vector<Json> prompts;
  const bool objects = where.ends_with(".jsonl");
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.find_first_not_of(" \t") == std::string_view::npos) continue;
    if (!objects) {
      Json one = Json::object();
      one.set("prompt", Json::of(line));
      prompts.push_back(std::move(one));
      continue;
    }
    const std::string place = where + ":" + std::to_string(number);
    auto one = parse_json(line, place);
    if (!one) return one.error();
    if (!one->is_object() || (one->find("messages") == nullptr && one->find("prompt") == nullptr)) {
      return Error{ErrorCode::bad_input, "the line is no prompt", place,
                   "write an object with \"messages\" or \"prompt\", or use a file of plain lines"};
    }
    prompts.push_back(std::move(*one));
  }
  if (prompts.empty()) return Error{ErrorCode::bad_input, "the file has no prompt", where, "write one a line"};
  return prompts;
}

std::string body_of(EndpointApi api, const std::string& model, const std::vector<PromptPart>& prompt,
                    int64_t max_tokens, const Json* own, const Json& more) {
  Json body = Json::object();
  body.set("model", Json::of(model));
  if (own != nullptr) {
    set_all(body, *own);
    const std::string* text = text_of(*own, "prompt");
    if (api == EndpointApi::chat && text != nullptr) {
      std::erase_if(body.fields, [](const auto& field) { return field.first == "prompt"; });
      body.set("messages", Json::array().push(message("user", *text)));
    }
  } else if (api == EndpointApi::chat) {
    Json messages = Json::array();
    for (const PromptPart& part : prompt) messages.push(message(part.answer ? "assistant" : "user", part.text));
    body.set("messages", std::move(messages));
  } else {
    std::string text;
    for (const PromptPart& part : prompt) text += part.text;
    body.set("prompt", Json::of(text));
  }
  if (body.find("max_tokens") == nullptr) body.set("max_tokens", Json::of(max_tokens));
  body.set("stream", Json::of(true));
  body.set("stream_options", Json::object().set("include_usage", Json::of(true)));
  set_all(body, more);
  return to_string(body);
}

Result<EndpointEvent> read_event(std::string_view data) {
  EndpointEvent event;
  if (data == "[DONE]") {
    event.done = true;
    return event;
  }
  const auto tree = parse_json(data, "an event of the stream");
  if (!tree) return tree.error();
  if (!tree->is_object()) {
    return Error{ErrorCode::bad_input, "an event is no JSON object", "an event of the stream",
                 "is this the right API?"};
  }
  if (const Json* error = tree->find("error"); error != nullptr && !error->is_null()) {
    event.error = error_message_of(data);
    const std::string* type = text_of(*error, "type");
    event.error_type = type != nullptr ? *type : "error";
  }
  if (const Json* choices = tree->find("choices"); choices != nullptr && !choices->items.empty()) {
    read_choice(choices->items[0], event);
  }
  if (const Json* usage = tree->find("usage"); usage != nullptr && usage->is_object()) {
    event.prompt_tokens = count_of(usage, "prompt_tokens");
    event.output_tokens = count_of(usage, "completion_tokens");
    event.cached_tokens = count_of(usage->find("prompt_tokens_details"), "cached_tokens");
  }
  return event;
}

std::string error_message_of(std::string_view body) {
  std::string text(body.substr(0, 200));
  if (const auto tree = parse_json(body, "the body"); tree.ok() && tree->is_object()) {
    const Json* error = tree->find("error");
    const Json& from = error != nullptr && error->is_object() ? *error : *tree;
    if (const std::string* message = text_of(from, "message")) {
      text = *message;
    } else if (error != nullptr && error->is_string()) {
      text = error->text;
    }
  }
  for (char& letter : text) {
    if (static_cast<unsigned char>(letter) < ' ') letter = ' ';
  }
  return text;
}

}  // namespace fathom::cli
