#include "fathom/recipe/conformance/random_request.h"

#include "fathom/recipe/conformance/dice.h"

namespace fathom::recipe {
namespace {

constexpr const char* kPng =
    "data:image/"
    "png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

Json object(std::initializer_list<std::pair<const char*, Json>> members) {
  Json out = Json::object();
  for (const auto& [key, value] : members) out.set(key, value);
  return out;
}

Json list(std::vector<Json> items) {
  Json out = Json::array();
  out.items = std::move(items);
  return out;
}

Json number(const char* text) {
  Json out = Json::with_kind(Json::Kind::number);
  out.text = text;
  return out;
}

/// One request in the making.
class Maker {
 public:
  Maker(Api api, uint64_t seed) : api_(api), dice_(seed, uint32_t(api)) {}

  Json make() {
    Json body = Json::object();
    body.set("model", Json::of(dice_.one_in(30)  ? "nobody"
                               : dice_.one_in(3) ? "DeepSeek-V4-Pro"
                                                 : "DeepSeek-V4.1-Flash"));
    tools_ = dice_.one_in(2) ? 1 + int(dice_.below(3)) : 0;
    if (api_ == Api::chat_completions) chat(body);
    if (api_ == Api::responses) responses(body);
    if (api_ == Api::messages) messages(body);
    sampling(body);
    if (dice_.one_in(6)) spoil(body);
    return body;
  }

 private:
  Json text() { return Json::of(random_text(dice_)); }
  std::string call_id() { return "call_" + std::to_string(calls_++); }

  Json scalar() {
    switch (dice_.below(6)) {
      case 0: return Json::of(int64_t(dice_.below(1000)) - 500);
      case 1: return number(dice_.pick({"1.5", "-0.0", "1e30", "12345678901234567890", "0.1", "3e-7"}));
      case 2: return Json::of(dice_.one_in(2));
      case 3: return {};
      default: return text();
    }
  }

  Json value(int depth) {
    if (depth == 0 || dice_.one_in(2)) return scalar();
    if (dice_.one_in(2)) return list({value(depth - 1), value(depth - 1)});
    return object({{"k", value(depth - 1)}, {dice_.pick({"名", "two words", "k"}), value(depth - 1)}});
  }

  std::string arguments() {
    if (dice_.one_in(12))
      return std::string(dice_.pick_text({"", "{", "[1]", "5", "{\"a\":1} x", "{\"a\":1,\"a\":2}"}));
    Json out = Json::object();
    for (uint32_t i = dice_.below(4); i > 0; --i) out.set(dice_.pick({"city", "days", "opts", "q"}), value(2));
    return to_string(out);
  }

  Json property(int depth) {
    switch (dice_.below(depth > 0 ? 8u : 5u)) {
      case 0: return object({{"type", Json::of("string")}, {"description", text()}});
      case 1: return object({{"type", Json::of("integer")}, {"minimum", Json::of(1)}});
      case 2: return object({{"type", Json::of("boolean")}});
      case 3: return object({{"type", Json::of("string")}, {"enum", list({Json::of("a"), Json::of("b")})}});
      case 4: return object({{"type", Json::of(dice_.pick({"number", "string", "null", "nonsense"}))}});
      case 5: return object({{"type", Json::of("array")}, {"items", property(depth - 1)}});
      case 6: return object({{"anyOf", list({property(depth - 1), property(depth - 1)})}});
      default: return schema(depth - 1);
    }
  }

  Json schema(int depth) {
    Json properties = Json::object(), required = Json::array();
    for (const char* key : {"city", "days", "opts"}) {
      if (dice_.one_in(2)) continue;
      properties.set(key, property(depth));
      if (dice_.one_in(2)) required.push(Json::of(key));
    }
    Json out = object({{"type", Json::of("object")}, {"properties", properties}});
    if (dice_.one_in(2)) out.set("required", required);
    if (dice_.one_in(5)) out.set("additionalProperties", Json::of(dice_.one_in(3)));
    if (dice_.one_in(8)) out.set("$defs", object({{"d", property(0)}}));
    return out;
  }

  std::string tool_name(int i) {
    if (dice_.one_in(40)) return std::string(dice_.pick_text({"", "bad name", "ü", "get_weather"}));
    return i == 0 ? "get_weather" : i == 1 ? "search" : "tool-" + std::to_string(i);
  }

  Json function(int i, const char* schema_key) {
    Json out = object({{"name", Json::of(tool_name(i))}});
    if (!dice_.one_in(3)) out.set("description", text());
    if (!dice_.one_in(4) || api_ == Api::messages) out.set(schema_key, schema(2));
    if (api_ != Api::messages && dice_.one_in(4)) out.set("strict", Json::of(dice_.one_in(2)));
    return out;
  }

  void sampling(Json& body) {
    if (dice_.one_in(3)) body.set("temperature", number(dice_.pick({"0", "0.7", "1", "2", "2.5", "-1", "1.0"})));
    if (dice_.one_in(3)) body.set("top_p", number(dice_.pick({"0.3", "0.95", "1", "0", "0.999"})));
    if (dice_.one_in(3)) {
      body.set(api_ == Api::responses ? "max_output_tokens" : "max_tokens",
               number(dice_.pick({"1", "64", "4096", "393216", "393217", "0", "-1", "1.5"})));
    }
    if (dice_.one_in(3)) body.set("stream", Json::of(dice_.one_in(2)));
  }

  Json effort() {
    return Json::of(dice_.pick({"none", "minimal", "low", "medium", "high", "xhigh", "ultra", "max", "extreme"}));
  }
  Json thinking() {
    return object({{"type", Json::of(dice_.pick({"enabled", "disabled", "disabled", "adaptive", "on"}))}});
  }

  // -- Chat Completions --

  Json chat_content(bool images) {
    if (!dice_.one_in(3)) return text();
    Json parts = Json::array();
    for (uint32_t i = dice_.below(4); i > 0; --i) {
      if (images && dice_.one_in(3)) {
        parts.push(
            object({{"type", Json::of("image_url")},
                    {"image_url", object({{"url", Json::of(dice_.pick({kPng, "https://img.example/a.png", "ftp://x"}))},
                                          {"detail", Json::of(dice_.pick({"low", "high", "auto"}))}})}}));
      } else {
        parts.push(object({{"type", Json::of("text")}, {"text", text()}}));
      }
    }
    return parts;
  }

  void chat(Json& body) {
    Json turns = Json::array();
    if (dice_.one_in(2)) turns.push(object({{"role", Json::of("system")}, {"content", chat_content(false)}}));
    for (uint32_t i = dice_.below(5) + (dice_.one_in(40) ? 0u : 1u); i > 0; --i) chat_turn(turns);
    body.set("messages", turns);
    if (tools_ > 0) {
      Json tools = Json::array();
      for (int i = 0; i < tools_; ++i) {
        tools.push(object({{"type", Json::of("function")}, {"function", function(i, "parameters")}}));
      }
      body.set("tools", tools);
    }
    if (dice_.one_in(4)) {
      body.set("tool_choice", dice_.one_in(3) ? object({{"type", Json::of("function")},
                                                        {"function", object({{"name", Json::of("search")}})}})
                                              : Json::of(dice_.pick({"auto", "none", "required"})));
    }
    if (dice_.one_in(3)) body.set("thinking", thinking());
    if (dice_.one_in(4)) body.set("reasoning_effort", effort());
    if (dice_.one_in(4)) body.set("response_format", response_format());
    if (dice_.one_in(4)) body.set("stop", dice_.one_in(2) ? text() : list({Json::of("END"), text()}));
    if (dice_.one_in(6)) body.set("logprobs", Json::of(dice_.one_in(2)));
    if (dice_.one_in(6)) body.set("top_logprobs", number(dice_.pick({"0", "5", "20", "21"})));
    if (dice_.one_in(8)) body.set("seed", number(dice_.pick({"0", "7", "9223372036854775807", "9223372036854775808"})));
    if (dice_.one_in(8)) body.set("n", number(dice_.pick({"1", "2"})));
    if (dice_.one_in(8)) body.set("frequency_penalty", number(dice_.pick({"0", "1.5", "-2", "2.5"})));
    if (dice_.one_in(8)) body.set("stream_options", object({{"include_usage", Json::of(dice_.one_in(2))}}));
  }

  Json response_format() {
    switch (dice_.below(4)) {
      case 0: return object({{"type", Json::of("json_object")}});
      case 1: return object({{"type", Json::of("regex")}, {"regex", Json::of("a+b")}});
      case 2: return object({{"type", Json::of("text")}});
      default:
        return object(
            {{"type", Json::of("json_schema")},
             {"json_schema",
              object({{"name", Json::of("s")}, {"schema", schema(2)}, {"strict", Json::of(dice_.one_in(3))}})}});
    }
  }

  void chat_turn(Json& turns) {
    switch (dice_.below(6)) {
      case 0: {
        Json turn = object({{"role", Json::of("assistant")}, {"content", text()}});
        if (dice_.one_in(2)) turn.set("reasoning_content", text());
        if (dice_.one_in(10)) turn.set("prefix", Json::of(true));
        turns.push(turn);
        break;
      }
      case 1: {
        Json calls = Json::array();
        std::vector<std::string> ids;
        for (uint32_t i = dice_.below(3) + 1; i > 0; --i) {
          ids.push_back(call_id());
          calls.push(object({{"id", Json::of(ids.back())},
                             {"type", Json::of("function")},
                             {"function", object({{"name", Json::of(dice_.pick({"get_weather", "search"}))},
                                                  {"arguments", Json::of(arguments())}})}}));
        }
        Json turn = object(
            {{"role", Json::of("assistant")}, {"content", dice_.one_in(3) ? Json() : text()}, {"tool_calls", calls}});
        if (dice_.one_in(2)) turn.set("reasoning_content", text());
        turns.push(turn);
        if (dice_.one_in(2)) std::swap(ids.front(), ids.back());
        if (dice_.one_in(15)) ids.pop_back();
        for (const std::string& id : ids) {
          turns.push(
              object({{"role", Json::of("tool")}, {"tool_call_id", Json::of(id)}, {"content", chat_content(true)}}));
        }
        break;
      }
      case 2:
        turns.push(
            object({{"role", Json::of(dice_.pick({"latest_reminder", "system", "developer"}))}, {"content", text()}}));
        break;
      default: turns.push(object({{"role", Json::of("user")}, {"content", chat_content(true)}})); break;
    }
  }

  // -- Responses --

  Json parts(const char* kind) {
    if (dice_.one_in(2)) return text();
    Json out = Json::array();
    for (uint32_t i = dice_.below(3) + 1; i > 0; --i) {
      if (dice_.one_in(5))
        out.push(object({{"type", Json::of("input_image")}, {"image_url", Json::of(kPng)}}));
      else
        out.push(object({{"type", Json::of(kind)}, {"text", text()}}));
    }
    return out;
  }

  void responses(Json& body) {
    if (dice_.one_in(5)) {
      body.set("input", text());
    } else {
      Json items = Json::array();
      for (uint32_t i = dice_.below(6) + (dice_.one_in(40) ? 0u : 1u); i > 0; --i) response_item(items);
      body.set("input", items);
    }
    if (dice_.one_in(3)) body.set("instructions", text());
    if (tools_ > 0) {
      Json tools = Json::array();
      for (int i = 0; i < tools_; ++i) tools.push(response_tool(i));
      body.set("tools", tools);
    }
    if (dice_.one_in(4)) {
      body.set("tool_choice", dice_.one_in(3) ? object({{"type", Json::of("function")}, {"name", Json::of("search")}})
                                              : Json::of(dice_.pick({"auto", "none", "required"})));
    }
    if (dice_.one_in(3)) body.set("reasoning", object({{"effort", effort()}, {"summary", Json::of("auto")}}));
    if (dice_.one_in(4)) {
      body.set("text", object({{"format", dice_.one_in(2) ? object({{"type", Json::of("json_object")}})
                                                          : object({{"type", Json::of("json_schema")},
                                                                    {"name", Json::of("s")},
                                                                    {"schema", schema(2)}})}}));
    }
    if (dice_.one_in(6)) body.set("top_logprobs", number(dice_.pick({"0", "5", "21"})));
    if (dice_.one_in(6)) body.set("user", text());
  }

  Json response_tool(int i) {
    switch (dice_.below(8)) {
      case 0:
        return object({{"type", Json::of("namespace")},
                       {"name", Json::of("ns")},
                       {"description", text()},
                       {"tools", list({function_tool(i)})}});
      case 1:
        return object({{"type", Json::of("custom")}, {"name", Json::of(dice_.one_in(4) ? "exec" : "apply_patch")}});
      case 2: return object({{"type", Json::of(dice_.pick({"web_search", "web_search_2025_08_26", "file_search"}))}});
      case 3:
        return object({{"type", Json::of("tool_search")},
                       {"execution", Json::of("client")},
                       {"description", text()},
                       {"parameters", schema(1)}});
      default: return function_tool(i);
    }
  }
  Json function_tool(int i) {
    Json out = function(i, "parameters");
    out.set("type", Json::of("function"));
    return out;
  }

  void response_item(Json& items) {
    switch (dice_.below(8)) {
      case 0:
        items.push(object(
            {{"type", Json::of("message")}, {"role", Json::of("assistant")}, {"content", parts("output_text")}}));
        break;
      case 1:
        items.push(object(
            {{"type", Json::of("reasoning")},
             {"content",
              dice_.one_in(10) ? text() : list({object({{"type", Json::of("reasoning_text")}, {"text", text()}})})}}));
        break;
      case 2: {
        std::vector<std::string> ids;
        for (uint32_t i = dice_.below(3) + 1; i > 0; --i) {
          ids.push_back(call_id());
          items.push(object({{"type", Json::of("function_call")},
                             {"call_id", Json::of(ids.back())},
                             {"name", Json::of(dice_.pick({"get_weather", "search"}))},
                             {"arguments", Json::of(arguments())}}));
        }
        if (dice_.one_in(2)) std::swap(ids.front(), ids.back());
        if (dice_.one_in(15)) ids.pop_back();
        for (const std::string& id : ids) {
          if (dice_.one_in(15)) items.push(object({{"role", Json::of("user")}, {"content", text()}}));
          items.push(object({{"type", Json::of("function_call_output")},
                             {"call_id", Json::of(id)},
                             {"output", parts("input_text")}}));
        }
        break;
      }
      case 3:
        items.push(object({{"role", Json::of(dice_.pick({"system", "developer"}))}, {"content", parts("input_text")}}));
        break;
      case 4:
        items.push(object({{"type", Json::of(dice_.pick({"web_search_call", "item_reference", "compaction"}))},
                           {"id", Json::of("x")}}));
        break;
      default: items.push(object({{"role", Json::of("user")}, {"content", parts("input_text")}})); break;
    }
  }

  // -- Messages --

  Json block_text() { return object({{"type", Json::of("text")}, {"text", text()}}); }
  Json blocks(bool images) {
    if (dice_.one_in(2)) return text();
    Json out = Json::array();
    for (uint32_t i = dice_.below(3) + (dice_.one_in(20) ? 0u : 1u); i > 0; --i) {
      if (images && dice_.one_in(4)) {
        out.push(object({{"type", Json::of("image")},
                         {"source", object({{"type", Json::of("base64")},
                                            {"media_type", Json::of("image/png")},
                                            {"data", Json::of("iVBORw0KGgo=")}})}}));
      } else {
        out.push(block_text());
      }
    }
    return out;
  }

  void messages(Json& body) {
    Json turns = Json::array();
    for (uint32_t i = dice_.below(5) + (dice_.one_in(40) ? 0u : 1u); i > 0; --i) message_turn(turns);
    body.set("messages", turns);
    if (dice_.one_in(2)) {
      body.set("system",
               dice_.one_in(2)
                   ? text()
                   : list({dice_.one_in(3) ? object({{"type", Json::of("text")},
                                                     {"text", Json::of("x-anthropic-billing-header: a;\nrest")}})
                                           : block_text(),
                           block_text()}));
    }
    if (tools_ > 0) {
      Json tools = Json::array();
      for (int i = 0; i < tools_; ++i) {
        Json tool = function(i, "input_schema");
        if (dice_.one_in(5)) tool.set("defer_loading", Json::of(true));
        tools.push(tool);
      }
      body.set("tools", tools);
    }
    if (dice_.one_in(4)) {
      body.set("tool_choice", dice_.one_in(3) ? object({{"type", Json::of("tool")}, {"name", Json::of("search")}})
                                              : object({{"type", Json::of(dice_.pick({"auto", "any", "none"}))}}));
    }
    if (dice_.one_in(3)) body.set("thinking", thinking());
    if (dice_.one_in(4)) body.set("output_config", object({{"effort", effort()}}));
    if (dice_.one_in(4)) body.set("stop_sequences", list({Json::of("END"), text()}));
  }

  void message_turn(Json& turns) {
    switch (dice_.below(6)) {
      case 0: {
        Json content = Json::array();
        if (dice_.one_in(2))
          content.push(object({{"type", Json::of("thinking")}, {"thinking", text()}, {"signature", Json::of("s")}}));
        content.push(block_text());
        turns.push(object({{"role", Json::of("assistant")}, {"content", content}}));
        break;
      }
      case 1: {
        Json content = Json::array(), results = Json::array();
        if (dice_.one_in(2))
          content.push(object({{"type", Json::of("thinking")}, {"thinking", text()}, {"signature", Json::of("s")}}));
        std::vector<std::string> ids;
        for (uint32_t i = dice_.below(3) + 1; i > 0; --i) {
          ids.push_back(call_id());
          content.push(object({{"type", Json::of("tool_use")},
                               {"id", Json::of(ids.back())},
                               {"name", Json::of(dice_.pick({"get_weather", "search"}))},
                               {"input", object({{"city", value(2)}})}}));
        }
        turns.push(object({{"role", Json::of("assistant")}, {"content", content}}));
        if (dice_.one_in(2)) std::swap(ids.front(), ids.back());
        if (dice_.one_in(15)) ids.pop_back();
        for (const std::string& id : ids) {
          results.push(
              object({{"type", Json::of("tool_result")}, {"tool_use_id", Json::of(id)}, {"content", blocks(true)}}));
        }
        if (dice_.one_in(3)) results.push(block_text());
        turns.push(object({{"role", Json::of("user")}, {"content", results}}));
        break;
      }
      case 2: turns.push(object({{"role", Json::of("system")}, {"content", blocks(false)}})); break;
      default: turns.push(object({{"role", Json::of("user")}, {"content", blocks(true)}})); break;
    }
  }

  /// Gives one value somewhere another type, or takes it away.
  void spoil(Json& value) {
    Json* at = &value;
    for (int depth = int(dice_.below(5)) + 1; depth > 0; --depth) {
      if (!at->fields.empty())
        at = &at->fields[dice_.below(uint32_t(at->fields.size()))].second;
      else if (!at->items.empty())
        at = &at->items[dice_.below(uint32_t(at->items.size()))];
    }
    if (at == &value) return;
    switch (dice_.below(5)) {
      case 0: *at = Json(); break;
      case 1: *at = Json::of(3); break;
      case 2: *at = Json::array(); break;
      case 3: *at = Json::object(); break;
      default: *at = Json::of("odd"); break;
    }
  }

  Api api_;
  Dice dice_;
  int tools_ = 0, calls_ = 0;
};

}  // namespace

Json random_request(Api api, uint64_t seed) { return Maker(api, seed).make(); }

}  // namespace fathom::recipe
