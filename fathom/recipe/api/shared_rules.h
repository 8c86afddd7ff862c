// fathom/recipe/api/shared_rules.h
// Rules that the three request formats share, with their normative texts. All are pure; errors are of the convert
// stage. Source: spec/recipe.md 1.1, 1.2, 2 (tools, constraint, parsing options), 5 (images); spec/codec-policy.md D-3,
// D-6, D-7.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fathom/base/result.h"
#include "fathom/recipe/api/field.h"
#include "fathom/recipe/conversation.h"
#include "fathom/recipe/settings.h"

namespace fathom::recipe {

// -- model, sampling ------------------------------------------------------------------------------------------------

/// D-7: under lenient, ASCII case does not matter and "deepseek-flash" is V4.1.
Result<ModelVersion> resolve_model(std::string_view model, const ConversionOptions& options);

Result<void> check_temperature(std::optional<float> temperature);
Result<void> check_top_p(std::optional<float> top_p);
Result<void> check_top_logprobs(std::optional<uint32_t> top_logprobs);
/// `[1, bound]`; the bound depends on thinking. Messages lowers instead and only refuses 0 (its own code).
Result<void> check_max_tokens(std::optional<uint32_t> max_tokens, bool thinking, const ConversionOptions& options,
                              std::string_view path);
/// Sets temperature and top_p as the model and thinking resolve them.
void resolve_sampling(Inference& inference, std::optional<float> temperature, std::optional<float> top_p,
                      ModelVersion version, bool thinking, bool tools_active);
/// At most 16, none empty. `single`: the request had a plain string. `path`: how the request calls the field; the
/// message says `stop` in any case.
Result<void> check_stop(const std::vector<std::string>& stop, bool single, std::string_view path = "stop");

// -- thinking -------------------------------------------------------------------------------------------------------

/// `effort` as a request spells it: one of the eight words, or a number under lenient (D-6).
struct RequestedEffort {
  enum class Word { none, minimal, low, medium, high, xhigh, ultra, max };
  std::optional<Word> word;
  std::optional<int64_t> number;
};
/// Reads an optional effort; a number is a mistake under strict.
std::optional<RequestedEffort> read_effort(const Field& field, Policy policy);

enum class ThinkingSwitch { unspecified, enabled, disabled };  // adaptive counts as enabled
/// Reads `thinking: {type}`; budget_tokens is type-checked only as the spec says and ignored.
ThinkingSwitch read_thinking(const Field& field);

struct Thinking {
  bool on = true;
  std::optional<Effort> effort;  // set iff on; for a number the level below it, which decides the default length
  std::optional<int> number;
};
Result<Thinking> resolve_thinking(ThinkingSwitch thinking, const std::optional<RequestedEffort>& effort,
                                  ModelVersion version, const ConversionOptions& options, std::string_view effort_path);

// -- tools ----------------------------------------------------------------------------------------------------------

/// `where`: "tools[3].function.name" for Chat, "tools[3].name" for the others. Non-empty, [a-zA-Z0-9_-]+.
Result<void> check_tool_name(std::string_view name, const std::string& where);
Result<void> check_unique_names(const std::vector<ToolDefinition>& tools);
/// A response format, of whatever kind, does not go with strict tools that may be called. `given`: the request has one
/// (Chat: of kind text too). Comes right after check_strict_mix.
Result<void> check_format_with_tools(const Conversation& conversation, bool given);
/// Checks the schema and requires a top-level object; when strict, normalises it (and under the strict policy checks no
/// more than that takes). Null parameters become {}, or the empty object schema when strict. `path` is the JSON path of
/// the parameters.
Result<void> settle_parameters(ToolDefinition& tool, Policy policy, const std::string& path);
/// Strict tools and others may not be mixed; the tools that are left after the choice count.
Result<void> check_strict_mix(const std::vector<ToolDefinition>& tools);
/// Checks the schema of a json_schema format and, when strict, that it can be normalised; other formats pass.
Result<void> check_response_format(const ResponseFormat& format, Policy policy, const std::string& path);

// -- text -----------------------------------------------------------------------------------------------------------

/// D-3 (lenient): removes leading first lines that begin with the billing header. True when something was removed.
bool strip_billing_lines(std::string& text);
/// The letters "json" in any case.
bool mentions_json(std::string_view text);

// -- images ---------------------------------------------------------------------------------------------------------

inline constexpr size_t kMostUrlBytes = 8192;
/// What a URL in an image field is.
enum class ImageUrl { data, web, too_long, bad_format, bad_type, bad_base64 };
/// Judges by spelling alone; fetches and decodes nothing but checks base64. Data URLs have no length limit; what begins
/// with "http" in any case is `web`.
ImageUrl judge_image_url(std::string_view url);
/// Whether that judgement takes it for a web address, without looking at more than its beginning.
bool is_web_url(std::string_view url);
/// The part of that judgement that knows data URLs only (Chat's file_data): `bad_format` when it is none;
/// percent-encoded bodies pass.
ImageUrl judge_data_url(std::string_view url);

// -- the rest of a ConvertedRequest -----------------------------------------------------------------------------------

/// Constraint and parsing options from the finished conversation, whose response format has passed
/// check_response_format. An assistant message with `prefix` at its end is to be continued.
void settle_output(ConvertedRequest& request, std::vector<std::string> stop_sequences,
                   const ConversionOptions& options);

}  // namespace fathom::recipe
