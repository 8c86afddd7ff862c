#include "fathom/recipe/settings.h"

#include <algorithm>

namespace fathom::recipe {
namespace {

int64_t default_max_tokens(const Conversation& conversation) {
  if (!conversation.thinking) return 8192;
  return conversation.effort == Effort::max ? 131072 : 65536;
}

}  // namespace

Result<int64_t> resolve_max_tokens(const ConvertedRequest& request, int64_t prompt_tokens, int64_t context_limit) {
  const auto& requested = request.inference.max_tokens;
  const int64_t reserved = requested ? int64_t(*requested) : 0;
  if (prompt_tokens + reserved > context_limit) {
    return Error{ErrorCode::out_of_range,
                 "This model's maximum context length is " + std::to_string(context_limit) +
                     " tokens. However, you requested " + std::to_string(prompt_tokens + reserved) + " tokens (" +
                     std::to_string(prompt_tokens) + " in the messages, " + std::to_string(reserved) +
                     " in the completion). Please reduce the length of the messages or completion.",
                 "", ""};
  }
  if (requested) return reserved;
  return std::max<int64_t>(1, std::min(default_max_tokens(request.conversation), context_limit - prompt_tokens));
}

}  // namespace fathom::recipe
