// fathom/recipe/settings.h
// What a request says besides the conversation: how to convert it, how to sample, how to read the answer.
// Source: spec/recipe.md 1.1, 2 (parsing options); spec/codec-policy.md.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fathom/base/result.h"
#include "fathom/grammar/constraint.h"
#include "fathom/recipe/conversation.h"
#include "fathom/recipe/policy.h"
#include "fathom/recipe/token_spellings.h"

namespace fathom::recipe {

/// The operator's choices, the same for all requests.
struct ConversionOptions {
  enum class WebSearch { drop, reject };

  Policy policy = Policy::lenient;
  bool default_thinking = true;           // when the request does not say
  bool reject_missing_reasoning = false;  // else a missing reasoning of an assistant turn with calls is ""
  WebSearch responses_web_search = WebSearch::drop;
  WebSearch messages_web_search = WebSearch::reject;
  uint32_t thinking_max_tokens = 393216;      // upper bound of max_tokens with thinking on
  uint32_t non_thinking_max_tokens = 393216;  // … and off
  TokenSpellings spellings;
  /// Accepted model names, in the order that the error message lists them.
  std::vector<std::pair<std::string, ModelVersion>> models = {{"DeepSeek-V4-Pro", ModelVersion::v4},
                                                              {"DeepSeek-V4.1-Flash", ModelVersion::v41}};
};

/// How the engine shall generate. Values are resolved: what thinking overrides is overridden already.
struct Inference {
  std::optional<uint32_t> max_tokens;  // as requested; resolve_max_tokens gives the number to use
  float temperature = 1.0f;
  float top_p = 1.0f;
  float frequency_penalty = 0.0f;  // D-5: 0 under strict
  float presence_penalty = 0.0f;
  bool logprobs = false;
  std::optional<uint32_t> top_logprobs;
  std::optional<uint64_t> seed;
  std::optional<grammar::Constraint> constraint;

  friend bool operator==(const Inference&, const Inference&) = default;
};

/// Where in an answer the model's output begins.
enum class ThinkingStage { reasoning_start, reasoning_continuation, content_continuation };

/// How the model's output is to be read.
struct Parsing {
  Policy policy = Policy::lenient;
  bool tool_calls = true;              // look for call markup
  bool starts_in_tool_calls = false;   // the prompt opened a block of calls; stronger than `stage`
  bool json_output = false;            // json_object: what stands around the JSON value is dropped
  std::optional<ThinkingStage> stage;  // none: thinking is off
  std::vector<std::string> stop_sequences;
  TokenSpellings spellings;
  /// Required parameters by tool name, for calls that end early (D-12). A tool that is not here requires nothing.
  std::map<std::string, std::vector<std::string>, std::less<>> required_parameters;
};

/// full function name -> {namespace, local name} (Responses)
using NamespaceMap = std::map<std::string, std::pair<std::string, std::string>>;

/// Everything that a request means.
struct ConvertedRequest {
  Conversation conversation;
  Inference inference;
  Parsing parsing;
  ModelVersion version = ModelVersion::v41;
  bool stream = false;
  bool found_patch = false;  // Responses, V4.1: a tool search found the custom tool apply_patch
};

/// What does not fit a model's context, and by how much. `counted` false: the prompt has at least so many tokens.
/// `part`: what clients call it, "messages" or "prompt".
struct TokenDemand {
  int64_t prompt = 0, completion = 0;
  bool counted = true;
  std::string_view part = "messages";
};
/// The error in the words of deepseek-recipe.
Error too_many_tokens(const TokenDemand& demand, int64_t context_limit);

/// The number of tokens to generate at most. `prompt_tokens` counts every image in full; `counted` as in
/// TokenDemand.
/// Errors: out_of_range (code context_length_exceeded in the body) when the prompt, or prompt and requested tokens
/// together, do not fit `context_limit`. Source: spec/recipe.md 1.1.
Result<int64_t> resolve_max_tokens(const ConvertedRequest& request, int64_t prompt_tokens, int64_t context_limit,
                                   bool counted = true);

}  // namespace fathom::recipe
