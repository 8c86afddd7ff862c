#include "fathom/recipe/conformance/request_parts.h"

#include "fathom/base/check.h"

namespace fathom::recipe {

Json json(std::string_view text) {
  auto tree = parse_json(text, "");
  check(tree.ok(), "our own JSON is JSON");
  return std::move(*tree);
}

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

std::string RequestParts::plain() {
  if (!dice.one_in(10)) return random_text(dice);
  return std::string(
      dice.pick_text({"", "json", "JSON please", "x-anthropic-billing-header: cch=1;\nrest",
                      "x-anthropic-billing-header", "x-anthropic-billing-header: q\r\n\r\n \u3000z", "a\r\nb",
                      "\u0001\u001f\u007f\u0085", "  ", "<｜image｜>", "<｜image｜><｜image｜>", "\"\\/\b\f"}));
}

std::string RequestParts::call_id() {
  if (dice.one_in(30)) return std::string(dice.pick_text({"call_0", "call_1", ""}));
  const std::string n = std::to_string(calls_++);
  return (dice.one_in(6) ? "call_0" + n.substr(0, 1) + "_ET_" : dice.one_in(6) ? "b" : "call_") + n;
}

Json RequestParts::scalar() {
  switch (dice.below(6)) {
    case 0: return Json::of(int64_t(dice.below(1000)) - 500);
    case 1:
      return pick_json({"1.5", "-0.0", "-0", "1e30", "12345678901234567890", "18446744073709551615", "1e16", "0.1",
                        "3e-7", "2.50", "1E+2", "-9223372036854775808", "123456789012345678901234567890", "5e-324"});
    case 2: return Json::of(dice.one_in(2));
    case 3: return {};
    default: return text();
  }
}

Json RequestParts::value(int depth) {
  if (depth == 0 || dice.one_in(2)) return scalar();
  if (dice.one_in(2)) return list({value(depth - 1), value(depth - 1)});
  return object({{"k", value(depth - 1)}, {dice.pick({"名", "two words", "k", "q\"", ""}), value(depth - 1)}});
}

std::string RequestParts::arguments() {
  if (dice.one_in(12))
    return std::string(
        dice.pick_text({"", "{", "[1]", "5", "null", "{\"a\":1} x", "{\"a\":1,\"a\":2}", " {\"a\" : 1.0}\n",
                        "{\"a\":\"\\ud83d\\ude00\\u2028\"}", "{\"a\":1e400}", "{\"a\":\"\\ud83d\"}"}));
  Json out = Json::object();
  for (uint32_t i = dice.below(4); i > 0; --i) out.set(dice.pick({"city", "days", "opts", "q", "input"}), value(2));
  return to_string(out);
}

Json RequestParts::property(int depth) {
  switch (dice.below(depth > 0 ? 9u : 5u)) {
    case 0: return object({{"type", Json::of("string")}, {"description", text()}});
    case 1:
      return pick_json({R"({"type":"integer","minimum":1})", R"({"minimum":1.50,"type":"number","maximum":1e30})",
                        R"({"type":"integer","enum":[1,2],"default":1})", R"({"type":"number","multipleOf":0.1})"});
    case 2:
      return pick_json({R"({"type":"boolean"})", R"({"type":["string","null"]})", R"({"type":"array"})",
                        R"({"const":[1,{"a":null}]})", R"({"type":"string","format":"email","pattern":"^a+$"})"});
    case 3: return pick_json({R"({"type":"string","enum":["a","b"]})", R"({"enum":["a",1,null]})"});
    case 4:
      return dice.one_in(16) ? pick_json({R"({"type":"nonsense"})", "true", "{}", R"({"type":"string","format":"zz"})",
                                          R"({"type":"string","pattern":"["})", R"({"minimum":"1"})", "5"})
                             : pick_json({R"({"type":"number"})", R"({"type":"null"})"});
    case 5: return object({{"type", Json::of("array")}, {"items", property(depth - 1)}});
    case 6: return object({{"anyOf", list({property(depth - 1), property(depth - 1)})}});
    case 7: return object({{"description", text()}, {"oneOf", list({property(depth - 1)})}});
    default: return schema(depth - 1);
  }
}

Json RequestParts::schema(int depth) {
  Json properties = Json::object(), required = Json::array();
  for (const char* key : {"city", "days", "opts"}) {
    if (dice.one_in(2)) continue;
    properties.set(key, property(depth));
    if (dice.one_in(2)) required.push(Json::of(key));
  }
  Json out = object({{"type", Json::of("object")}, {"properties", properties}});
  if (dice.one_in(2)) out.set("required", required);
  if (dice.one_in(5)) out.set("additionalProperties", Json::of(dice.one_in(3)));
  if (dice.one_in(8)) {
    out.set("$defs", object({{"d", property(0)}}));
    if (!properties.fields.empty()) out.fields[1].second.fields[0].second = json(R"({"$ref":"#/$defs/d"})");
  }
  if (dice.one_in(10)) out.set("description", text());
  if (dice.one_in(20))
    out.set("$schema", pick_json({R"("http://json-schema.org/draft-07/schema#")",
                                  R"("https://json-schema.org/draft/2020-12/schema")"}));
  return out;
}

/// Mostly of the forms that strict tools may have, every property required.
Json RequestParts::strict_schema(int depth) {
  Json properties = Json::object(), required = Json::array();
  for (const char* key : {"city", "days", "opts"}) {
    if (dice.one_in(3)) continue;
    properties.set(key,
                   depth > 0 && dice.one_in(5)
                       ? strict_schema(depth - 1)
                       : pick_json({R"({"type":"string","description":"d","pattern":"a*"})", R"({"type":"boolean"})",
                                    R"({"type":"integer","minimum":1,"enum":[1,2]})", R"({"$ref":"#/$defs/d"})",
                                    R"({"maximum":2.50,"type":"number","default":1e3,"x":1})",
                                    R"({"type":"array","items":{"type":"string","enum":["a","b"]}})",
                                    R"({"anyOf":[{"type":"null"},{"type":"string"}],"description":"d"})"}));
    required.push(Json::of(key));
  }
  Json out = object({{"properties", properties}, {"type", Json::of("object")}});
  if (!dice.one_in(4)) out.set("required", required);
  if (dice.one_in(2)) out.set("additionalProperties", Json::of(false));
  if (dice.one_in(4)) out.set("description", text());
  if (dice.one_in(4)) out.set("$defs", json(R"({"d":{"type":"string"}})"));
  return out;
}

Json RequestParts::any_schema() {
  if (dice.one_in(25))
    return pick_json({"null", "{}", "true", "5", R"({"type":"string"})", R"({"type":["object"]})",
                      R"({"type":"object","required":"x"})",
                      R"({"type":"object","x":[1e3,12345678901234567890,-0.0,2.50]})",
                      R"({"type":"object","required":["a","a"]})"});
  return schema(2);
}

Json RequestParts::function(int i, const char* schema_key) {
  const std::string name = dice.one_in(60)
                               ? std::string(dice.pick_text({"", "bad name", "ü", "get_weather", "n__f", "a::b"}))
                           : i == 0 ? "get_weather"
                           : i == 1 ? "search"
                                    : "tool-" + std::to_string(i);
  Json out = object({{"name", Json::of(name)}});
  if (!dice.one_in(3)) out.set("description", dice.one_in(8) ? Json() : text());
  const bool strict = api != Api::messages && dice.one_in(20);
  if (strict || !dice.one_in(4) || api == Api::messages) out.set(schema_key, strict ? strict_schema(1) : any_schema());
  if (strict || dice.one_in(12)) out.set("strict", strict ? Json::of(true) : pick_json({"false", "null", "true"}));
  return out;
}

Json RequestParts::effort() {
  if (dice.one_in(30)) return pick_json({R"("extreme")", "30", "null", R"("")", "1.5"});
  return Json::of(dice.pick({"none", "minimal", "low", "medium", "high", "xhigh", "ultra", "max"}));
}

Json RequestParts::thinking() {
  if (dice.one_in(30)) return pick_json({R"({"type":"on"})", "{}", "null", R"({"type":"enabled","budget_tokens":-1})"});
  return pick_json({R"({"type":"enabled"})", R"({"type":"disabled"})", R"({"type":"disabled"})",
                    R"({"type":"adaptive"})", R"({"type":"enabled","budget_tokens":1024})"});
}

std::string RequestParts::image_url() {
  if (dice.one_in(25))
    return std::string(dice.pick_text({"ftp://x", "data:image/svg+xml;base64,AAAA", "data:image/png;base64,@@", "",
                                       "zz", "data:image/png,AAAA", "data:text/plain,AA", "data:image/png;base64,AA",
                                       "data:image/gif;base64,A A==\n", "data:image/bmp;base64,AA=="}));
  if (dice.one_in(60)) return "http://" + std::string(dice.one_in(2) ? 8185 : 8186, 'a');
  return std::string(dice.pick_text(
      {"data:image/"
       "png;base64,"
       "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
       "data:image/png;base64,iVBORw0KGgo=", "https://img.example/a.png", "HTTP://x/y?z=é",
       "DATA:IMAGE/JPEG;BASE64,AAAA", "data:image/webp;base64,"}));
}

}  // namespace fathom::recipe
