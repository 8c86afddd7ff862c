// fathom/recipe/api/responses/body.h
// The typed fields of a Responses request, between parse and convert. Unknown items and tools keep their place, so that
// the numbers in messages ("input[3]") are the caller's. Source: spec/recipe.md 3; docs/recipe-findings.md (responses).
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "fathom/base/json.h"
#include "fathom/recipe/api/responses/request.h"
#include "fathom/recipe/api/shared_rules.h"
#include "fathom/recipe/conversation.h"

namespace fathom::recipe::responses {

/// A declared tool, or one found by a tool search.
struct Tool {
  enum class Kind { function, name_space, custom, tool_search, web_search, unsupported };
  struct Location {
    std::optional<std::string> city, country, region, timezone;
  };

  Kind kind = Kind::unsupported;
  std::string type;  // web_search: which of its two spellings
  std::string name;
  std::optional<std::string> description;
  std::optional<Json> parameters;             // function, tool_search
  std::optional<bool> strict;                 // function
  std::vector<Tool> members;                  // name_space: functions and custom tools
  std::optional<std::string> execution;       // tool_search: "client" or "server"
  std::optional<std::string> search_context;  // web_search
  std::optional<Location> location;           // web_search

  /// A tool_search that the caller runs: the model may call it.
  bool client_search() const { return kind == Kind::tool_search && execution == "client"; }
};

/// A part of a message or of an output.
struct Part {
  enum class Kind { text, image, file };
  Kind kind = Kind::text;
  std::string text;
  std::optional<std::string> image_url, file_id;
  std::optional<ImageDetail> detail;
};

struct Item {
  enum class Kind {
    message,
    reasoning,
    call,
    custom_call,
    search_call,
    server_call,
    output,
    loose_output,
    search_output,
    unsupported
  };
  enum class Role { user, assistant, system, developer };

  Kind kind = Kind::unsupported;
  int64_t index = 0;  // its place in the input
  Role role = Role::user;
  std::vector<Part> content;              // message, output; a plain string is one text part
  std::string text;                       // reasoning; call: arguments; custom_call: input
  std::string call_id;                    // calls and outputs
  std::string name;                       // call, custom_call
  std::optional<std::string> name_space;  // call
  Json arguments;                         // search_call
  std::vector<Tool> tools;                // search_output
};

struct Choice {
  enum class Kind { automatic, none, required, named, web_search };
  Kind kind = Kind::automatic;
  std::string type, name;  // as sent, when it was an object
};

struct Format {
  enum class Kind { text, json_object, json_schema };
  Kind kind = Kind::text;
  std::string name;
  Json schema;
  std::optional<std::string> description;
  std::optional<bool> strict;
};

/// A tool as responses repeat it: members that were absent are null, members of a namespace stand inside it.
Json tool_as_json(const Tool& tool);

/// The tools of a search as the output text repeats them: members of a namespace stand in the list and name it.
/// Errors: usage, when one of them is of an unknown kind.
Result<std::string> found_tools_text(const Item& search_output);

}  // namespace fathom::recipe::responses

namespace fathom::recipe {

struct ResponsesRequestBody {
  std::string model;
  std::variant<std::monostate, std::string, std::vector<responses::Item>> input;
  std::optional<std::string> instructions;
  std::optional<uint32_t> max_output_tokens;
  std::optional<float> temperature, top_p;
  std::optional<uint32_t> top_logprobs;
  std::optional<RequestedEffort> effort;
  std::optional<std::string> summary;    // reasoning.summary
  std::optional<std::string> verbosity;  // text.verbosity
  responses::Format format;
  std::vector<responses::Tool> tools;
  responses::Choice tool_choice;
  std::optional<std::string> user;
  bool stream = false;
};

}  // namespace fathom::recipe
