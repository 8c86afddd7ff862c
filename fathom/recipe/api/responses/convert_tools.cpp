// Declared and found tools, their names, schemas and the choice among them.
#include <algorithm>
#include <unordered_set>

#include "fathom/recipe/api/responses/apply_patch.h"
#include "fathom/recipe/api/responses/convert.h"
#include "fathom/recipe/request_error.h"

namespace fathom::recipe::responses {
namespace {

constexpr const char* kServerTools = "Server tools are not supported";

std::string element(const std::string& list, size_t index) { return list + '[' + std::to_string(index) + ']'; }

Result<void> check_namespace(const Tool& tool, const std::string& path) {
  if (auto result = check_tool_name(tool.name, path + ".name"); !result) return result;
  std::unordered_set<std::string_view> names;
  for (size_t i = 0; i < tool.members.size(); ++i) {
    const Tool& member = tool.members[i];
    const std::string member_path = element(path + ".tools", i);
    if (member.kind == Tool::Kind::custom) {
      return convert_error("Currently custom tools are not allowed inside a namespace. Found custom tool '" +
                               member.name + "' in " + member_path + ".",
                           member_path);
    }
    if (auto result = check_tool_name(member.name, member_path + ".name"); !result) return result;
    if (!names.insert(member.name).second) {
      return convert_error("Tool names within a namespace must be unique.", path + ".tools");
    }
  }
  return {};
}

Result<void> check_names(const Tool& tool, const std::string& path) {
  if (tool.kind == Tool::Kind::function) return check_tool_name(tool.name, path + ".name");
  if (tool.kind == Tool::Kind::name_space) return check_namespace(tool, path);
  return {};
}

Result<void> check_kind(const Tool& tool, const std::string& path, const ConversionOptions& options) {
  if (tool.kind == Tool::Kind::custom && tool.name != kApplyPatch) {
    return convert_error("Unsupported custom tool: '" + tool.name + "'. Only 'apply_patch' is supported.",
                         path + ".name");
  }
  if (tool.kind == Tool::Kind::web_search && options.responses_web_search == ConversionOptions::WebSearch::reject) {
    return convert_error(kServerTools, path);
  }
  return {};
}

ToolDefinition define_function(Tool tool) {
  ToolDefinition definition;
  definition.name = std::move(tool.name);
  definition.description = std::move(tool.description);
  definition.parameters = tool.parameters ? std::move(*tool.parameters) : Json();
  definition.strict = tool.strict;
  return definition;
}

struct Declaration {
  ModelVersion version;
  const ConversionOptions& options;
  FunctionNames& names;
  DeclaredTools result;

  void add(ToolDefinition definition, std::string path) {
    result.tools.push_back(std::move(definition));
    result.paths.push_back(std::move(path));
  }

  void add_namespace(Tool tool, const std::string& path) {
    for (size_t i = 0; i < tool.members.size(); ++i) {
      Tool& member = tool.members[i];
      std::string full = names.declare(tool.name, member.name);
      ToolDefinition definition = define_function(std::move(member));
      definition.name = std::move(full);
      // V4 does not tell the model what the namespace is for.
      if (version == ModelVersion::v41 && tool.description && !tool.description->empty()) {
        definition.description = *tool.description + '\n' + definition.description.value_or("");
      }
      add(std::move(definition), element(path + ".tools", i));
    }
  }

  Result<void> add_tool(Tool tool, std::string path) {
    if (auto result = check_names(tool, path); !result) return result;
    if (auto result = check_kind(tool, path, options); !result) return result;
    switch (tool.kind) {
      case Tool::Kind::function: add(define_function(std::move(tool)), std::move(path)); break;
      case Tool::Kind::name_space: add_namespace(std::move(tool), path); break;
      case Tool::Kind::custom: add(apply_patch_tool(version), std::move(path)); break;
      case Tool::Kind::tool_search:
        if (version == ModelVersion::v41 && tool.client_search()) {
          tool.name = "tool_search";
          add(define_function(std::move(tool)), std::move(path));
        }
        break;
      case Tool::Kind::web_search:
      case Tool::Kind::unsupported: break;
    }
    return {};
  }
};

void reserve_names(const std::vector<Tool>& tools, FunctionNames& names) {
  for (const Tool& tool : tools) {
    if (tool.kind == Tool::Kind::function) names.reserve(tool.name);
  }
}

Result<void> settle_schemas(DeclaredTools& declared, Policy policy) {
  std::unordered_set<std::string_view> names;
  for (size_t i = 0; i < declared.tools.size(); ++i) {
    ToolDefinition& tool = declared.tools[i];
    const std::string& path = declared.paths[i];
    if (!names.insert(tool.name).second) return convert_error("Tool names must be unique.", path + ".name");
    if (auto result = settle_parameters(tool, policy, path + ".parameters"); !result) return result;
  }
  return {};
}

}  // namespace

Result<DeclaredTools> declare_tools(std::vector<Tool> tools, std::span<const Item> items, ModelVersion version,
                                    const ConversionOptions& options, FunctionNames& names) {
  reserve_names(tools, names);
  Declaration declaration{version, options, names, {}};
  for (size_t i = 0; i < tools.size(); ++i) {
    if (auto result = declaration.add_tool(std::move(tools[i]), element("tools", i)); !result) return result.error();
  }
  if (version == ModelVersion::v4) return std::move(declaration.result);
  std::vector<ToolDefinition>& all = declaration.result.tools;
  for (const Item& item : items) {
    if (item.kind != Item::Kind::search_output) continue;
    const size_t begin = all.size();
    const std::string list = element("input", size_t(item.index)) + ".tools";
    for (size_t i = 0; i < item.tools.size(); ++i) {
      if (auto result = declaration.add_tool(item.tools[i], element(list, i)); !result) return result.error();
    }
    for (size_t i = begin; i < all.size(); ++i) all[i].defer_loading = true;
    declaration.result.found.push_back({item.index, begin, all.size()});
  }
  return std::move(declaration.result);
}

Result<NamespaceMap> map_namespaces(const std::vector<Tool>& tools, ModelVersion version) {
  NamespaceMap map;
  FunctionNames names(version);
  reserve_names(tools, names);
  for (size_t i = 0; i < tools.size(); ++i) {
    if (auto result = check_names(tools[i], element("tools", i)); !result) return result.error();
    for (const Tool& member : tools[i].members) {
      map[names.declare(tools[i].name, member.name)] = {tools[i].name, member.name};
    }
  }
  return map;
}

Result<void> settle_tools(Conversation& conversation, DeclaredTools declared, const Choice& choice, Policy policy) {
  if (choice.kind == Choice::Kind::none) {
    conversation.tool_choice = ToolChoice::none;  // not even their schemas are looked at
    return {};
  }
  if (auto result = settle_schemas(declared, policy); !result) return result;
  conversation.tools = std::move(declared.tools);
  if (conversation.tools.empty()) return {};  // any choice is ignored
  if (choice.kind != Choice::Kind::required && choice.kind != Choice::Kind::named) return {};
  if (choice.kind == Choice::Kind::named) {
    auto& tools = conversation.tools;
    const auto named =
        std::find_if(tools.begin(), tools.end(), [&](const ToolDefinition& tool) { return tool.name == choice.name; });
    if (named == tools.end()) {
      return convert_error("Invalid value for 'tool_call': no function named '" + choice.name +
                               "' was specified in the 'tools' parameter.",
                           "tool_choice.name");
    }
    ToolDefinition only = std::move(*named);
    tools.clear();
    tools.push_back(std::move(only));
  }
  if (conversation.thinking) {
    return convert_error("Thinking mode does not support this tool_choice", "tool_choice");
  }
  conversation.tool_choice = ToolChoice::required;
  return {};
}

}  // namespace fathom::recipe::responses
