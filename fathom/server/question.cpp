#include "fathom/server/question.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "fathom/engine/constraint_check.h"
#include "fathom/recipe/answerable.h"
#include "fathom/server/http_error.h"

namespace fathom {

Result<void> check_answerable(const recipe::CodecRequest& request, std::string_view blind, const ImageParts& parts) {
  for (const recipe::Message& message : request.converted.conversation.messages) {
    if (message.images.empty() || blind.empty()) continue;
    const std::string where = parts_of(message.images, parts)[0];
    return Error{ErrorCode::usage, where + ": " + std::string(blind) + "; leave the image out", where, ""};
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

Result<void> read_prompt(Question& question, const recipe::Prompt& prompt, std::vector<ImageData> images,
                         const See& see, const Tokenizer& tokenizer) {
  auto ids = recipe::encode(prompt, tokenizer);
  if (!ids) return ids.error();
  question.request.ids = std::move(*ids);
  question.images = std::move(images);
  return question.images.empty() ? Result<void>() : see(question);
}

Result<Question> question_of(const recipe::CodecRequest& request, const recipe::Prompt& prompt,
                             std::vector<ImageData> images, const See& see, const Tokenizer& tokenizer,
                             const RequestLimits& limits) {
  const recipe::ConvertedRequest& converted = request.converted;
  Question question;
  const int64_t least = least_tokens(prompt.text, tokenizer);
  if (least > 0) {
    const auto fits = recipe::resolve_max_tokens(converted, least, limits.context, false);
    if (!fits) return fits.error();
  }
  if (auto read = read_prompt(question, prompt, std::move(images), see, tokenizer); !read) return read.error();
  const auto most = recipe::resolve_max_tokens(converted, int64_t(question.request.ids.size()), limits.context);
  if (!most) return most.error();

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
