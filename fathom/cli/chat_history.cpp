#include "fathom/cli/chat_history.h"

#include <algorithm>

#include "fathom/base/mapped_file.h"

namespace fathom::cli {
namespace {

std::string text_of(const Json& object, std::string_view key) {
  const Json* value = object.find(key);
  return value != nullptr ? value->text : std::string();
}

bool has_role(const Json& message, std::string_view role) { return text_of(message, "role") == role; }

/// The calls of message `at` that no tool message right behind it answers.
std::vector<OpenCall> open_calls(const Json& messages, size_t at) {
  const Json* calls = messages.items[at].find("tool_calls");
  std::vector<OpenCall> open;
  if (calls == nullptr || !has_role(messages.items[at], "assistant")) return open;
  for (const Json& call : calls->items) {
    const Json* function = call.find("function");
    open.push_back({text_of(call, "id"), function != nullptr ? text_of(*function, "name") : ""});
  }
  for (size_t i = at + 1; i < messages.items.size() && has_role(messages.items[i], "tool"); ++i) {
    const std::string id = text_of(messages.items[i], "tool_call_id");
    std::erase_if(open, [&](const OpenCall& call) { return call.id == id; });
  }
  return open;
}

/// Empty results where others are missing; `last`: also at the end of the conversation.
Json with_results(const Json& messages, bool last) {
  Json out = Json::array();
  std::vector<OpenCall> open;
  const auto close = [&] {
    for (const OpenCall& call : open) out.push(tool_message(call.id, ""));
    open.clear();
  };
  for (size_t i = 0; i < messages.items.size(); ++i) {
    if (!has_role(messages.items[i], "tool")) {
      close();
      open = open_calls(messages, i);
    }
    out.push(messages.items[i]);
  }
  if (last) close();
  return out;
}

/// Ids for calls that have none, and for the results behind them in the calls' order.
void give_ids(Json& messages) {
  int64_t number = 0;
  std::vector<std::string> given;
  size_t answered = 0;
  for (Json& message : messages.items) {
    if (has_role(message, "tool")) {
      if (message.find("tool_call_id") == nullptr && answered < given.size()) {
        message.set("tool_call_id", Json::of(given[answered]));
      }
      ++answered;
      continue;
    }
    given.clear();
    answered = 0;
    for (auto& [key, calls] : message.fields) {
      if (key != "tool_calls") continue;
      for (Json& call : calls.items) {
        if (call.is_object() && call.find("id") == nullptr) {
          call.set("id", Json::of("call_" + std::to_string(number++)));
        }
        given.push_back(text_of(call, "id"));
      }
    }
  }
}

}  // namespace

Json assistant_message(const Answer& answer) {
  Json message = chat_message("assistant", answer.text);
  if (!answer.reasoning.empty()) message.set("reasoning_content", Json::of(answer.reasoning));
  if (answer.calls.empty()) return message;
  Json calls = Json::array();
  for (const recipe::ToolCall& call : answer.calls) {
    Json function = Json::object();
    function.set("name", Json::of(call.name));
    function.set("arguments", Json::of(call.arguments));
    Json entry = Json::object();
    entry.set("id", Json::of(call.id));
    entry.set("type", Json::of("function"));
    entry.set("function", std::move(function));
    calls.push(std::move(entry));
  }
  message.set("tool_calls", std::move(calls));
  return message;
}

Json tool_message(const std::string& call_id, std::string_view result) {
  Json message = chat_message("tool", result);
  message.set("tool_call_id", Json::of(call_id));
  return message;
}

std::optional<OpenCall> open_call(const Json& messages) {
  for (size_t i = messages.items.size(); i-- > 0;) {
    if (has_role(messages.items[i], "tool")) continue;
    const std::vector<OpenCall> open = open_calls(messages, i);
    return open.empty() ? std::optional<OpenCall>() : open.front();
  }
  return {};
}

Json with_all_results(const Json& messages) { return with_results(messages, true); }

bool is_question(const Json& message) { return has_role(message, "user"); }

Result<LoadedChat> load_chat(const std::string& path, const ChatFrame& frame) {
  const auto text = read_file(path, int64_t(64) << 20);
  if (!text) return text.error();
  const auto tree = parse_json(*text, path);
  if (!tree) return tree.error();
  const Json* messages = tree->find("messages");
  if (messages == nullptr || !messages->is_array()) {
    return Error{ErrorCode::bad_input, "no \"messages\" list", path, "load a file that /save wrote"};
  }
  LoadedChat chat{*messages, frame};
  auto& items = chat.messages.items;
  chat.frame.system.reset();
  if (!items.empty() && has_role(items[0], "system") && items[0].find("content") != nullptr &&
      items[0].find("content")->is_string()) {
    chat.frame.system = text_of(items[0], "content");
    items.erase(items.begin());
  }
  if (const Json* tools = tree->find("tools"); tools != nullptr && !tools->is_null()) chat.frame.tools = *tools;
  if (const Json* effort = tree->find("reasoning_effort"); effort != nullptr && !effort->is_null()) {
    chat.frame.effort = *effort;
  }
  give_ids(chat.messages);
  chat.messages = with_results(chat.messages, false);
  if (items.empty()) return chat;
  const auto request = chat_request(with_all_results(chat.messages), chat.frame);
  if (!request) return told_of(request.error(), path, ErrorCode::bad_input, "load a file that /save wrote");
  if (auto answerable = check_answerable(*request); !answerable) {
    Error error = answerable.error();
    error.where = path + ", " + error.where;
    return error;
  }
  return chat;
}

}  // namespace fathom::cli
