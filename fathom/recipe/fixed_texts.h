// fathom/recipe/fixed_texts.h
// The literal texts of prompts, byte for byte. In a template, the characters \1 to \4 stand for what is put in: the
// dsml token, thinking start, thinking end (each a special token in the spelling of the caller), and \4 for what the
// block is about. Source: vectors/recipe/fixed_texts.json.
#pragma once
#include <string_view>

#include "fathom/recipe/policy.h"

namespace fathom::recipe::fixed {

inline constexpr char kDsml = '\1', kThinkingStart = '\2', kThinkingEnd = '\3', kSubject = '\4', kBlock = '\5',
                      kSeparator = '\6';

/// How a version spells the markup of calls: `<D{block}>`, `<D{separator}invoke name=…`.
struct CallWords {
  std::string_view block, separator;
};
inline constexpr CallWords kV4Calls = {"tool_calls", ""}, kV41Calls = {" calls", " "};
constexpr const CallWords& call_words(ModelVersion version) {
  return version == ModelVersion::v4 ? kV4Calls : kV41Calls;
}

/// Template; subject: one JSON line a tool, the last ended as well.
extern const std::string_view kToolsBlock;

/// Stands in front of the schema, or is all of it for json_object.
std::string_view json_object_format(ModelVersion version);
inline constexpr std::string_view kJsonSchemaFormat =
    "\n\n## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n";

/// V4.1, of a system message that makes tools known.
inline constexpr std::string_view kUpdatedTools = "\n\n### Updated Tool Schemas\n\n";

/// V4: of effort high and xhigh, and of max. Low has none.
extern const std::string_view kEffortHigh, kEffortMax;
/// V4.1: template; subject: a number from 1 to 100.
inline constexpr std::string_view kEffortLine =
    "Reasoning Effort: \4 (range 1-100, the higher the value, the more thorough the reasoning)\n\n";

inline constexpr std::string_view kToolResult = "<tool_result>", kToolResultEnd = "</tool_result>";

}  // namespace fathom::recipe::fixed
