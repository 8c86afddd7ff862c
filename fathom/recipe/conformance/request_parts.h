// fathom/recipe/conformance/request_parts.h
// What the random requests of the three APIs are made of. Private to this folder.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fathom/base/json.h"
#include "fathom/recipe/conformance/dice.h"
#include "fathom/recipe/policy.h"

namespace fathom::recipe {

/// JSON that we have written ourselves.
Json json(std::string_view text);
Json object(std::initializer_list<std::pair<const char*, Json>> members);
Json list(std::vector<Json> items);

/// One request in the making.
class RequestParts {
 public:
  RequestParts(Api api, uint64_t seed) : dice(seed, uint32_t(api)), api(api) {}

  Dice dice;
  const Api api;

  Json pick_json(std::initializer_list<std::string_view> texts) { return json(dice.pick_text(texts)); }
  Json text() { return Json::of(plain()); }
  std::string plain();
  /// "call_3", now and then the id of another call, or a form that the rules treat specially.
  std::string call_id();
  /// "get_weather" and the like: names that tools of the same request often have.
  std::string name() { return std::string(dice.pick_text({"get_weather", "search", "tool-2", "apply_patch"})); }
  /// The text of a call's arguments: an object, seldom something else.
  std::string arguments();
  Json value(int depth);
  Json schema(int depth);
  /// A schema or what stands in its place: nothing, no schema, no object.
  Json any_schema();
  /// name, description, schema under `schema_key`, strict: the part of a tool that all APIs have.
  Json function(int i, const char* schema_key);
  Json effort();
  Json thinking();
  /// A data URL or link, in `rare` cases one that is refused.
  std::string image_url();
  Json detail() { return pick_json({R"("low")", R"("high")", R"("original")", R"("auto")", "null"}); }
  /// 1 to n - 1, seldom 0.
  uint32_t some(uint32_t n) { return dice.one_in(25) ? 0 : 1 + dice.below(n - 1); }

 private:
  Json scalar();
  Json property(int depth);
  Json strict_schema(int depth);
  int calls_ = 0;
};

void random_chat_request(RequestParts& parts, Json& body);
void random_responses_request(RequestParts& parts, Json& body);
void random_messages_request(RequestParts& parts, Json& body);

}  // namespace fathom::recipe
