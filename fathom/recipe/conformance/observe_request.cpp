// Rows about requests: conversation, prompt, refusal, prompt tokens.
#include "fathom/recipe/codec.h"
#include "fathom/recipe/conformance/observe.h"
#include "fathom/recipe/describe.h"
#include "fathom/recipe/json_text.h"

namespace fathom::recipe {
namespace {

Json pair_of(int64_t a, int64_t b) {
  Json pair = Json::array();
  pair.push(Json::of(a));
  pair.push(Json::of(b));
  return pair;
}

Json ranges_in_bytes(const Prompt& prompt) {
  Json list = Json::array();
  for (const SpecialRange& range : prompt.special) list.push(pair_of(range.begin, range.end));
  return list;
}

Json ranges_in_code_points(const Prompt& prompt) {
  Json list = Json::array();
  int64_t at = 0, code_points = 0;
  const auto count_to = [&](int64_t byte) {
    for (; at < byte; ++at) code_points += (uint8_t(prompt.text[size_t(at)]) & 0xC0) != 0x80;
    return code_points;
  };
  for (const SpecialRange& range : prompt.special) {
    const int64_t begin = count_to(range.begin);
    list.push(pair_of(begin, count_to(range.end)));
  }
  return list;
}

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json::of(*value) : Json();
}

Json number(float value) {
  Json json = Json::with_kind(Json::Kind::number);
  append_number(json.text, value);
  return json;
}

Json describe_echo(const ResponsesEcho& echo) {
  Json out = Json::object();
  out.set("instructions", or_null(echo.instructions));
  out.set("max_output_tokens", echo.max_output_tokens ? Json::of(int64_t(*echo.max_output_tokens)) : Json());
  out.set("temperature", number(echo.temperature));
  out.set("top_p", number(echo.top_p));
  out.set("top_logprobs", Json::of(int64_t(echo.top_logprobs)));
  out.set("user", or_null(echo.user));
  return out;
}

/// [prompt_tokens, context_limit, result or {status, body}] for each pair that the row asks about.
Json resolved_limits(const Json& asked, const CodecRequest& request, Policy policy) {
  Json out = Json::array();
  for (const Json& one : asked.items) {
    const int64_t prompt = one.items.at(0).as_int64().value_or(0), limit = one.items.at(1).as_int64().value_or(0);
    Json entry = pair_of(prompt, limit);
    if (const auto tokens = resolve_max_tokens(request.converted, prompt, limit)) {
      entry.push(Json::of(*tokens));
    } else {
      Json refused = Json::object();
      refused.set("status", Json::of(status_of(tokens.error())));
      refused.set("body", parsed(error_body(tokens.error(), request.api, policy)));
      entry.push(std::move(refused));
    }
    out.push(std::move(entry));
  }
  return out;
}

}  // namespace

Result<Json> observe_request(const Json& row, const RowCheck& check) {
  const auto options = read_row_options(row.find("options"), check.policy);
  if (!options) return options.error();
  const auto request = read_row_request(row, *options);
  if (!request) return refusal_as_json(request.error(), row);
  const Prompt prompt = render(request->converted, *options);
  const Json described = describe(request->converted);
  Json out = Json::object();
  for (const auto& [key, expected] : row.find("expect")->fields) {
    if (key == "prompt") {
      out.set(key, Json::of(prompt.text));
    } else if (key == "special_ranges") {
      out.set(key, ranges_in_code_points(prompt));
    } else if (key == "special_ranges_bytes") {
      out.set(key, ranges_in_bytes(prompt));
    } else if (key == "image_sources") {
      Json images = Json::array();
      for (const ImageSource& image : prompt.images) images.push(describe(image));
      out.set(key, std::move(images));
    } else if (key == "resolve_max_tokens") {
      // Whatever the policy, rows have the flat body.
      out.set(key, resolved_limits(expected, *request, Policy::strict));
    } else if (key == "namespace_tool_map") {
      out.set(key, describe(request->namespaces));
    } else if (key == "echo") {
      out.set(key, describe_echo(request->echo));
    } else if (key == "inference") {
      // Penalties (D-5) have no member in the vectors.
      Json inference = *described.find(key);
      std::erase_if(inference.fields, [&](const auto& member) { return expected.find(member.first) == nullptr; });
      out.set(key, std::move(inference));
    } else if (const Json* found = described.find(key)) {
      out.set(key, *found);
    }
  }
  return out;
}

Result<Json> observe_refusal(const Json& row, const RowCheck& check) {
  const auto options = read_row_options(row.find("options"), check.policy);
  if (!options) return options.error();
  const auto request = read_row_request(row, *options);
  Json out = Json::object();
  if (request) {
    out.set("accepted", Json::of(true));
    return out;
  }
  const Error& error = request.error();
  const Api api = api_of(row.find("api")->text).value();
  const bool parse = error.code == ErrorCode::bad_input;
  const Json& expect = *row.find("expect");
  // Under the default policy Messages has its own envelope and param is filled (D-9): status and message are compared.
  const std::string body = error_body(error, api, Policy::strict);
  for (const auto& [key, expected] : expect.fields) {
    if (key == "stage") out.set(key, Json::of(parse ? "parse" : "convert"));
    if (key == "status") out.set(key, expected.is_null() ? Json() : Json::of(status_of(error)));
    if (key == "body") out.set(key, parsed(body));
    if (key == "body_text") out.set(key, Json::of(body));
    if (key == "message") out.set(key, parse ? expected : Json::of(error.message));  // serde's words, not normative
    if (key == "message_is_normative") out.set(key, expected);
  }
  return out;
}

Result<Json> observe_prompt_tokens(const Json& row, const RowCheck& check) {
  const auto options = read_row_options(row.find("options"), check.policy);
  if (!options) return options.error();
  const auto tokenizer = row_tokenizer(row, check);
  if (!tokenizer) return tokenizer.error();
  const auto request = read_row_request(row, *options);
  if (!request) return refusal_as_json(request.error(), row);
  const Prompt prompt = render(request->converted, *options);
  const auto ids = encode(prompt, **tokenizer);
  Json out = Json::object();
  if (!ids) {
    out.set("error", Json::of("failed to encode conversation: " + ids.error().message));
    return out;
  }
  Json list = Json::array();
  for (int32_t id : *ids) list.push(Json::of(int64_t(id)));
  out.set("prompt", Json::of(prompt.text));
  out.set("token_ids", std::move(list));
  out.set("count", Json::of(int64_t(ids->size())));
  out.set("same_as_full_vocabulary_encoding", Json::of((*tokenizer)->encode(prompt.text) == *ids));
  return out;
}

}  // namespace fathom::recipe
