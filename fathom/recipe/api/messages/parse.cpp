// The shape of a Messages request: which fields are read, of what type. What is not read here is ignored.
#include "fathom/recipe/api/field.h"
#include "fathom/recipe/api/messages/body.h"
#include "fathom/recipe/api/messages/request.h"

namespace fathom::recipe {
namespace {

MessagesImage read_image(const Field& source) {
  MessagesImage image;
  image.kind = MessagesImage::Kind(source["type"].choice({"base64", "url", "file"}));
  switch (image.kind) {
    case MessagesImage::Kind::base64: {
      constexpr const char* kTypes[] = {"image/jpeg", "image/jpeg", "image/png", "image/gif", "image/webp"};
      image.media_type =
          kTypes[source["media_type"].choice({"image/jpeg", "image/jpg", "image/png", "image/gif", "image/webp"})];
      image.data = source["data"].text();
      break;
    }
    case MessagesImage::Kind::url: image.data = source["url"].text(); break;
    case MessagesImage::Kind::file: image.data = source["file_id"].text(); break;
  }
  return image;
}

// The media type is all that is said about a document.
std::string read_document(const Field& source) {
  return source.required()["media_type"].optional_text().value_or("unknown");
}

MessagesResultPart read_result_part(const Field& field) {
  using Kind = MessagesResultPart::Kind;
  MessagesResultPart part;
  part.kind = Kind(field["type"].choice({"text", "image", "document", "tool_reference"}));
  switch (part.kind) {
    case Kind::text: part.text = field["text"].text(); break;
    case Kind::image: part.image = read_image(field["source"].required()); break;
    case Kind::document: part.text = read_document(field["source"]); break;
    case Kind::tool_reference: part.text = field["tool_name"].text(); break;
  }
  return part;
}

// A value of which null is one. Absence is a mistake.
Json read_any(const Field& field) {
  if (!field.given()) field.required();
  return field.optional_json().value_or(Json());
}

// True for a string, false for a list; anything else is a mistake, and so is absence.
bool is_plain_text(const Field& field) {
  if (field.is(Json::Kind::string)) return true;
  if (field.required().present() && !field.is(Json::Kind::array)) field.refuse_type("a string or a list of blocks");
  return false;
}

MessagesBlock read_block(const Field& field) {
  using Kind = MessagesBlock::Kind;
  MessagesBlock block;
  block.kind = Kind(field["type"].choice({"text", "image", "document", "thinking", "server_tool_use", "tool_use",
                                          "tool_result", "web_search_tool_result", "tool_addition"}));
  switch (block.kind) {
    case Kind::text: block.text = field["text"].text(); break;
    case Kind::image: block.image = read_image(field["source"].required()); break;
    case Kind::document: block.text = read_document(field["source"]); break;
    case Kind::thinking:
      block.text = field["thinking"].text();
      (void)field["signature"].optional_text();
      break;
    case Kind::server_tool_use:
    case Kind::tool_use:
      block.id = field["id"].text();
      block.text = field["name"].text();
      block.input = read_any(field["input"]);
      break;
    case Kind::tool_result: {
      block.id = field["tool_use_id"].text();
      (void)field["is_error"].optional_flag();
      const Field content = field["content"];
      if (!content.present()) break;
      if (is_plain_text(content)) {
        block.parts.push_back({MessagesResultPart::Kind::text, content.text(), {}});
        break;
      }
      for (const Field& part : content.list()) block.parts.push_back(read_result_part(part));
      break;
    }
    case Kind::web_search_tool_result:
      block.id = field["tool_use_id"].text();
      (void)read_any(field["content"]);
      break;
    case Kind::tool_addition: {
      const Field tool = field["tool"].required();
      (void)tool["type"].choice({"tool_reference"});
      block.text = tool["name"].text();
      break;
    }
  }
  return block;
}

MessagesTurn read_turn(const Field& field) {
  MessagesTurn turn;
  turn.role = MessagesTurn::Role(field["role"].choice({"user", "assistant", "system"}));
  const Field content = field["content"];
  if (is_plain_text(content)) {
    MessagesBlock& text = turn.blocks.emplace_back();
    text.text = content.text();
    return turn;
  }
  const std::vector<Field> blocks = content.list();
  turn.blocks.reserve(blocks.size());
  for (const Field& block : blocks) turn.blocks.push_back(read_block(block));
  return turn;
}

// Any type at all makes a server tool, of which nothing else but the name matters (spec 4).
MessagesTool read_tool(const Field& field) {
  MessagesTool tool;
  if (field["type"].given()) {
    tool.type = field["type"].text();
    tool.name = field["name"].optional_text().value_or("");
    return tool;
  }
  tool.name = field["name"].text();
  tool.description = field["description"].optional_text();
  tool.input_schema = field["input_schema"].optional_json().value_or(Json());
  tool.defer_loading = field["defer_loading"].optional_flag().value_or(false);
  return tool;
}

MessagesToolChoice read_tool_choice(const Field& field) {
  MessagesToolChoice choice;
  if (!field.present()) return choice;
  choice.kind = MessagesToolChoice::Kind(field["type"].choice({"auto", "any", "tool", "none"}));
  if (choice.kind == MessagesToolChoice::Kind::tool) choice.name = field["name"].text();
  if (choice.kind != MessagesToolChoice::Kind::none) (void)field["disable_parallel_tool_use"].optional_flag();
  return choice;
}

void read_system(const Field& field, MessagesRequestBody& request) {
  if (!field.present()) return;
  auto& texts = request.system.emplace();
  if (is_plain_text(field)) {
    texts.push_back(field.text());
    return;
  }
  request.system_is_list = true;
  for (const Field& block : field.list()) {
    (void)block["type"].choice({"text"});
    texts.push_back(block["text"].text());
  }
}

}  // namespace

MessagesRequest::MessagesRequest(std::unique_ptr<MessagesRequestBody> body) : body_(std::move(body)) {}
MessagesRequest::MessagesRequest(MessagesRequest&&) noexcept = default;
MessagesRequest& MessagesRequest::operator=(MessagesRequest&&) noexcept = default;
MessagesRequest::~MessagesRequest() = default;

const std::string& MessagesRequest::model() const { return body_->model; }

Result<MessagesRequest> MessagesRequest::parse(std::string_view body, Policy policy) {
  Result<Json> json = parse_body(body);
  if (!json) return json.error();
  return parse(std::move(*json), policy);
}

Result<MessagesRequest> MessagesRequest::parse(Json json, Policy policy) {
  BodyFailure failure(json);
  const Field body(json, failure);
  auto request = std::make_unique<MessagesRequestBody>();
  request->model = body["model"].text();
  const std::vector<Field> turns = body["messages"].required().list();
  request->turns.reserve(turns.size());
  for (const Field& turn : turns) request->turns.push_back(read_turn(turn));
  read_system(body["system"], *request);
  request->max_tokens = body["max_tokens"].optional_count();
  request->temperature = body["temperature"].optional_float();
  request->top_p = body["top_p"].optional_float();
  for (const Field& sequence : body["stop_sequences"].list()) request->stop_sequences.push_back(sequence.text());
  request->stream = body["stream"].optional_flag().value_or(false);
  request->thinking = read_thinking(body["thinking"]);
  request->effort = read_effort(body["output_config"]["effort"], policy);
  for (const Field& tool : body["tools"].list()) request->tools.push_back(read_tool(tool));
  request->tool_choice = read_tool_choice(body["tool_choice"]);
  (void)body["metadata"]["user_id"].optional_text();
  if (failure.noted()) return failure.error();
  return MessagesRequest(std::move(request));
}

}  // namespace fathom::recipe
