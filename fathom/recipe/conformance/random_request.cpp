#include "fathom/recipe/conformance/random_request.h"

#include "fathom/base/check.h"
#include "fathom/recipe/conformance/request_parts.h"

namespace fathom::recipe {
namespace {

void sampling(RequestParts& p, Json& body) {
  Dice& dice = p.dice;
  const auto maybe = [&](uint32_t n, const char* key, std::initializer_list<std::string_view> values) {
    if (dice.one_in(n)) body.set(key, p.pick_json(values));
  };
  maybe(4, "temperature", {"0", "0.7", "1", "2", "1.0", "1.3", "0.1", "1e-3", "null"});
  maybe(4, "top_p", {"0.3", "0.95", "1", "0.999", "0.97", "null", "1e-9"});
  maybe(60, "temperature", {"2.5", "-1", "2.0000001", "1e300", "-0.0"});
  maybe(60, "top_p", {"0", "1.5", "1.00000001", "-0.5", "1e-50"});
  const char* limit = p.api == Api::responses ? "max_output_tokens" : "max_tokens";
  maybe(3, limit, {"1", "64", "4096", "393216", "null"});
  maybe(40, limit, {"393217", "0", "-1", "1.5", "4294967295", "4294967296", "1.0", "-0"});
  maybe(3, "stream", {"true", "false", "null"});
}

/// Gives one value somewhere another type or another place, or takes it away.
void spoil(Dice& dice, Json& body) {
  Json *at = &body, *parent = nullptr;
  for (int depth = int(dice.below(6)) + 1; depth > 0; --depth) {
    if (at->fields.empty() && at->items.empty()) break;
    parent = at;
    at = at->items.empty() ? &at->fields[dice.below(uint32_t(at->fields.size()))].second
                           : &at->items[dice.below(uint32_t(at->items.size()))];
  }
  if (parent == nullptr) return;
  switch (dice.below(8)) {
    case 0:  // taken away
      if (parent->is_array())
        parent->items.erase(parent->items.begin() + (at - parent->items.data()));
      else
        std::erase_if(parent->fields, [&](const auto& field) { return &field.second == at; });
      break;
    case 1:  // twice
      if (parent->is_array()) {
        const Json copy = *at;
        parent->items.push_back(copy);
        break;
      }
      [[fallthrough]];
    case 2:  // elsewhere
      if (parent->is_array()) {
        std::swap(*at, parent->items.back());
        break;
      }
      [[fallthrough]];
    default:
      *at = json(dice.pick_text({"null", "true", "3", "-1", "1.5", "[]", "{}", R"("odd")", R"("")", R"(["a"])",
                                 R"({"type":"x"})", "1e400", "18446744073709551616"}));
  }
}

}  // namespace

Json random_request(Api api, uint64_t seed) {
  RequestParts parts(api, seed);
  Dice& dice = parts.dice;
  Json body = Json::object();
  body.set("model", Json::of(dice.one_in(80)  ? dice.pick({"nobody", "deepseek-v4.1-flash", "", "DeepSeek-V4"})
                             : dice.one_in(3) ? "DeepSeek-V4-Pro"
                                              : "DeepSeek-V4.1-Flash"));
  if (api == Api::chat_completions) random_chat_request(parts, body);
  if (api == Api::responses) random_responses_request(parts, body);
  if (api == Api::messages) random_messages_request(parts, body);
  sampling(parts, body);
  if (dice.one_in(8)) spoil(dice, body);
  return body;
}

}  // namespace fathom::recipe
