#include "fathom/recipe/tool_markup.h"

#include <algorithm>

#include "fathom/recipe/python_json.h"

namespace fathom::recipe {
namespace {

void write_parameter(PromptWriter& writer, std::string_view name, bool string, const auto& write_value) {
  const std::string_view separator = fixed::call_words(writer.version()).separator;
  writer.text("<");
  writer.token(SpecialToken::dsml);
  writer.text(separator);
  writer.text("parameter name=\"");
  writer.text(name);
  writer.text(string ? "\" string=\"true\">" : "\" string=\"false\">");
  write_value();
  writer.text("</");
  writer.token(SpecialToken::dsml);
  writer.text(separator);
  writer.text("parameter>");
}

// Arguments that are no JSON object are shown as they are, as one parameter.
void write_arguments(PromptWriter& writer, const std::string& arguments) {
  const auto parsed = parse_json(arguments, "arguments");
  if (!parsed || !parsed->is_object() || !fits_doubles(*parsed)) {
    write_parameter(writer, "arguments", true, [&] { writer.text(arguments); });
    writer.text("\n");
    return;
  }
  bool first = true;
  for (const auto& [name, value] : parsed->fields) {
    if (!std::exchange(first, false)) writer.text("\n");
    write_parameter(writer, name, value.is_string(), [&] {
      if (value.is_string()) {
        writer.text(value.text);
      } else {
        writer.json(value);
      }
    });
  }
  // Of a call without parameters, V4.1 keeps the line and V4 does not.
  if (!parsed->fields.empty() || writer.version() == ModelVersion::v41) writer.text("\n");
}

}  // namespace

grammar::CallMarkup call_markup(ModelVersion version, const TokenSpellings& spellings) {
  const fixed::CallWords& words = fixed::call_words(version);
  return {spellings[SpecialToken::dsml], std::string(words.block), std::string(words.separator)};
}

void write_calls_opening(PromptWriter& writer) {
  writer.text("<");
  writer.token(SpecialToken::dsml);
  writer.text(fixed::call_words(writer.version()).block);
  writer.text(">\n");
}

void write_calls(PromptWriter& writer, const std::vector<const ToolCall*>& calls) {
  const fixed::CallWords& words = fixed::call_words(writer.version());
  write_calls_opening(writer);
  for (const ToolCall* call : calls) {
    writer.text("<");
    writer.token(SpecialToken::dsml);
    writer.text(words.separator);
    writer.text("invoke name=\"");
    writer.text(call->name);
    writer.text("\">\n");
    write_arguments(writer, call->arguments);
    writer.text("</");
    writer.token(SpecialToken::dsml);
    writer.text(words.separator);
    writer.text("invoke>\n");
  }
  writer.text("</");
  writer.token(SpecialToken::dsml);
  writer.text(words.block);
  writer.text(">");
}

void write_tool_lines(PromptWriter& writer, const std::vector<ToolDefinition>& tools, bool deferred) {
  bool first = true;
  for (const ToolDefinition& tool : tools) {
    if (tool.defer_loading && !deferred) continue;
    if (!std::exchange(first, false)) writer.text("\n");
    std::string& out = writer.out();
    out += "{\"name\": ";
    append_json_string(out, tool.name);
    out += ", \"description\": ";
    append_json_string(out, tool.description ? std::string_view(*tool.description) : std::string_view());
    out += ", \"parameters\": ";
    writer.json(tool.parameters);
    out += '}';
  }
}

void write_tools_block(PromptWriter& writer, const std::vector<ToolDefinition>& tools) {
  writer.fixed_text(fixed::kToolsBlock, [&] {
    const size_t begin = writer.out().size();
    write_tool_lines(writer, tools, false);
    if (writer.out().size() > begin || writer.version() == ModelVersion::v41) writer.text("\n");
  });
}

}  // namespace fathom::recipe
