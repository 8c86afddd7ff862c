#include "fathom/recipe/fixed_texts.h"

namespace fathom::recipe::fixed {

const std::string_view kToolsBlock =
    "## Tools\n"
    "\n"
    "You have access to a set of tools to help answer the user's question. You can invoke tools by writing a "
    "\"<\001\005>\" block like the following:\n"
    "\n"
    "<\001\005>\n"
    "<\001\006invoke name=\"$TOOL_NAME\">\n"
    "<\001\006parameter name=\"$PARAMETER_NAME\" string=\"true|false\">$PARAMETER_VALUE</\001\006parameter>\n"
    "...\n"
    "</\001\006invoke>\n"
    "<\001\006invoke name=\"$TOOL_NAME2\">\n"
    "...\n"
    "</\001\006invoke>\n"
    "</\001\005>\n"
    "\n"
    "String parameters should be specified as is and set `string=\"true\"`. For all other types (numbers, booleans, "
    "arrays, objects), pass the value in JSON format and set `string=\"false\"`.\n"
    "\n"
    "If thinking_mode is enabled (triggered by \002), you MUST output your complete reasoning inside \002...\003 "
    "BEFORE any tool calls or final response.\n"
    "\n"
    "Otherwise, output directly after \003 with tool calls or final response.\n"
    "\n"
    "### Available Tool Schemas\n"
    "\n"
    "\004\n"
    "You MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.\n";

std::string_view json_object_format(ModelVersion version) {
  if (version == ModelVersion::v4) {
    return "\n\nYou are a helpful assistant designed to output JSON.\n## Response Format:\n\nReply with JSON object "
           "ONLY.";
  }
  return "\n\n## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n{\"type\": "
         "\"json_object\"}";
}

const std::string_view kEffortHigh =
    "Reasoning Effort: Absolute maximum with no shortcuts permitted.\n"
    "You MUST be very thorough in your thinking and comprehensively decompose the problem to resolve the root cause, "
    "rigorously stress-testing your logic against all potential paths, edge cases, and adversarial scenarios.\n"
    "Explicitly write out your entire deliberation process, documenting every intermediate step, considered "
    "alternative, and rejected hypothesis to ensure absolutely no assumption is left unchecked.\n"
    "\n";
const std::string_view kEffortMax =
    "Reasoning Effort: Beyond maximum — exhaustive, relentless, and uncompromising.\n"
    "You MUST reason with the utmost depth and rigor, leaving absolutely nothing to chance: exhaustively decompose the "
    "problem into its most fundamental components, trace every causal chain to its root, and resolve the underlying "
    "cause rather than any surface symptom.\n"
    "Do not stop reasoning until you have independently verified the solution from multiple angles and are certain "
    "that no assumption remains unchecked and no error remains undiscovered.\n"
    "\n";

}  // namespace fathom::recipe::fixed
