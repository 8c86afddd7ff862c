#include "fathom/recipe/settings.h"

#include <algorithm>

namespace fathom::recipe {
namespace {

int64_t default_max_tokens(const Conversation& conversation) {
  if (!conversation.thinking) return 8192;
  return conversation.effort == Effort::max ? 131072 : 65536;
}

}  // namespace

Error too_many_tokens(const TokenDemand& demand, int64_t context_limit) {
  const std::string part(demand.part);
  return {ErrorCode::out_of_range,
          "This model's maximum context length is " + std::to_string(context_limit) +
              " tokens. However, you requested " + (demand.counted ? "" : "at least ") +
              std::to_string(demand.prompt + demand.completion) + " tokens (" + std::to_string(demand.prompt) +
              " in the " + part + ", " + std::to_string(demand.completion) +
              " in the completion). Please reduce the length of the " + part + " or completion.",
          "", ""};
}

Result<int64_t> resolve_max_tokens(const ConvertedRequest& request, int64_t prompt_tokens, int64_t context_limit,
                                   bool counted) {
  const auto& requested = request.inference.max_tokens;
  const int64_t reserved = requested ? int64_t(*requested) : 0;
  if (prompt_tokens + reserved > context_limit) {
    return too_many_tokens({prompt_tokens, reserved, counted}, context_limit);
  }
  if (requested) return reserved;
  return std::max<int64_t>(1, std::min(default_max_tokens(request.conversation), context_limit - prompt_tokens));
}

}  // namespace fathom::recipe
