#include "fathom/server/question.h"

#include <algorithm>
#include <string>
#include <utility>

#include "fathom/engine/constraint_check.h"

namespace fathom {
namespace {

using Kind = grammar::Constraint::Kind;

/// Whether the answer must keep to it: tools that may be called, none of them strict, promise nothing.
bool is_promise(const grammar::Constraint& constraint) {
  return constraint.kind != Kind::tool_call ||
         std::any_of(constraint.tools.begin(), constraint.tools.end(), [](const auto& tool) { return tool.strict; });
}

/// The member of the request that asked for the constraint.
std::string place_of(const grammar::Constraint& constraint, recipe::Api api) {
  const bool responses = api == recipe::Api::responses;
  std::string place = responses ? "text.format" : "response_format";
  if (constraint.kind == Kind::json) place += responses ? ".schema" : ".json_schema.schema";
  if (constraint.kind == Kind::regex) place += ".regex";
  return place;
}

Result<void> check_constraint_of(const recipe::CodecRequest& request) {
  const auto& constraint = request.converted.inference.constraint;
  if (!constraint || !is_promise(*constraint)) return {};
  const Result<void> possible = check_constraint(*constraint);
  if (possible) return {};
  Error error = possible.error();
  error.code = ErrorCode::usage;
  if (!error.remedy.empty()) error.message += ": " + std::exchange(error.remedy, "");
  if (constraint->kind == Kind::tool_call || constraint->kind == Kind::tool_call_required) return error;
  const std::string place = place_of(*constraint, request.api);
  if (constraint->kind == Kind::json && !error.where.empty() && !error.where.starts_with('#')) {
    error.where = place + (error.where.starts_with('[') ? "" : ".") + error.where;
  } else {
    error.where = place;
  }
  return error;
}

}  // namespace

Result<void> check_answerable(const recipe::CodecRequest& request) {
  for (const recipe::Message& message : request.converted.conversation.messages) {
    if (message.images.empty()) continue;
    const std::string& path = message.images[0].path;
    const std::string where = path.starts_with('.') ? path.substr(1) : path;
    return Error{ErrorCode::usage, where + ": this server cannot see images; leave the image out", where, ""};
  }
  return check_constraint_of(request);
}

int64_t least_tokens(std::string_view text, const Tokenizer& tokenizer) {
  constexpr size_t kCounted = size_t(1) << 20;
  if (text.size() < kCounted) return 0;
  size_t longest = 1;
  for (int32_t id = 0; id < tokenizer.size(); ++id) longest = std::max(longest, tokenizer.bytes_of(id).size());
  return int64_t(text.size() / longest);
}

Error at_least(Error too_long) {
  constexpr std::string_view kBefore = "you requested ";
  const size_t at = too_long.message.find(kBefore);
  if (at != std::string::npos) too_long.message.insert(at + kBefore.size(), "at least ");
  return too_long;
}

Result<Question> question_of(const recipe::CodecRequest& request, const recipe::ConversionOptions& options,
                             const Tokenizer& tokenizer, const RequestLimits& limits) {
  if (auto answerable = check_answerable(request); !answerable) return answerable.error();
  const recipe::ConvertedRequest& converted = request.converted;
  Question question;
  const recipe::Prompt prompt = recipe::render(converted, options);
  const int64_t least = least_tokens(prompt.text, tokenizer);
  if (auto fits = recipe::resolve_max_tokens(converted, least, limits.context); !fits && least > 0) {
    return at_least(fits.error());
  }
  auto ids = recipe::encode(prompt, tokenizer);
  if (!ids) return ids.error();
  auto most = recipe::resolve_max_tokens(converted, int64_t(ids->size()), limits.context);
  if (!most) return most.error();
  question.request.ids = std::move(*ids);

  Sampling& sampling = question.request.sampling;
  const recipe::Inference& inference = converted.inference;
  sampling.max_tokens = *most;
  sampling.temperature = inference.temperature;
  sampling.top_p = inference.top_p;
  sampling.frequency_penalty = inference.frequency_penalty;
  sampling.presence_penalty = inference.presence_penalty;
  sampling.seed = inference.seed;
  if (inference.logprobs) sampling.top_logprobs = int(inference.top_logprobs.value_or(0));
  // Calls of tools too large or too many for a grammar go unconstrained where nobody asked for more.
  const auto& constraint = inference.constraint;
  if (constraint && (is_promise(*constraint) || check_constraint(*constraint).ok())) {
    question.request.constraint = constraint;
  }
  question.parsing = converted.parsing;
  question.end_ids = {limits.eos_id};
  return question;
}

}  // namespace fathom
