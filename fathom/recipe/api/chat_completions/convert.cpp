// What a Chat Completions request means. The checks come in the order of deepseek-recipe 0.2.0 (measured), as the first
// failure is what the client sees.
#include <algorithm>
#include <unordered_set>

#include "fathom/recipe/api/chat_completions/body.h"
#include "fathom/recipe/api/chat_completions/request.h"
#include "fathom/recipe/request_error.h"

namespace fathom::recipe {
namespace {

std::string tool_path(size_t index, std::string_view member) {
  return "tools[" + std::to_string(index) + "].function." + std::string(member);
}

Result<void> check_tool_names(const ChatCompletionsRequestBody& body) {
  for (size_t i = 0; i < body.tools.size(); ++i) {
    if (auto checked = check_tool_name(body.tools[i].name, tool_path(i, "name")); !checked) return checked;
  }
  return {};
}

Result<void> check_json_word(const ChatCompletionsRequestBody& body, const Conversation& conversation) {
  if (body.format.kind != ResponseFormat::Kind::json_object) return {};
  for (const Message& message : conversation.messages) {
    if (mentions_json(message.content)) return {};
  }
  return convert_error(
      "Prompt must contain the word 'json' in some form to use 'response_format' of type 'json_object'.",
      "response_format");
}

// Tools and the choice among them. With choice `none` the tools vanish unseen.
Result<void> convert_tools(ChatCompletionsRequestBody& body, Policy policy, Conversation& conversation) {
  const ChatToolChoice& choice = body.tool_choice;
  if (choice.choice == ToolChoice::none) {
    conversation.tool_choice = ToolChoice::none;
    return {};
  }
  if (body.tools.empty()) return {};
  // A tool with a bad schema is reported before a later one whose name is taken.
  std::unordered_set<std::string_view> names;
  for (size_t i = 0; i < body.tools.size(); ++i) {
    if (!names.insert(body.tools[i].name).second) return check_unique_names(body.tools);
    if (auto settled = settle_parameters(body.tools[i], policy, tool_path(i, "parameters")); !settled) return settled;
  }
  conversation.tools = std::move(body.tools);
  if (choice.name) {
    const auto named = std::find_if(conversation.tools.begin(), conversation.tools.end(),
                                    [&](const ToolDefinition& tool) { return tool.name == *choice.name; });
    if (named == conversation.tools.end()) {
      return convert_error("Invalid value for 'tool_call': no function named '" + *choice.name +
                               "' was specified in the 'tools' parameter.",
                           "tool_choice.function.name");
    }
    ToolDefinition only = std::move(*named);
    conversation.tools.clear();
    conversation.tools.push_back(std::move(only));
  }
  if (choice.choice == ToolChoice::required && conversation.thinking) {
    return convert_error("Thinking mode does not support this tool_choice", "tool_choice");
  }
  conversation.tool_choice = choice.choice;
  return {};
}

Result<void> check_prefix(bool tools_declared, const ChatCompletionsRequestBody& body,
                          const Conversation& conversation) {
  const auto& messages = conversation.messages;
  if (messages.empty() || !messages.back().prefix) return {};
  if (body.format.kind == ResponseFormat::Kind::json_object) {
    return convert_error("response_format json_object should not be used with prefix", "response_format");
  }
  const bool called =
      std::any_of(messages.begin(), messages.end(), [](const Message& m) { return m.calls.has_value(); });
  if (tools_declared || called) {
    return convert_error("Function call should not be used with prefix",
                         "messages[" + std::to_string(body.messages.size() - 1) + "].prefix");
  }
  return {};
}

Result<void> check_penalty(std::optional<float> penalty, const char* name) {
  if (!penalty || (*penalty >= -2 && *penalty <= 2)) return {};
  return convert_error("Invalid " + std::string(name) + " value, the valid range of " + name + " is [-2, 2]", name);
}

Result<void> check_parameters(const ChatCompletionsRequestBody& body, const Conversation& conversation,
                              const ConversionOptions& options) {
  if (auto checked = check_stop(body.stop, body.stop_is_string); !checked) return checked;
  if (body.has_stream_options && !body.stream) {
    return convert_error("stream_options should be set along with stream = true", "stream_options");
  }
  if (auto checked = check_response_format(body.format, options.policy, "response_format.json_schema.schema");
      !checked) {
    return checked;
  }
  if (auto checked = check_strict_mix(conversation.tools); !checked) return checked;
  if (auto checked = check_format_with_tools(conversation, body.has_format); !checked) return checked;
  if (body.n && *body.n != 1) return convert_error("Invalid n value (currently only n = 1 is supported)", "n");
  if (auto checked = check_penalty(body.presence_penalty, "presence_penalty"); !checked) return checked;
  if (auto checked = check_penalty(body.frequency_penalty, "frequency_penalty"); !checked) return checked;
  if (auto checked = check_temperature(body.temperature); !checked) return checked;
  if (auto checked = check_top_p(body.top_p); !checked) return checked;
  if (body.top_logprobs && !body.logprobs) {
    return convert_error(
        "Invalid top_logprobs and logprobs value, logprobs must be set to true if top_logprobs is used.",
        "top_logprobs");
  }
  if (auto checked = check_top_logprobs(body.top_logprobs); !checked) return checked;
  if (auto checked = check_max_tokens(body.max_tokens, conversation.thinking, options, body.max_tokens_field);
      !checked) {
    return checked;
  }
  if (body.seed && *body.seed >= uint64_t(1) << 63) {
    return convert_error("Invalid seed value, the valid range of seed is [0, 2^63)", "seed");
  }
  return {};
}

void convert_inference(const ChatCompletionsRequestBody& body, Policy policy, ConvertedRequest& request) {
  Inference& inference = request.inference;
  inference.max_tokens = body.max_tokens;
  inference.logprobs = body.logprobs;
  inference.top_logprobs = body.top_logprobs;
  inference.seed = body.seed;
  if (policy == Policy::lenient) {  // D-5
    inference.frequency_penalty = body.frequency_penalty.value_or(0.0f);
    inference.presence_penalty = body.presence_penalty.value_or(0.0f);
  }
  resolve_sampling(inference, body.temperature, body.top_p, request.version, request.conversation.thinking,
                   request.conversation.tools_active());
}

}  // namespace

Result<ConvertedRequest> ChatCompletionsRequest::convert(const ConversionOptions& options) && {
  ChatCompletionsRequestBody& body = *body_;
  ConvertedRequest request;
  Conversation& conversation = request.conversation;
  const auto version = resolve_model(body.model, options);
  if (!version) return version.error();
  request.version = *version;
  request.stream = body.stream;
  const auto thinking = resolve_thinking(body.thinking, body.effort, *version, options, "reasoning_effort");
  if (!thinking) return thinking.error();
  conversation.thinking = thinking->on;
  conversation.effort = thinking->effort;
  conversation.effort_number = thinking->number;
  if (auto checked = check_tool_names(body); !checked) return checked.error();
  auto messages = convert_messages(body, thinking->on, *version, options);
  if (!messages) return messages.error();
  conversation.messages = std::move(*messages);
  if (auto checked = check_json_word(body, conversation); !checked) return checked.error();
  const bool tools_declared = !body.tools.empty();
  if (auto converted = convert_tools(body, options.policy, conversation); !converted) return converted.error();
  if (auto checked = check_prefix(tools_declared, body, conversation); !checked) return checked.error();
  if (auto checked = check_parameters(body, conversation, options); !checked) return checked.error();
  conversation.format = std::move(body.format);
  convert_inference(body, options.policy, request);
  settle_output(request, std::move(body.stop), options);
  return request;
}

}  // namespace fathom::recipe
