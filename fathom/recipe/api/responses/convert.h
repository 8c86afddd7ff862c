// fathom/recipe/api/responses/convert.h
// The two large steps of converting a Responses request: its tools, its items. Source: spec/recipe.md 3;
// docs/recipe-findings.md (responses).
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fathom/base/result.h"
#include "fathom/recipe/api/responses/body.h"
#include "fathom/recipe/api/responses/function_names.h"
#include "fathom/recipe/settings.h"

namespace fathom::recipe::responses {

/// The tools that the output of a search brought.
struct FoundTools {
  int64_t item = 0;           // index in the input
  size_t begin = 0, end = 0;  // in DeclaredTools::tools
};

struct DeclaredTools {
  std::vector<ToolDefinition> tools;  // parameters as sent: null when absent, not yet judged
  std::vector<std::string> paths;     // of each tool: "tools[2].tools[0]"
  std::vector<FoundTools> found;      // V4.1; ascending by item
};

/// Names and kinds of the declared tools and, in V4.1, of those that searches found. Takes `tools`, copies the found
/// ones. Errors: the normative texts for names, custom tools, server tools.
Result<DeclaredTools> declare_tools(std::vector<Tool> tools, std::span<const Item> items, ModelVersion version,
                                    const ConversionOptions& options, FunctionNames& names);

/// The full names of declared namespace tools. Errors: those of names.
Result<NamespaceMap> map_namespaces(const std::vector<Tool>& tools, ModelVersion version);

/// Judges and normalises the schemas, then applies the choice: none leaves no tool, a name leaves that one.
/// Errors: the normative texts for names that are used twice, schemas, choices.
Result<void> settle_tools(Conversation& conversation, DeclaredTools declared, const Choice& choice, Policy policy);

/// A system message that announces found tools, to be filled when the tools are settled.
struct Announcement {
  size_t message = 0;  // in ConvertedItems::messages
  FoundTools tools;
};

struct ConvertedItems {
  std::vector<Message> messages;
  std::vector<Announcement> announcements;
};

/// Items to messages: reasoning, texts and calls of one turn become one assistant message, outputs stand behind it in
/// the order of its calls. Errors: the normative texts for calls, outputs and images.
Result<ConvertedItems> convert_items(std::vector<Item> items, const DeclaredTools& tools, ModelVersion version,
                                     bool thinking, const ConversionOptions& options, FunctionNames& names);

/// D-2 (lenient): what stands between calls and their outputs moves behind the last of these outputs, unless other
/// calls come before it. What does not get better is left for convert_items to refuse.
std::vector<Item> gather_outputs(std::vector<Item> items);

}  // namespace fathom::recipe::responses
