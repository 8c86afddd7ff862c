#include <algorithm>

#include "fathom/recipe/conformance/request_parts.h"

namespace fathom::recipe {
namespace {

Json typed(const char* type, std::initializer_list<std::pair<const char*, Json>> members) {
  Json out = object({{"type", Json::of(type)}});
  for (const auto& [key, value] : members) out.set(key, value);
  return out;
}

Json content(RequestParts& p, const char* kind) {
  Dice& dice = p.dice;
  if (dice.one_in(2)) return p.text();
  Json out = Json::array();
  for (uint32_t i = p.some(4); i > 0; --i) {
    if (dice.one_in(5)) {
      Json image = typed("input_image", {});
      if (!dice.one_in(20)) image.set("image_url", Json::of(p.image_url()));
      if (dice.one_in(20)) image.set("file_id", p.pick_json({R"("f")", R"("")", "null"}));
      if (dice.one_in(3)) image.set("detail", p.detail());
      out.push(image);
    } else if (dice.one_in(12)) {
      out.push(typed(dice.one_in(10) ? "refusal" : "input_file", {{"filename", Json::of("x.pdf")}}));
    } else {
      out.push(typed(kind, {{"text", p.text()}}));
    }
  }
  return out;
}

Json function_tool(RequestParts& p, uint32_t i) {
  Json out = p.function(int(i), "parameters");
  out.set("type", Json::of("function"));
  if (p.dice.one_in(12)) out.set("defer_loading", Json::of(p.dice.one_in(2)));
  return out;
}

Json name_space(RequestParts& p, uint32_t i) {
  Dice& dice = p.dice;
  Json out = typed("namespace", {{"name", Json::of(dice.one_in(25)  ? dice.pick({"", "a b"})
                                                   : dice.one_in(3) ? dice.pick({"n_", "a__b", "get_weather"})
                                                                    : "ns")}});
  if (!dice.one_in(3)) out.set("description", dice.one_in(6) ? Json() : p.text());
  Json tools = Json::array();
  for (uint32_t k = p.some(3); k > 0; --k) {
    tools.push(dice.one_in(40) ? json(R"({"type":"custom","name":"apply_patch"})") : function_tool(p, i + k - 1));
  }
  out.set("tools", tools);
  return out;
}

Json tool(RequestParts& p, uint32_t i) {
  Dice& dice = p.dice;
  switch (dice.below(9)) {
    case 0:
    case 1: return name_space(p, i);
    case 2:
      return typed("custom", {{"name", Json::of(dice.one_in(15) ? "exec" : "apply_patch")}, {"description", p.text()}});
    case 3:
      return p.pick_json({R"({"type":"web_search"})", R"({"type":"web_search_2025_08_26","search_context_size":"low"})",
                          R"({"type":"file_search","x":1})", R"({"type":"mcp"})",
                          R"({"type":"web_search","user_location":{"type":"approximate","city":"c"}})"});
    case 4: {
      Json out = typed("tool_search", {});
      if (!dice.one_in(5)) out.set("execution", Json::of(dice.one_in(5) ? "server" : "client"));
      if (dice.one_in(2)) out.set("description", p.text());
      if (dice.one_in(2)) out.set("parameters", p.schema(1));
      return out;
    }
    default: return function_tool(p, i);
  }
}

/// Calls of all kinds, then their outputs in another order.
void calls_with_outputs(RequestParts& p, Json& items) {
  Dice& dice = p.dice;
  std::vector<Json> outputs;
  for (uint32_t i = dice.below(3) + 1; i > 0; --i) {
    const Json id = Json::of(p.call_id());
    switch (dice.below(6)) {
      case 0:
        items.push(typed("custom_tool_call", {{"call_id", id},
                                              {"name", Json::of("apply_patch")},
                                              {"input", Json::of(dice.one_in(3) ? "*** Begin Patch\n" : p.plain())}}));
        outputs.push_back(typed("custom_tool_call_output", {{"call_id", id}, {"output", content(p, "input_text")}}));
        break;
      case 1: {
        items.push(typed("tool_search_call", {{"call_id", id},
                                              {"execution", Json::of(dice.one_in(6) ? "server" : "client")},
                                              {"arguments", object({{"q", p.value(1)}})}}));
        Json found = Json::array();
        for (uint32_t k = dice.below(3); k > 0; --k) found.push(tool(p, 3 + k));
        outputs.push_back(
            typed("tool_search_output", {{"call_id", id}, {"execution", Json::of("client")}, {"tools", found}}));
        break;
      }
      default: {
        Json call = typed("function_call",
                          {{"call_id", id}, {"name", Json::of(p.name())}, {"arguments", Json::of(p.arguments())}});
        if (dice.one_in(4)) call.set("namespace", p.pick_json({R"("ns")", R"("n_")", R"("other")", R"("")", "null"}));
        items.push(call);
        outputs.push_back(typed("function_call_output", {{"call_id", id}, {"output", content(p, "input_text")}}));
      }
    }
  }
  for (size_t i = outputs.size(); i > 1; --i) std::swap(outputs[i - 1], outputs[dice.below(uint32_t(i))]);
  if (dice.one_in(25)) outputs.pop_back();
  for (Json& output : outputs) {
    if (dice.one_in(40)) items.push(object({{"role", Json::of("user")}, {"content", p.text()}}));
    items.push(std::move(output));
  }
}

void item(RequestParts& p, Json& items) {
  Dice& dice = p.dice;
  switch (dice.below(9)) {
    case 0:
      items.push(typed("message",
                       {{"role", Json::of("assistant")},
                        {"content", dice.one_in(3) ? p.text() : list({typed("output_text", {{"text", p.text()}})})}}));
      break;
    case 1: {
      Json texts = Json::array();
      for (uint32_t i = dice.below(3); i > 0; --i) texts.push(typed("reasoning_text", {{"text", p.text()}}));
      Json out = typed("reasoning", {{"summary", Json::array()}});
      if (!dice.one_in(8)) out.set("content", dice.one_in(30) ? p.text() : dice.one_in(8) ? Json() : texts);
      items.push(out);
      break;
    }
    case 2:
    case 3: calls_with_outputs(p, items); break;
    case 4:
      items.push(
          object({{"role", Json::of(dice.pick({"system", "developer"}))}, {"content", content(p, "input_text")}}));
      break;
    case 5:
      items.push(p.pick_json({R"({"type":"web_search_call","id":"x"})", R"({"type":"item_reference","id":"x"})",
                              R"({"type":"compaction"})", R"({"type":"reasoning"})"}));
      break;
    default: items.push(object({{"role", Json::of("user")}, {"content", content(p, "input_text")}})); break;
  }
}

}  // namespace

void random_responses_request(RequestParts& p, Json& body) {
  Dice& dice = p.dice;
  if (dice.one_in(8)) {
    body.set("input", dice.one_in(8) ? Json() : p.text());
  } else {
    Json items = Json::array();
    for (uint32_t i = p.some(6); i > 0; --i) item(p, items);
    body.set("input", items);
  }
  if (dice.one_in(3)) body.set("instructions", dice.one_in(8) ? Json() : p.text());
  if (dice.one_in(2)) {
    Json tools = Json::array();
    for (uint32_t i = 0, n = dice.below(4); i < n; ++i) tools.push(tool(p, i));
    body.set("tools", tools);
  }
  if (dice.one_in(4)) {
    body.set("tool_choice",
             p.pick_json({R"("auto")", R"("none")", R"("required")", "null", R"({"type":"function","name":"search"})",
                          R"({"type":"function","name":"get_weather"})", R"({"type":"custom","name":"apply_patch"})",
                          R"({"type":"web_search"})", R"({"type":"function","name":"ns::get_weather"})"}));
  }
  if (dice.one_in(2)) {
    Json reasoning = Json::object();
    if (!dice.one_in(5)) reasoning.set("effort", p.effort());
    if (dice.one_in(4))
      reasoning.set(dice.pick({"summary", "generate_summary"}), p.pick_json({R"("auto")", R"("concise")", "null"}));
    body.set("reasoning", reasoning);
  }
  if (dice.one_in(4)) {
    Json text = Json::object();
    if (!dice.one_in(4)) {
      Json format = typed("json_schema", {{"name", Json::of("s")}, {"schema", p.any_schema()}});
      if (dice.one_in(3)) format.set("strict", p.pick_json({"true", "false", "null"}));
      text.set("format", dice.one_in(2) ? format : p.pick_json({R"({"type":"json_object"})", R"({"type":"text"})"}));
    }
    if (dice.one_in(3)) text.set("verbosity", Json::of("low"));
    body.set("text", text);
  }
  if (dice.one_in(8)) body.set("top_logprobs", p.pick_json({"0", "5", "20", "null", "5", "21"}));
  if (dice.one_in(8)) body.set("user", p.text());
  if (dice.one_in(12)) body.set("parallel_tool_calls", Json::of(dice.one_in(2)));
  if (dice.one_in(12)) body.set("stop", json(R"(["x"])"));
}

}  // namespace fathom::recipe
