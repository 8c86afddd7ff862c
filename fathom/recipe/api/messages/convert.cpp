// The meaning of a Messages request. Where two things are wrong the order of the steps decides which is said; it is
// that of the oracle (docs/recipe-findings.md, messages).
#include <algorithm>
#include <unordered_set>

#include "fathom/recipe/api/messages/body.h"
#include "fathom/recipe/api/messages/convert_history.h"
#include "fathom/recipe/api/messages/request.h"
#include "fathom/recipe/request_error.h"

namespace fathom::recipe {
namespace {

struct Tools {
  std::vector<ToolDefinition> definitions;
  std::vector<std::string> dropped;   // names of server tools that are dropped
  std::vector<size_t> request_index;  // of each definition in the request, for paths
};

std::string tool_path(size_t index, std::string_view member) {
  return "tools[" + std::to_string(index) + "]" + std::string(member);
}

Result<Tools> convert_tools(std::vector<MessagesTool> declared, ModelVersion version,
                            const ConversionOptions& options) {
  Tools tools;
  for (size_t i = 0; i < declared.size(); ++i) {
    MessagesTool& tool = declared[i];
    if (tool.type) {
      constexpr std::string_view kWebSearch = "web_search";
      const bool dropped = options.messages_web_search == ConversionOptions::WebSearch::drop &&
                           std::string_view(*tool.type).substr(0, kWebSearch.size()) == kWebSearch;
      if (!dropped) return convert_error(tool_path(i, "") + ": server tools are not supported", tool_path(i, ".type"));
      tools.dropped.push_back(tool.name.empty() ? std::string(kWebSearch) : std::move(tool.name));
      continue;
    }
    if (auto checked = check_tool_name(tool.name, tool_path(i, ".name")); !checked) return checked.error();
    ToolDefinition& definition = tools.definitions.emplace_back();
    definition.name = std::move(tool.name);
    definition.description = std::move(tool.description);
    definition.parameters = std::move(tool.input_schema);
    definition.defer_loading = tool.defer_loading;
    tools.request_index.push_back(i);
  }
  if (version == ModelVersion::v4) {  // which has no place for late tools: all are listed
    for (ToolDefinition& tool : tools.definitions) tool.defer_loading = false;
  }
  const auto deferred = [](const ToolDefinition& tool) { return tool.defer_loading; };
  if (!tools.definitions.empty() && std::all_of(tools.definitions.begin(), tools.definitions.end(), deferred)) {
    return convert_error("tools: at least one tool must have defer_loading=false. All tools cannot be deferred.",
                         "tools");
  }
  return tools;
}

Result<void> check_tools(Tools& tools, Policy policy) {
  std::unordered_set<std::string_view> names;
  for (size_t i = 0; i < tools.definitions.size(); ++i) {
    ToolDefinition& tool = tools.definitions[i];
    const size_t index = tools.request_index[i];
    if (!names.insert(tool.name).second) {
      return convert_error("Tool names must be unique.", tool_path(index, ".name"));
    }
    const std::string path = tool_path(index, ".input_schema");
    if (tool.parameters.is_null()) {  // the other APIs read this as no parameters
      return convert_error(
          "Invalid schema for function '" + tool.name + "': null is not of types \"boolean\", \"object\"", path);
    }
    if (auto settled = settle_parameters(tool, policy, path); !settled) return settled;
  }
  return {};
}

// Sets the choice and reduces the tools to those that may be called.
Result<void> settle_choice(const MessagesToolChoice& choice, const Tools& all, Conversation& conversation) {
  if (choice.kind != MessagesToolChoice::Kind::tool) return {};
  // The choice of a tool that is dropped is dropped with it.
  if (std::find(all.dropped.begin(), all.dropped.end(), choice.name) != all.dropped.end()) return {};
  auto& tools = conversation.tools;
  const auto named =
      std::find_if(tools.begin(), tools.end(), [&](const auto& tool) { return tool.name == choice.name; });
  if (named == tools.end()) {
    return convert_error("Invalid value for 'tool_call': no function named '" + choice.name +
                             "' was specified in the 'tools' parameter.",
                         "tool_choice.name");
  }
  if (conversation.thinking) return convert_error("Thinking mode does not support this tool_choice", "tool_choice");
  ToolDefinition only = std::move(*named);
  tools.clear();
  tools.push_back(std::move(only));
  conversation.tool_choice = ToolChoice::required;
  return {};
}

// D-3: strict drops the first block of a list whole, and what is left may be empty; lenient removes the lines.
void add_system(MessagesRequestBody& body, Policy policy, std::vector<Message>& messages) {
  if (!body.system) return;
  std::vector<std::string>& texts = *body.system;
  if (policy == Policy::lenient) {
    const size_t before = texts.size();
    std::erase_if(texts, [](std::string& text) { return strip_billing_lines(text) && text.empty(); });
    if (texts.empty() && before > 0) return;
  } else if (body.system_is_list && !texts.empty()) {
    std::string first = texts[0].substr(0, 64);  // the header is shorter
    if (strip_billing_lines(first)) texts.erase(texts.begin());
  }
  Message& system = messages.emplace_back();
  system.role = Message::Role::system;
  for (size_t i = 0; i < texts.size(); ++i) {
    if (i == 0) {
      system.content = std::move(texts[0]);
    } else {
      system.content += "\n\n" + texts[i];
    }
  }
}

}  // namespace

Result<ConvertedRequest> MessagesRequest::convert(const ConversionOptions& options) && {
  const std::unique_ptr<MessagesRequestBody> body = std::move(body_);
  ConvertedRequest request;
  Conversation& conversation = request.conversation;
  request.stream = body->stream;

  const auto version = resolve_model(body->model, options);
  if (!version) return version.error();
  request.version = *version;
  const bool tools_declared = !body->tools.empty();
  auto tools = convert_tools(std::move(body->tools), request.version, options);
  if (!tools) return tools.error();
  const auto thinking =
      resolve_thinking(body->thinking, body->effort, request.version, options, "output_config.effort");
  if (!thinking) return thinking.error();
  conversation.thinking = thinking->on;
  conversation.effort = thinking->effort;
  conversation.effort_number = thinking->number;

  if (body->turns.empty()) return convert_error("messages: at least one message is required", "messages");
  History history;
  add_system(*body, options.policy, history.messages);
  auto converted = convert_history(std::move(body->turns), tools->definitions, request.version, conversation.thinking,
                                   options, history);
  if (!converted) return converted.error();
  if (options.reject_missing_reasoning && conversation.thinking) {
    // Whoever has tools must give back the thinking of the turn in progress; without tools only that of calls.
    const int64_t plain = tools_declared ? history.without_thinking : -1, calls = history.calls_without_thinking;
    const int64_t turn = std::max(plain, calls);
    if (turn >= 0) {
      return convert_error("The `content[].thinking` in the thinking mode must be passed back to the API.",
                           "messages[" + std::to_string(turn) + "].content");
    }
  }

  if (body->tool_choice.kind == MessagesToolChoice::Kind::none) {
    conversation.tool_choice = ToolChoice::none;  // and the tools are gone, unseen
  } else {
    if (auto checked = check_tools(*tools, options.policy); !checked) return checked.error();
    conversation.tools = std::move(tools->definitions);
    if (tools_declared) {  // without tools, any choice is ignored
      if (auto settled = settle_choice(body->tool_choice, *tools, conversation); !settled) return settled.error();
    }
  }
  announce_tools(history, conversation.tools);
  conversation.messages = std::move(history.messages);

  Inference& inference = request.inference;
  if (auto checked = check_stop(body->stop_sequences, false, "stop_sequences"); !checked) return checked.error();
  if (auto checked = check_temperature(body->temperature); !checked) return checked.error();
  if (auto checked = check_top_p(body->top_p); !checked) return checked.error();
  inference.max_tokens = body->max_tokens;
  if (inference.max_tokens) {
    // Too many are lowered, not refused; 0 is refused.
    const uint32_t bound = conversation.thinking ? options.thinking_max_tokens : options.non_thinking_max_tokens;
    inference.max_tokens = std::min(*inference.max_tokens, bound);
    auto checked = check_max_tokens(inference.max_tokens, conversation.thinking, options, "max_tokens");
    if (!checked) return checked.error();
  }
  resolve_sampling(inference, body->temperature, body->top_p, request.version, conversation.thinking,
                   conversation.tools_active());
  settle_output(request, std::move(body->stop_sequences), options);
  return request;
}

}  // namespace fathom::recipe
