// The body of POST /v1/completions. Source: OpenAI's API reference (completions); extra fields as vLLM names them.
#include <algorithm>
#include <limits>

#include "fathom/base/json.h"
#include "fathom/recipe/api/field.h"
#include "fathom/recipe/request_error.h"
#include "fathom/server/text_completion.h"

namespace fathom {
namespace {

using recipe::BodyFailure;
using recipe::Field;

constexpr int64_t kMostStops = 16;
constexpr int64_t kDefaultTokens = 16;

std::vector<int32_t> ids_of(const Field& list) {
  std::vector<int32_t> ids;
  for (const Field& item : list.list()) {
    const auto id = item.optional_count();
    if (!item.present()) item.refuse_type("a token id");
    if (id && *id > uint32_t(std::numeric_limits<int32_t>::max())) item.refuse("no token has this id");
    ids.push_back(int32_t(id.value_or(0)));
  }
  return ids;
}

std::vector<int32_t> tokens_of(const Field& prompt, bool with_special, const Tokenizer& tokenizer) {
  if (prompt.is(Json::Kind::string)) {
    std::vector<int32_t> ids = tokenizer.encode(prompt.text());
    if (with_special && (ids.empty() || ids[0] != Tokenizer::kBegin)) ids.insert(ids.begin(), Tokenizer::kBegin);
    return ids;
  }
  if (!prompt.is(Json::Kind::array)) {
    prompt.refuse_type("a text or a list of token ids");
    return {};
  }
  const std::vector<Field> items = prompt.list();
  if (items.empty() || items[0].is(Json::Kind::number)) return ids_of(prompt);
  if (items.size() > 1) {
    prompt.refuse("one prompt a request; send the others as requests of their own");
    return {};
  }
  return tokens_of(items[0], with_special, tokenizer);
}

std::vector<std::string> stops_of(const Field& stop) {
  std::vector<std::string> stops;
  if (stop.is(Json::Kind::string)) {
    stops.push_back(stop.text());
  } else {
    for (const Field& item : stop.list()) stops.push_back(item.text());
  }
  if (int64_t(stops.size()) > kMostStops) stop.refuse("at most 16 stop texts");
  if (std::any_of(stops.begin(), stops.end(), [](const std::string& text) { return text.empty(); })) {
    stop.refuse("a stop text is empty");
  }
  return stops;
}

std::vector<std::pair<int32_t, float>> bias_of(const Field& field, const Json* tree) {
  std::vector<std::pair<int32_t, float>> bias;
  if (tree == nullptr || tree->is_null()) return bias;
  for (const auto& [key, value] : tree->fields) {
    const auto number = value.as_double();
    const bool digits = !key.empty() && key.size() < 10 && key.find_first_not_of("0123456789") == std::string::npos;
    if (!number || !digits) {
      field.refuse("maps token ids to numbers, as in {\"128803\": -100}");
      return bias;
    }
    bias.emplace_back(int32_t(std::stol(key)), float(*number));
  }
  return bias;
}

/// What a client may ask elsewhere and this service has not: refused, so that nobody takes an answer for another.
void refuse_unsupported(const Field& body) {
  for (const char* name : {"n", "best_of"}) {
    if (const auto count = body[name].optional_count(); count && *count != 1) body[name].refuse("only 1 is supported");
  }
  if (body["echo"].optional_flag().value_or(false)) body["echo"].refuse("is not supported; send false");
  if (const auto suffix = body["suffix"].optional_text(); suffix && !suffix->empty()) {
    body["suffix"].refuse("is not supported; leave it out");
  }
}

void read_sampling(const Field& body, const Json* bias, Sampling& sampling) {
  sampling.temperature = body["temperature"].optional_float().value_or(1);
  sampling.top_p = body["top_p"].optional_float().value_or(1);
  sampling.top_k = int32_t(std::min<uint32_t>(body["top_k"].optional_count().value_or(0), 1u << 30));
  sampling.min_p = body["min_p"].optional_float().value_or(0);
  sampling.presence_penalty = body["presence_penalty"].optional_float().value_or(0);
  sampling.frequency_penalty = body["frequency_penalty"].optional_float().value_or(0);
  sampling.repetition_penalty = body["repetition_penalty"].optional_float().value_or(1);
  sampling.logit_bias = bias_of(body["logit_bias"], bias);
  sampling.seed = body["seed"].optional_long_count();
  sampling.min_tokens = body["min_tokens"].optional_count().value_or(0);
  sampling.stop_ids = ids_of(body["stop_token_ids"]);
  sampling.ignore_eos = body["ignore_eos"].optional_flag().value_or(false);
  const auto top = body["logprobs"].optional_count();
  if (top && *top > 20) body["logprobs"].refuse("at most 20");
  if (top) sampling.top_logprobs = int(std::min<uint32_t>(*top, 20));
}

/// All of the text is content: nothing is looked for but stop texts.
recipe::Parsing plain_parsing(std::vector<std::string> stops) {
  recipe::Parsing parsing;
  parsing.tool_calls = false;
  parsing.stage = recipe::ThinkingStage::content_continuation;
  parsing.stop_sequences = std::move(stops);
  parsing.spellings[recipe::SpecialToken::thinking_end].clear();  // never found, so nothing is taken out
  return parsing;
}

}  // namespace

Result<TextCompletionRequest> read_text_completion(std::string_view text, const Tokenizer& tokenizer,
                                                   const RequestLimits& limits) {
  auto tree = recipe::parse_body(text);
  if (!tree) return tree.error();
  BodyFailure failure(*tree);
  const Field body(*tree, failure);
  TextCompletionRequest out;
  out.model = body["model"].text();
  const bool with_special = body["add_special_tokens"].optional_flag().value_or(true);
  Request& request = out.question.request;
  if (const Json* prompt = tree->find("prompt"); prompt != nullptr && prompt->is_string()) {
    const int64_t least = least_tokens(prompt->text, tokenizer);
    if (least > limits.context) return recipe::too_many_tokens({least, 0, false, "prompt"}, limits.context);
  }
  request.ids = tokens_of(body["prompt"], with_special, tokenizer);
  refuse_unsupported(body);
  read_sampling(body, tree->find("logit_bias"), request.sampling);
  const auto asked = body["max_tokens"].optional_count();
  if (asked && *asked == 0) body["max_tokens"].refuse("at least 1");
  out.stream = body["stream"].optional_flag().value_or(false);
  out.include_usage = body["stream_options"]["include_usage"].optional_flag().value_or(false);
  out.logprobs = request.sampling.top_logprobs >= 0;
  out.question.parsing = plain_parsing(stops_of(body["stop"]));
  if (failure.noted()) return failure.error();

  const auto prompt_tokens = int64_t(request.ids.size());
  const int64_t room = std::max<int64_t>(limits.context - prompt_tokens, 0);
  const int64_t most = asked ? int64_t(*asked) : std::min<int64_t>(kDefaultTokens, room);
  if (most > room || room == 0) return recipe::too_many_tokens({prompt_tokens, most, true, "prompt"}, limits.context);
  request.sampling.max_tokens = most;
  out.question.end_ids = request.sampling.stop_ids;
  if (!request.sampling.ignore_eos) out.question.end_ids.push_back(limits.eos_id);
  if (auto checked = check_request(request, limits); !checked) {
    Error error = checked.error();
    error.message += error.remedy.empty() ? "" : ": " + std::exchange(error.remedy, "");
    if (error.where == "ids") error.where = "prompt";
    return error;
  }
  return out;
}

}  // namespace fathom
