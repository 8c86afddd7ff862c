// The steps of a conversion, in the order in which a client sees their errors.
#include "fathom/recipe/api/responses/convert.h"

#include <algorithm>
#include <iterator>

#include "fathom/recipe/request_error.h"

namespace fathom::recipe {
namespace responses {
namespace {

Result<void> check_input(const ResponsesRequestBody& body) {
  if (std::holds_alternative<std::monostate>(body.input) && body.instructions.value_or("").empty()) {
    return convert_error("Either input or instructions must be provided", "input");
  }
  const auto* items = std::get_if<std::vector<Item>>(&body.input);
  if (items && items->empty()) return convert_error("Input items array must not be empty", "input");
  return {};
}

void add_instructions(ResponsesRequestBody& body, Policy policy, std::vector<Message>& messages) {
  if (!body.instructions) return;
  if (policy == Policy::lenient) strip_billing_lines(*body.instructions);  // D-3
  if (body.instructions->empty()) return;
  Message& message = messages.emplace_back();
  message.role = Message::Role::system;
  message.content = std::move(*body.instructions);
}

// The two characters are a number in the ids that we make; any two count.
bool marks_empty_reasoning(std::string_view id) {
  constexpr std::string_view kBegin = "call_", kEnd = "_ET_";
  return id.starts_with(kBegin) && id.size() > kBegin.size() + 2 && id.substr(kBegin.size() + 2).starts_with(kEnd);
}

// What the model did since the last user message, must have its reasoning: calls always, texts when there are tools.
Result<void> check_reasoning(const Conversation& conversation, bool with_tools) {
  const auto& messages = conversation.messages;
  if (!conversation.thinking) return {};
  for (size_t i = messages.size(); i-- > 0 && messages[i].role != Message::Role::user;) {
    const Message& message = messages[i];
    if (message.role != Message::Role::assistant || !message.reasoning.value_or("").empty()) continue;
    if (!message.calls && !with_tools) continue;
    if (message.calls && std::any_of(message.calls->begin(), message.calls->end(),
                                     [](const ToolCall& call) { return marks_empty_reasoning(call.id); })) {
      continue;
    }
    return convert_error("The `reasoning_text` in the thinking mode must be passed back to the API.", "input");
  }
  return {};
}

// Fills the announcements of found tools with what is left of these after the choice; empty ones go.
void announce(const std::vector<Announcement>& announcements, size_t offset,
              const std::vector<std::vector<std::string>>& names, Conversation& conversation) {
  for (size_t i = announcements.size(); i-- > 0;) {
    std::vector<ToolDefinition> tools;
    for (const std::string& name : names[i]) {
      for (const ToolDefinition& tool : conversation.tools) {
        if (tool.name == name) tools.push_back(tool);
      }
    }
    const auto message = conversation.messages.begin() + int64_t(announcements[i].message + offset);
    if (tools.empty()) {
      conversation.messages.erase(message);
    } else {
      message->tools = std::move(tools);
    }
  }
}

ResponseFormat read_format(Format format) {
  ResponseFormat result;
  switch (format.kind) {
    case Format::Kind::text: break;
    case Format::Kind::json_object: result.kind = ResponseFormat::Kind::json_object; break;
    case Format::Kind::json_schema:
      result.kind = ResponseFormat::Kind::json_schema;
      result.schema = std::move(format.schema);
      result.strict = format.strict.value_or(false);
      break;
  }
  return result;
}

Result<void> check_json_word(const Conversation& conversation) {
  if (conversation.format.kind != ResponseFormat::Kind::json_object) return {};
  const auto& messages = conversation.messages;
  if (std::any_of(messages.begin(), messages.end(), [](const Message& m) { return mentions_json(m.content); })) {
    return {};
  }
  return convert_error(
      "Response input messages must contain the word 'json' in some form to use 'text.format' of type 'json_object'.",
      "input");
}

// A tool search found a custom tool (apply_patch: no other is accepted).
bool finds_patch(const ResponsesRequestBody& body) {
  const auto* items = std::get_if<std::vector<Item>>(&body.input);
  return items != nullptr && std::any_of(items->begin(), items->end(), [](const Item& item) {
           return std::any_of(item.tools.begin(), item.tools.end(),
                              [](const Tool& tool) { return tool.kind == Tool::Kind::custom; });
         });
}

Result<void> convert_conversation(ResponsesRequestBody& body, const ConversionOptions& options, ModelVersion version,
                                  Conversation& conversation) {
  auto* items = std::get_if<std::vector<Item>>(&body.input);
  FunctionNames names(version);
  auto declared = declare_tools(std::move(body.tools), items ? std::span<const Item>(*items) : std::span<const Item>(),
                                version, options, names);
  if (!declared) return declared.error();
  if (auto result = check_input(body); !result) return result;

  auto& messages = conversation.messages;
  add_instructions(body, options.policy, messages);
  const size_t offset = messages.size();
  std::vector<Announcement> announcements;
  if (items) {
    auto converted = convert_items(std::move(*items), *declared, version, conversation.thinking, options, names);
    if (!converted) return converted.error();
    announcements = std::move(converted->announcements);
    if (messages.empty()) {
      messages = std::move(converted->messages);
    } else {
      std::move(converted->messages.begin(), converted->messages.end(), std::back_inserter(messages));
    }
  } else if (auto* text = std::get_if<std::string>(&body.input)) {
    messages.emplace_back().content = std::move(*text);
  }
  if (options.reject_missing_reasoning) {
    if (auto result = check_reasoning(conversation, !declared->tools.empty()); !result) return result;
  }

  if (body.tool_choice.kind == Choice::Kind::web_search &&
      options.responses_web_search == ConversionOptions::WebSearch::reject) {
    return convert_error("Server tools are not supported", "tool_choice");
  }
  std::vector<std::vector<std::string>> announced;
  for (const Announcement& announcement : announcements) {
    auto& list = announced.emplace_back();
    for (size_t i = announcement.tools.begin; i < announcement.tools.end; ++i) {
      list.push_back(declared->tools[i].name);
    }
  }
  if (auto result = settle_tools(conversation, std::move(*declared), body.tool_choice, options.policy); !result) {
    return result;
  }
  announce(announcements, offset, announced, conversation);

  conversation.format = read_format(std::move(body.format));
  if (auto result = check_response_format(conversation.format, options.policy, "text.format.schema"); !result) {
    return result;
  }
  if (auto result = check_json_word(conversation); !result) return result;
  if (auto result = check_strict_mix(conversation.tools); !result) return result;
  auto result = check_format_with_tools(conversation, conversation.format.kind != ResponseFormat::Kind::text);
  if (result) return result;
  return convert_error(result.error().message, "text.format");
}

}  // namespace
}  // namespace responses

Result<NamespaceMap> ResponsesRequest::namespaces(const ConversionOptions& options) const {
  const auto version = resolve_model(body_->model, options);
  if (!version) return version.error();
  return responses::map_namespaces(body_->tools, *version);
}

Result<ConvertedRequest> ResponsesRequest::convert(const ConversionOptions& options) && {
  const auto owned = std::move(body_);
  ResponsesRequestBody& body = *owned;
  ConvertedRequest request;
  const auto version = resolve_model(body.model, options);
  if (!version) return version.error();
  request.version = *version;
  request.found_patch = *version == ModelVersion::v41 && responses::finds_patch(body);
  request.stream = body.stream;

  Conversation& conversation = request.conversation;
  const auto thinking =
      resolve_thinking(ThinkingSwitch::unspecified, body.effort, *version, options, "reasoning.effort");
  if (!thinking) return thinking.error();
  conversation.thinking = thinking->on;
  conversation.effort = thinking->effort;
  conversation.effort_number = thinking->number;
  if (auto result = responses::convert_conversation(body, options, *version, conversation); !result) {
    return result.error();
  }

  if (auto result = check_temperature(body.temperature); !result) return result.error();
  if (auto result = check_top_p(body.top_p); !result) return result.error();
  if (auto result = check_top_logprobs(body.top_logprobs); !result) return result.error();
  if (auto result = check_max_tokens(body.max_output_tokens, thinking->on, options, "max_output_tokens"); !result) {
    return result.error();
  }
  Inference& inference = request.inference;
  inference.max_tokens = body.max_output_tokens;
  inference.logprobs = body.top_logprobs.has_value();
  inference.top_logprobs = body.top_logprobs;
  resolve_sampling(inference, body.temperature, body.top_p, *version, thinking->on, conversation.tools_active());
  settle_output(request, {}, options);
  return request;
}

}  // namespace fathom::recipe
