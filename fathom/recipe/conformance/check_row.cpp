#include "fathom/recipe/conformance/check_row.h"

#include "fathom/recipe/conformance/observe.h"
#include "fathom/recipe/image_layout.h"

namespace fathom::recipe {
namespace {

Error bad_row(std::string message) {
  return Error{ErrorCode::bad_input, std::move(message), "", "vectors/recipe/README.md describes the rows"};
}

/// Members that observe() reads without asking.
bool has_parts(const Json& row, RowKind kind) {
  const Json* api = row.find("api");
  if (kind == RowKind::image) return row.find("width") != nullptr && row.find("height") != nullptr;
  if (api == nullptr || !api_of(api->text)) return false;
  if (row.find("request") == nullptr && row.find("request_text") == nullptr) return false;
  const Json* chunks = row.find("chunks");
  if (kind == RowKind::stream) return chunks->is_array();
  return true;
}

bool alphanumeric(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool digit(char c) { return c >= '0' && c <= '9'; }

/// call_NN_[ET_] + 20 alphanumerics + 4 digits -> call_NN_[ET_]RANDOM
void hide_random_part(std::string& id) {
  if (!id.starts_with("call_") || id.size() < 32 || !digit(id[5]) || !digit(id[6]) || id[7] != '_') return;
  const size_t random = id.compare(8, 3, "ET_") == 0 && id.size() == 35 ? 11 : 8;
  if (id.size() != random + 24) return;
  for (size_t i = random; i < id.size(); ++i) {
    if (i < random + 20 ? !alphanumeric(id[i]) : !digit(id[i])) return;
  }
  id.replace(random, 24, "RANDOM");
}

}  // namespace

std::optional<RowKind> kind_of(const Json& row) {
  const Json* expect = row.find("expect");
  if (expect == nullptr || !expect->is_object()) return {};
  std::optional<RowKind> kind;
  if (row.find("chunks") != nullptr)
    kind = RowKind::stream;
  else if (row.find("text") != nullptr)
    kind = RowKind::splits;
  else if (expect->find("conversation") != nullptr)
    kind = RowKind::request;
  else if (expect->find("stage") != nullptr || expect->find("accepted") != nullptr)
    kind = RowKind::refusal;
  else if (row.find("tokenizer") != nullptr)
    kind = RowKind::prompt_tokens;
  else if (row.find("width") != nullptr)
    kind = RowKind::image;
  if (!kind || !has_parts(row, *kind)) return {};
  return kind;
}

Result<Json> observe(const Json& row, const RowCheck& check) {
  const auto kind = kind_of(row);
  if (!kind) return bad_row("no recipe vector");
  switch (*kind) {
    case RowKind::request: return observe_request(row, check);
    case RowKind::refusal: return observe_refusal(row, check);
    case RowKind::stream: return observe_stream(row, check);
    case RowKind::splits: return observe_splits(row, check);
    case RowKind::prompt_tokens: return observe_prompt_tokens(row, check);
    case RowKind::image: return observe_image(row);
  }
  return bad_row("no recipe vector");
}

Result<RowVerdict> check_row(const Json& row, const RowCheck& check) {
  const auto found = observe(row, check);
  RowVerdict verdict;
  if (!found) {
    if (found.error().code != ErrorCode::not_found) return found.error();
    verdict.kind = RowVerdict::Kind::skipped;
    verdict.why = found.error().message;
    return verdict;
  }
  verdict.difference = first_difference(*row.find("expect"), *found, KeyOrder::matters);
  if (verdict.difference) verdict.kind = RowVerdict::Kind::differs;
  return verdict;
}

void normalise_answer(Json& value) {
  if (value.is_string()) hide_random_part(value.text);
  for (Json& item : value.items) normalise_answer(item);
  for (auto& [key, member] : value.fields) {
    const bool clock = key == "created" || key == "created_at" || key == "completed_at";
    if (clock && member.is_number())
      member.text = "0";
    else
      normalise_answer(member);
  }
}

Result<CodecRequest> read_row_request(const Json& row, const ConversionOptions& options) {
  const Api api = api_of(row.find("api")->text).value();
  if (const Json* text = row.find("request_text")) return read_request(api, std::string_view(text->text), options);
  return read_request(api, *row.find("request"), options);
}

Json refusal_as_json(const Error& error, const Json&) {
  Json out = Json::object();
  out.set("refused", Json::of(error.message));
  return out;
}

Result<const Tokenizer*> row_tokenizer(const Json& row, const RowCheck& check) {
  const std::string& name = row.find("tokenizer")->text;
  const Tokenizer* found = check.tokenizer ? check.tokenizer(name) : nullptr;
  if (found == nullptr) return Error{ErrorCode::not_found, "the tokenizer \"" + name + "\" is not there", "", ""};
  return found;
}

Json parsed(std::string_view json) {
  auto value = parse_json(json, "an answer");
  check(value.ok(), "the codec wrote JSON that cannot be read");
  return std::move(*value);
}

}  // namespace fathom::recipe
