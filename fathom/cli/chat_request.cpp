#include "fathom/cli/chat_request.h"

#include <algorithm>

#include "fathom/base/mapped_file.h"
#include "fathom/cli/option_value.h"
#include "fathom/engine/constraint_check.h"
#include "fathom/recipe/answerable.h"
#include "fathom/recipe/schema/check_schema.h"

namespace fathom::cli {
namespace {

constexpr int64_t kMostFileBytes = int64_t(64) << 20;

Result<Json> read_json_file(const std::string& path) {
  const auto text = read_file(path, kMostFileBytes);
  if (!text) return text.error();
  return parse_json(*text, path);
}

}  // namespace

const recipe::ConversionOptions& conversion() {
  static const recipe::ConversionOptions options = [] {
    recipe::ConversionOptions made;
    std::erase_if(made.models, [](const auto& model) { return model.second != recipe::ModelVersion::v41; });
    return made;
  }();
  return options;
}

Result<Json> read_effort(const std::string& text) {
  for (const char* name : {"none", "low", "high", "max"}) {
    if (text == name) return Json::of(text);
  }
  const auto number = parse_integer(text);
  if (number && *number >= 1 && *number <= 100) return Json::of(*number);
  return Error{ErrorCode::usage, "unknown effort \"" + text + "\"", "--effort",
               "use none, low, high, max or a number from 1 to 100"};
}

Result<Json> read_tools(const std::string& path) {
  auto file = read_json_file(path);
  if (!file) return file.error();
  const auto wrong = [&](const std::string& what, const std::string& remedy) {
    return Error{ErrorCode::bad_input, what, path, remedy};
  };
  if (!file->is_array())
    return wrong("tools are no list", R"(write [{"name": …, "description": …, "parameters": {…}}])");
  Json tools = Json::array();
  for (size_t i = 0; i < file->items.size(); ++i) {
    Json& tool = file->items[i];
    const Json* inner = tool.find("function");
    const Json* name = inner != nullptr ? inner->find("name") : tool.find("name");
    if (name == nullptr || !name->is_string()) {
      return wrong("tool " + std::to_string(i) + " has no name", "give it a \"name\"");
    }
    if (inner != nullptr) {
      tools.push(std::move(tool));
      continue;
    }
    Json entry = Json::object();
    entry.set("type", Json::of("function"));
    entry.set("function", std::move(tool));
    tools.push(std::move(entry));
  }
  ChatFrame frame;
  frame.tools = tools;
  Json messages = Json::array();
  messages.push(chat_message("user", ""));
  if (auto request = chat_request(std::move(messages), frame); !request) {
    return told_of(request.error(), path, ErrorCode::bad_input, "correct this tool");
  }
  return tools;
}

Result<Json> read_schema(const std::string& path) {
  auto schema = read_json_file(path);
  if (!schema) return schema.error();
  Json inner = Json::object();
  inner.set("name", Json::of("answer"));
  inner.set("schema", std::move(*schema));
  Json format = Json::object();
  format.set("type", Json::of("json_schema"));
  format.set("json_schema", std::move(inner));
  ChatFrame frame;
  frame.format = format;
  Json messages = Json::array();
  messages.push(chat_message("user", ""));
  if (auto request = chat_request(std::move(messages), frame); !request) {
    Error error = request.error();
    error.where.clear();
    return told_of(std::move(error), path, ErrorCode::usage, "pass a valid JSON Schema");
  }
  return format;
}

Result<Json> read_regex(const std::string& expression) {
  if (!recipe::valid_pattern(expression)) {
    return Error{ErrorCode::usage, "\"" + expression + "\" is no regular expression", "--regex",
                 "pass one as JSON Schema's pattern has it, such as [0-9]+"};
  }
  Json format = Json::object();
  format.set("type", Json::of("regex"));
  format.set("regex", Json::of(expression));
  return format;
}

Json chat_message(std::string_view role, std::string_view text) {
  Json message = Json::object();
  message.set("role", Json::of(role));
  message.set("content", Json::of(text));
  return message;
}

Json chat_body(Json messages, const ChatFrame& frame) {
  if (frame.system) messages.items.insert(messages.items.begin(), chat_message("system", *frame.system));
  Json body = Json::object();
  body.set("model", Json::of(conversion().models.front().first));
  body.set("messages", std::move(messages));
  body.set("reasoning_effort", frame.effort);
  if (!frame.tools.items.empty()) body.set("tools", frame.tools);
  if (!frame.format.is_null()) body.set("response_format", frame.format);
  return body;
}

Result<recipe::CodecRequest> chat_request(Json messages, const ChatFrame& frame) {
  return recipe::read_request(recipe::Api::chat_completions, chat_body(std::move(messages), frame), conversion());
}

Result<void> check_answerable(const recipe::CodecRequest& request) {
  if (auto seen = recipe::check_images(request); !seen) return seen;
  return recipe::check_constraint(request, fathom::check_constraint);
}

SamplingSettings settings_of(const recipe::Inference& inference) {
  SamplingSettings settings;
  settings.temperature = double(inference.temperature);
  settings.top_p = double(inference.top_p);
  settings.frequency_penalty = double(inference.frequency_penalty);
  settings.presence_penalty = double(inference.presence_penalty);
  if (inference.logprobs) settings.logprobs = int64_t(inference.top_logprobs.value_or(0));
  if (inference.seed) settings.seed = int64_t(*inference.seed);
  return settings;
}

Result<Question> codec_question(const recipe::CodecRequest& request, const SamplingSettings& sampling,
                                const Tokenizer& tokenizer, int64_t vocabulary, std::string* rendered) {
  Question question;
  auto chosen = to_sampling(sampling, vocabulary);
  if (!chosen) return chosen.error();
  question.request.sampling = std::move(*chosen);
  const recipe::Prompt prompt = recipe::render(request.converted, conversion());
  if (rendered != nullptr) *rendered = prompt.text;
  auto ids = recipe::encode(prompt, tokenizer);
  if (!ids) return ids.error();
  question.request.ids = std::move(*ids);
  const auto& constraint = request.converted.inference.constraint;
  // Calls of tools too large or too many for a grammar go unconstrained where nobody asked for more.
  if (constraint && (recipe::is_promise(*constraint) || fathom::check_constraint(*constraint).ok())) {
    question.request.constraint = constraint;
  }
  question.parsing = request.converted.parsing;
  if (!sampling.stop.empty()) question.parsing.stop_sequences = sampling.stop;
  return question;
}

Result<Question> plain_question(std::string_view text, bool with_bos, const SamplingSettings& sampling,
                                const Tokenizer& tokenizer, int64_t vocabulary) {
  Question question;
  auto chosen = to_sampling(sampling, vocabulary);
  if (!chosen) return chosen.error();
  question.request.sampling = std::move(*chosen);
  question.request.ids = tokenizer.encode(text);
  auto& ids = question.request.ids;
  if (with_bos && (ids.empty() || ids[0] != Tokenizer::kBegin)) ids.insert(ids.begin(), Tokenizer::kBegin);
  question.parsing = plain_parsing(sampling.stop);
  return question;
}

Error told_of(Error error, const std::string& where, ErrorCode code, const std::string& remedy) {
  if (error.message.ends_with('.')) error.message.pop_back();
  error.where = error.where.empty() ? where : where + ", " + error.where;
  error.code = code;
  error.remedy = remedy;
  return error;
}

}  // namespace fathom::cli
