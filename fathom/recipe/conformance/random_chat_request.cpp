#include <algorithm>

#include "fathom/recipe/conformance/request_parts.h"

namespace fathom::recipe {
namespace {

Json part(RequestParts& p, bool images) {
  if (!images || p.dice.one_in(2)) return object({{"type", Json::of("text")}, {"text", p.text()}});
  if (p.dice.one_in(3)) {
    Json file = object({{"type", Json::of("file")}});
    if (!p.dice.one_in(8))
      file.set("file_data", Json::of(p.dice.one_in(6) ? p.image_url() : "data:image/png;base64,AAAA"));
    if (p.dice.one_in(8)) file.set("file_id", p.pick_json({R"("f")", "null"}));
    return file;
  }
  Json image = object({{"url", Json::of(p.image_url())}});
  if (p.dice.one_in(2)) image.set("detail", p.detail());
  return object({{"type", Json::of("image_url")}, {"image_url", image}});
}

Json content(RequestParts& p, bool images) {
  if (!p.dice.one_in(3)) return p.text();
  Json parts = Json::array();
  for (uint32_t i = p.dice.below(4); i > 0; --i) parts.push(part(p, images));
  return parts;
}

Json assistant(RequestParts& p) {
  Json turn = object({{"role", Json::of("assistant")}, {"content", content(p, p.dice.one_in(20))}});
  if (p.dice.one_in(2)) turn.set("reasoning_content", p.dice.one_in(6) ? Json() : p.text());
  return turn;
}

void calls_with_results(RequestParts& p, Json& turns) {
  Dice& dice = p.dice;
  Json calls = Json::array();
  std::vector<std::string> ids;
  for (uint32_t i = dice.below(3) + 1; i > 0; --i) {
    ids.push_back(p.call_id());
    calls.push(object({{"id", Json::of(ids.back())},
                       {"type", Json::of("function")},
                       {"function", object({{"name", Json::of(p.name())}, {"arguments", Json::of(p.arguments())}})}}));
  }
  Json turn = assistant(p);
  if (dice.one_in(3)) turn.set("content", Json());
  turn.set("tool_calls", dice.one_in(40) ? Json::array() : calls);
  turns.push(turn);
  for (size_t i = ids.size(); i > 1; --i) std::swap(ids[i - 1], ids[dice.below(uint32_t(i))]);
  if (dice.one_in(25)) ids.pop_back();
  if (dice.one_in(25)) ids.push_back(p.call_id());
  for (const std::string& id : ids) {
    turns.push(object({{"role", Json::of("tool")}, {"tool_call_id", Json::of(id)}, {"content", content(p, true)}}));
  }
}

void turn(RequestParts& p, Json& turns) {
  switch (p.dice.below(7)) {
    case 0: turns.push(assistant(p)); break;
    case 1:
    case 2: calls_with_results(p, turns); break;
    case 3: {
      const char* role = p.dice.one_in(80) ? "developer" : p.dice.pick({"latest_reminder", "system"});
      turns.push(object({{"role", Json::of(role)}, {"content", p.text()}, {"name", Json::of("n")}}));
      break;
    }
    default: turns.push(object({{"role", Json::of("user")}, {"content", content(p, true)}})); break;
  }
}

Json response_format(RequestParts& p) {
  switch (p.dice.below(4)) {
    case 0: return json(R"({"type":"json_object"})");
    case 1: return json(R"({"type":"regex","regex":"a+b"})");
    case 2: return json(R"({"type":"text"})");
    default: {
      Json format = object({{"name", Json::of("s")}, {"schema", p.any_schema()}});
      if (p.dice.one_in(3)) format.set("strict", Json::of(p.dice.one_in(2)));
      return object({{"type", Json::of("json_schema")}, {"json_schema", format}});
    }
  }
}

}  // namespace

void random_chat_request(RequestParts& p, Json& body) {
  Dice& dice = p.dice;
  Json turns = Json::array();
  if (dice.one_in(2)) turns.push(object({{"role", Json::of("system")}, {"content", content(p, dice.one_in(6))}}));
  for (uint32_t i = p.some(5); i > 0; --i) turn(p, turns);
  const bool prefix = dice.one_in(8);
  if (prefix) {
    Json last = assistant(p);
    last.set("prefix", p.pick_json({"true", "true", "true", "false", "null"}));
    turns.push(last);
  }
  body.set("messages", turns);
  const uint32_t tools = prefix && !dice.one_in(8) ? 0 : dice.one_in(2) ? 1 + dice.below(3) : 0;
  if (tools > 0 || dice.one_in(20)) {
    Json all = Json::array();
    for (uint32_t i = 0; i < tools; ++i) {
      all.push(object({{"type", Json::of("function")}, {"function", p.function(int(i), "parameters")}}));
    }
    body.set("tools", all);
  }
  if (dice.one_in(4)) {
    body.set("tool_choice", p.pick_json({R"("auto")", R"("none")", R"("required")", "null",
                                         R"({"type":"function","function":{"name":"search"}})",
                                         R"({"type":"function","function":{"name":"get_weather"}})"}));
  }
  if (dice.one_in(2)) body.set("thinking", p.thinking());
  if (dice.one_in(3)) body.set("reasoning_effort", p.effort());
  if (dice.one_in(5)) body.set("response_format", response_format(p));
  if (dice.one_in(5)) {
    body.set("stop", dice.one_in(3) ? p.text()
                     : dice.one_in(3)
                         ? list({Json::of("END"), p.text()})
                         : p.pick_json({R"(["END"," "])", R"("fox")", "[]", R"(["<","</think>"])", "null"}));
  }
  if (dice.one_in(60)) body.set("stop", list(std::vector<Json>(16 + dice.below(2), Json::of("x"))));
  const bool logprobs = dice.one_in(5);
  if (logprobs) body.set("logprobs", Json::of(!dice.one_in(8)));
  if (logprobs || dice.one_in(40)) body.set("top_logprobs", p.pick_json({"0", "5", "20", "null", "20", "21"}));
  if (dice.one_in(10)) body.set("seed", p.pick_json({"0", "7", "9223372036854775807", "9223372036854775808"}));
  if (dice.one_in(10)) body.set("n", p.pick_json({"1", "1", "null", "2"}));
  if (dice.one_in(10)) body.set("frequency_penalty", p.pick_json({"0", "1.5", "-2", "2.5"}));
  if (dice.one_in(10)) body.set("presence_penalty", p.pick_json({"0", "2", "null", "-2.5"}));
  if (dice.one_in(8)) {
    body.set("stream_options", p.pick_json({"{}", R"({"include_usage":true})", R"({"include_usage":false})", "null"}));
    if (!dice.one_in(6)) body.set("stream", Json::of(true));
  }
  if (dice.one_in(10)) body.set("parallel_tool_calls", Json::of(dice.one_in(2)));
}

}  // namespace fathom::recipe
