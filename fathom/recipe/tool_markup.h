// fathom/recipe/tool_markup.h
// Tools and calls as prompts spell them. Source: spec/recipe.md 6.3.
#pragma once
#include <vector>

#include "fathom/grammar/constraint.h"
#include "fathom/recipe/prompt_writer.h"

namespace fathom::recipe {

/// The spelling of calls that answers of this version are constrained to.
grammar::CallMarkup call_markup(ModelVersion version, const TokenSpellings& spellings);

/// A block of calls. Values stand as they are: a string that looks like markup is told apart by tokenisation alone.
void write_calls(PromptWriter& writer, const std::vector<const ToolCall*>& calls);

/// The opening of a block of calls, to be continued by the model.
void write_calls_opening(PromptWriter& writer);

/// One JSON line for each tool, joined by line breaks. `deferred`: those too that are not to be listed yet.
void write_tool_lines(PromptWriter& writer, const std::vector<ToolDefinition>& tools, bool deferred);

/// How to call tools, and which there are but for the deferred.
void write_tools_block(PromptWriter& writer, const std::vector<ToolDefinition>& tools);

}  // namespace fathom::recipe
