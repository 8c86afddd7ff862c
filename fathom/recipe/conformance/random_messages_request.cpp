#include <algorithm>

#include "fathom/recipe/conformance/request_parts.h"

namespace fathom::recipe {
namespace {

Json text_block(RequestParts& p) { return object({{"type", Json::of("text")}, {"text", p.text()}}); }

Json image(RequestParts& p) {
  Dice& dice = p.dice;
  Json source;
  if (dice.one_in(2)) {
    source = object(
        {{"type", Json::of("base64")},
         {"media_type",
          Json::of(dice.one_in(20) ? "image/bmp" : dice.pick({"image/png", "image/jpg", "image/jpeg", "image/webp"}))},
         {"data", Json::of(dice.one_in(12) ? dice.pick({"AA", "A", "@@", "AAAA=", "AB==", ""})
                                           : dice.pick({"iVBORw0KGgo=", "AAAA", "AA==", "//8="}))}});
  } else if (dice.one_in(15)) {
    source = p.pick_json(
        {R"({"type":"file","file_id":"f"})", R"({"type":"url"})", "null", R"({"type":"url","url":"ftp://x\"\n"})"});
  } else {
    source =
        object({{"type", Json::of("url")},
                {"url", Json::of(dice.one_in(12)
                                     ? p.image_url()
                                     : std::string(dice.pick_text({"https://img.example/a", "http", "HTTPS://é"})))}});
  }
  return object({{"type", Json::of("image")}, {"source", source}});
}

Json document(RequestParts& p) {
  return p.pick_json({R"({"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"x"}})",
                      R"({"type":"document","source":{"media_type":null},"title":"t"})",
                      R"({"type":"document","source":{}})"});
}

Json reference(RequestParts& p, const char* key) {
  return object({{"type", Json::of("tool_reference")}, {key, Json::of(p.dice.one_in(15) ? "nobody" : "search")}});
}

Json thinking(RequestParts& p) {
  Json out = object({{"type", Json::of("thinking")}, {"thinking", p.text()}});
  if (!p.dice.one_in(4)) out.set("signature", p.dice.one_in(8) ? Json() : Json::of("s"));
  return out;
}

/// Blocks where they do not belong.
Json odd_block(RequestParts& p) {
  return p.pick_json(
      {R"({"type":"server_tool_use","id":"s","name":"web_search","input":{}})",
       R"({"type":"web_search_tool_result","tool_use_id":"s","content":[]})",
       R"({"type":"redacted_thinking","data":"x"})", R"({"type":"tool_use","id":"x","name":"f","input":{}})",
       R"({"type":"tool_result","tool_use_id":"x"})", R"({"type":"thinking","thinking":"t"})",
       R"({"type":"tool_addition","tool":{"type":"tool_reference","name":"search"}})", R"({"text":"x"})"});
}

Json blocks(RequestParts& p) {
  Dice& dice = p.dice;
  if (dice.one_in(2)) return p.text();
  Json out = Json::array();
  for (uint32_t i = p.some(4); i > 0; --i) {
    out.push(dice.one_in(40) ? odd_block(p) : dice.one_in(5) ? image(p) : dice.one_in(9) ? document(p) : text_block(p));
  }
  return out;
}

Json result(RequestParts& p, const std::string& id) {
  Dice& dice = p.dice;
  Json out = object({{"type", Json::of("tool_result")}, {"tool_use_id", Json::of(id)}});
  if (dice.one_in(3)) {
    Json parts = Json::array();
    for (uint32_t i = dice.below(4); i > 0; --i) {
      parts.push(dice.one_in(3)   ? reference(p, "tool_name")
                 : dice.one_in(3) ? image(p)
                 : dice.one_in(6) ? document(p)
                                  : text_block(p));
    }
    out.set("content", parts);
  } else if (!dice.one_in(10)) {
    out.set("content", dice.one_in(12) ? Json() : p.text());
  }
  if (dice.one_in(8)) out.set("is_error", Json::of(dice.one_in(2)));
  return out;
}

void uses_with_results(RequestParts& p, Json& turns) {
  Dice& dice = p.dice;
  Json content = Json::array(), results = Json::array();
  if (dice.one_in(2)) content.push(thinking(p));
  if (dice.one_in(2)) content.push(text_block(p));
  std::vector<std::string> ids;
  for (uint32_t i = dice.below(3) + 1; i > 0; --i) {
    ids.push_back(p.call_id());
    content.push(object({{"type", Json::of("tool_use")},
                         {"id", Json::of(ids.back())},
                         {"name", Json::of(p.name())},
                         {"input", dice.one_in(12) ? p.value(1) : object({{"city", p.value(2)}, {"q", p.value(0)}})}}));
  }
  if (dice.one_in(15)) content.push(dice.one_in(2) ? thinking(p) : text_block(p));
  turns.push(object({{"role", Json::of("assistant")}, {"content", content}}));
  for (size_t i = ids.size(); i > 1; --i) std::swap(ids[i - 1], ids[dice.below(uint32_t(i))]);
  if (dice.one_in(25)) ids.pop_back();
  if (dice.one_in(25)) ids.push_back(p.call_id());
  if (dice.one_in(30)) results.push(text_block(p));
  for (const std::string& id : ids) results.push(result(p, id));
  if (dice.one_in(3)) results.push(dice.one_in(4) ? image(p) : text_block(p));
  turns.push(object({{"role", Json::of("user")}, {"content", results}}));
}

void turn(RequestParts& p, Json& turns) {
  Dice& dice = p.dice;
  switch (dice.below(7)) {
    case 0: {
      Json content = Json::array();
      if (dice.one_in(2)) content.push(thinking(p));
      for (uint32_t i = dice.below(3); i > 0; --i)
        content.push(dice.one_in(40) ? odd_block(p) : dice.one_in(10) ? document(p) : text_block(p));
      if (content.items.empty() && !dice.one_in(5)) content = p.text();
      turns.push(object({{"role", Json::of("assistant")}, {"content", content}}));
      break;
    }
    case 1:
    case 2: uses_with_results(p, turns); break;
    case 3: {
      Json content = blocks(p);
      if (content.is_array() && dice.one_in(2))
        content.push(object({{"type", Json::of("tool_addition")}, {"tool", reference(p, "name")}}));
      turns.push(object({{"role", Json::of("system")}, {"content", content}}));
      break;
    }
    default: turns.push(object({{"role", Json::of("user")}, {"content", blocks(p)}})); break;
  }
}

}  // namespace

void random_messages_request(RequestParts& p, Json& body) {
  Dice& dice = p.dice;
  Json turns = Json::array();
  for (uint32_t i = p.some(5); i > 0; --i) turn(p, turns);
  body.set("messages", turns);
  if (dice.one_in(2)) {
    Json texts = Json::array();
    for (uint32_t i = dice.below(3); i > 0; --i) texts.push(text_block(p));
    body.set("system", dice.one_in(2) ? p.text() : texts);
  }
  if (!dice.one_in(3)) {
    Json tools = Json::array();
    for (uint32_t i = 0, n = dice.one_in(3) ? p.some(4) : 3; i < n; ++i) {
      Json tool = p.function(int(i), "input_schema");
      if (dice.one_in(4)) tool.set("defer_loading", p.pick_json({"true", "true", "false", "null"}));
      tools.push(tool);
    }
    if (dice.one_in(20)) {
      tools.push(p.pick_json({R"({"type":"web_search_20250305","name":"web_search"})", R"({"type":"web_search"})",
                              R"({"type":"custom","name":"q","input_schema":{}})",
                              R"({"type":"bash_20250124","name":"bash"})"}));
    }
    body.set("tools", tools);
  }
  if (dice.one_in(4)) {
    body.set("tool_choice",
             p.pick_json({R"({"type":"auto"})", R"({"type":"any"})", R"({"type":"none"})", "null",
                          R"({"type":"tool","name":"search"})", R"({"type":"tool","name":"get_weather"})"}));
  }
  if (dice.one_in(2)) body.set("thinking", p.thinking());
  if (dice.one_in(3)) body.set("output_config", object({{"effort", p.effort()}, {"format", Json::of(5)}}));
  if (dice.one_in(4)) {
    body.set("stop_sequences",
             dice.one_in(8) ? list({Json::of("END"), p.text()})
                            : p.pick_json({R"(["END"," "])", R"(["fox","fox"])", "[]", "null", R"(["</think>"])"}));
  }
  if (dice.one_in(60)) body.set("stop_sequences", list(std::vector<Json>(16 + dice.below(2), Json::of("x"))));
  if (dice.one_in(12)) body.set("metadata", p.pick_json({R"({"user_id":"u"})", "{}", R"({"user_id":null})"}));
  if (dice.one_in(12)) body.set("top_k", Json::of(5));
}

}  // namespace fathom::recipe
