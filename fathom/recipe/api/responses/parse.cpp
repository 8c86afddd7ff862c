// JSON -> ResponsesRequestBody: shapes only, nothing is judged. A list of plain lines; Field notes the first mistake.
#include "fathom/recipe/api/field.h"
#include "fathom/recipe/api/responses/body.h"
#include "fathom/recipe/request_error.h"

namespace fathom::recipe {
namespace responses {
namespace {

// The word that an optional field holds, one of `words`.
std::optional<std::string> optional_word(const Field& field, std::initializer_list<std::string_view> words) {
  const auto index = field.optional_choice(words);
  if (!index) return {};
  return std::string(words.begin()[*index]);
}

Part read_part(const Field& field, bool output) {
  enum { input_text, input_image, input_file, output_text };
  Part part;
  // Outputs of tools have no output_text.
  const int type = output ? field["type"].choice({"input_text", "input_image", "input_file"})
                          : field["type"].choice({"input_text", "input_image", "input_file", "output_text"});
  switch (type) {
    case input_image: {
      part.kind = Part::Kind::image;
      part.image_url = field["image_url"].optional_text();
      part.file_id = field["file_id"].optional_text();
      const auto detail = field["detail"].optional_choice({"low", "high", "original", "auto"});
      if (detail) part.detail = ImageDetail(*detail);
      break;
    }
    case input_file: part.kind = Part::Kind::file; break;
    default: part.text = field["text"].text(); break;
  }
  return part;
}

std::vector<Part> read_content(const Field& field, bool output) {
  std::vector<Part> parts;
  if (field.peek_text()) {
    parts.emplace_back().text = field.text();
  } else if (field.is(Json::Kind::array)) {
    const std::vector<Field> list = field.list();
    parts.reserve(list.size());
    for (const Field& part : list) parts.push_back(read_part(part.required(), output));
  } else {
    field.refuse_type("a string or a list of parts");
  }
  return parts;
}

std::string read_reasoning(const Field& content, Policy policy) {
  if (policy == Policy::lenient && content.peek_text()) return content.text();  // D-1
  std::string text;
  bool first = true;
  for (const Field& part : content.list()) {
    if (!first) text += '\n';
    text += part.required()["text"].text();
    first = false;
  }
  return text;
}

Tool::Location read_location(const Field& field) {
  return Tool::Location{field["city"].optional_text(), field["country"].optional_text(),
                        field["region"].optional_text(), field["timezone"].optional_text()};
}

void read_function(const Field& field, Tool& tool) {
  tool.kind = Tool::Kind::function;
  tool.name = field["name"].text();
  tool.description = field["description"].optional_text();
  tool.parameters = field["parameters"].optional_json();
  tool.strict = field["strict"].optional_flag();
}

Tool read_member(const Field& field) {
  Tool tool;
  if (field["type"].choice({"function", "custom"}) == 0) {
    read_function(field, tool);
  } else {
    tool.kind = Tool::Kind::custom;
    tool.name = field["name"].text();
  }
  return tool;
}

Tool read_tool(const Field& field) {
  Tool tool;
  const std::string type = field["type"].text();
  if (type == "function") {
    read_function(field, tool);
  } else if (type == "custom") {
    tool.kind = Tool::Kind::custom;
    tool.name = field["name"].text();
  } else if (type == "namespace") {
    tool.kind = Tool::Kind::name_space;
    tool.name = field["name"].text();
    tool.description = field["description"].optional_text();
    for (const Field& member : field["tools"].required().list()) tool.members.push_back(read_member(member.required()));
  } else if (type == "tool_search") {
    tool.kind = Tool::Kind::tool_search;
    tool.execution = optional_word(field["execution"], {"client", "server"});
    tool.description = field["description"].optional_text();
    tool.parameters = field["parameters"].optional_json();
  } else if (type == "web_search" || type == "web_search_2025_08_26") {
    tool.kind = Tool::Kind::web_search;
    tool.type = type;
    tool.search_context = optional_word(field["search_context_size"], {"low", "medium", "high"});
    const Field location = field["user_location"];
    if (location.present()) tool.location = read_location(location);
  }
  return tool;
}

std::vector<Tool> read_tools(const Field& field) {
  std::vector<Tool> tools;
  const std::vector<Field> list = field.list();
  tools.reserve(list.size());
  for (const Field& tool : list) tools.push_back(read_tool(tool.required()));
  return tools;
}

void read_message(const Field& field, Item& item) {
  item.kind = Item::Kind::message;
  item.role = Item::Role(field["role"].choice({"user", "assistant", "system", "developer"}));
  item.content = read_content(field["content"], false);
}

Item read_item(const Field& field, Policy policy) {
  Item item;
  const Field type = field["type"];
  if (!type.given()) {
    read_message(field, item);
    return item;
  }
  const std::string word = type.text();  // null is no kind of item
  if (word == "message") {
    read_message(field, item);
  } else if (word == "reasoning") {
    item.kind = Item::Kind::reasoning;
    item.text = read_reasoning(field["content"], policy);
    field["encrypted_content"].optional_text();
  } else if (word == "function_call") {
    item.kind = Item::Kind::call;
    item.call_id = field["call_id"].text();
    item.name = field["name"].text();
    item.text = field["arguments"].text();
    item.name_space = field["namespace"].optional_text();
  } else if (word == "custom_tool_call") {
    item.kind = Item::Kind::custom_call;
    item.call_id = field["call_id"].text();
    item.name = field["name"].text();
    item.text = field["input"].text();
  } else if (word == "function_call_output") {
    const Field id = field["call_id"];
    item.kind = id.present() ? Item::Kind::output : Item::Kind::loose_output;
    item.call_id = id.optional_text().value_or("");
    item.content = read_content(field["output"], true);
  } else if (word == "custom_tool_call_output") {
    item.kind = Item::Kind::output;
    item.call_id = field["call_id"].text();
    const Field output = field["output"];
    if (output.present()) item.content = read_content(output, true);
  } else if (word == "tool_search_call") {
    item.kind = Item::Kind::search_call;
    item.call_id = field["call_id"].text();
    field["execution"].optional_choice({"client", "server"});
    const Field arguments = field["arguments"];
    if (!arguments.is(Json::Kind::object)) arguments.refuse_type("an object");
    item.arguments = arguments.take();
  } else if (word == "web_search_call") {
    item.kind = Item::Kind::server_call;
  } else if (word == "tool_search_output") {
    item.kind = Item::Kind::search_output;
    item.call_id = field["call_id"].text();
    field["execution"].optional_choice({"client", "server"});
    item.tools = read_tools(field["tools"].required());
  }
  return item;
}

void read_input(const Field& field, Policy policy, ResponsesRequestBody& body) {
  if (!field.present()) return;
  if (field.peek_text()) {
    body.input = field.text();
    return;
  }
  if (!field.is(Json::Kind::array)) return field.refuse_type("a string or a list of items");
  std::vector<Item> items;
  const std::vector<Field> list = field.list();
  items.reserve(list.size());
  for (const Field& item : list) {
    items.push_back(read_item(item.required(), policy));
    items.back().index = int64_t(items.size()) - 1;
  }
  body.input = std::move(items);
}

Choice read_choice(const Field& field) {
  Choice choice;
  if (!field.present()) return choice;
  if (const auto word = field.peek_text()) {
    choice.kind = Choice::Kind(field.choice({"auto", "none", "required"}));
    return choice;
  }
  enum { function, custom, web_search };
  const int type = field["type"].choice({"function", "custom", "web_search", "web_search_2025_08_26"});
  choice.kind = type < web_search ? Choice::Kind::named : Choice::Kind::web_search;
  choice.type = type == function     ? "function"
                : type == custom     ? "custom"
                : type == web_search ? "web_search"
                                     : "web_search_2025_08_26";
  if (choice.kind == Choice::Kind::named) choice.name = field["name"].text();
  return choice;
}

Format read_format(const Field& field) {
  Format format;
  if (!field.given()) return format;
  format.kind = Format::Kind(field["type"].choice({"text", "json_object", "json_schema"}));
  if (format.kind != Format::Kind::json_schema) return format;
  format.name = field["name"].text();
  format.description = field["description"].optional_text();
  format.strict = field["strict"].optional_flag();
  // A schema that is null is there; whether it is a schema is judged by conversion.
  const Field schema = field["schema"];
  if (schema.present()) {
    format.schema = schema.take();
  } else if (!schema.given()) {
    schema.required();
  }
  return format;
}

}  // namespace
}  // namespace responses

ResponsesRequest::ResponsesRequest(std::unique_ptr<ResponsesRequestBody> body) : body_(std::move(body)) {}
ResponsesRequest::ResponsesRequest(ResponsesRequest&&) noexcept = default;
ResponsesRequest& ResponsesRequest::operator=(ResponsesRequest&&) noexcept = default;
ResponsesRequest::~ResponsesRequest() = default;

const std::string& ResponsesRequest::model() const { return body_->model; }

Result<ResponsesRequest> ResponsesRequest::parse(std::string_view text, Policy policy) {
  auto json = parse_body(text);
  if (!json) return json.error();
  return parse(std::move(*json), policy);
}

Result<ResponsesRequest> ResponsesRequest::parse(Json json, Policy policy) {
  BodyFailure failure(json);
  const Field root(json, failure);
  auto body = std::make_unique<ResponsesRequestBody>();
  body->model = root["model"].text();
  body->instructions = root["instructions"].optional_text();
  body->max_output_tokens = root["max_output_tokens"].optional_count();
  body->temperature = root["temperature"].optional_float();
  body->top_p = root["top_p"].optional_float();
  body->top_logprobs = root["top_logprobs"].optional_count();
  body->user = root["user"].optional_text();
  body->stream = root["stream"].optional_flag().value_or(false);

  const Field reasoning = root["reasoning"];
  body->effort = read_effort(reasoning["effort"], policy);
  body->summary = responses::optional_word(reasoning["summary"], {"auto", "concise", "detailed"});
  // The older name of the same field.
  const auto generate_summary =
      responses::optional_word(reasoning["generate_summary"], {"auto", "concise", "detailed"});
  if (!body->summary) body->summary = generate_summary;

  const Field text = root["text"];
  body->verbosity = responses::optional_word(text["verbosity"], {"low", "medium", "high"});
  body->format = responses::read_format(text["format"]);
  body->tools = responses::read_tools(root["tools"]);
  body->tool_choice = responses::read_choice(root["tool_choice"]);
  responses::read_input(root["input"], policy, *body);
  if (failure.noted()) return failure.error();
  return ResponsesRequest(std::move(body));
}

}  // namespace fathom::recipe
