#include "fathom/server/question.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "fathom/engine/constraint_check.h"
#include "fathom/recipe/answerable.h"
#include "fathom/server/http_error.h"

namespace fathom {

Result<void> check_answerable(const recipe::CodecRequest& request) {
  if (const auto seen = recipe::check_images(request); !seen) {
    Error error = seen.error();
    error.message = error.where + ": " + error.message;  // errors of Messages have no other place for the path
    return told_to_client(std::move(error));
  }
  if (const auto kept = recipe::check_constraint(request, check_constraint); !kept) return told_to_client(kept.error());
  return {};
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
  if (constraint && (recipe::is_promise(*constraint) || check_constraint(*constraint).ok())) {
    question.request.constraint = constraint;
  }
  question.parsing = converted.parsing;
  question.end_ids = {limits.eos_id};
  return question;
}

}  // namespace fathom
