// Expectations of the default policy, and the tokenizer that some rows derive.
#include "fathom/recipe/conformance/check_row.h"

namespace fathom::recipe {
namespace {

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> out;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    out.push_back(text.substr(0, end));
    text.remove_prefix(std::min(text.size(), end + 1));
  }
  return out;
}

}  // namespace

Result<Expectations> Expectations::parse(std::string_view lines, std::string_view where) {
  Expectations out;
  int64_t number = 0;
  for (const std::string_view line : lines_of(lines)) {
    ++number;
    if (line.empty()) continue;
    const std::string place = std::string(where) + ", line " + std::to_string(number);
    const auto tree = parse_json(line, place);
    if (!tree) return tree.error();
    const Json *file = tree->find("file"), *name = tree->find("name"), *rule = tree->find("rule"),
               *set = tree->find("set");
    if (file == nullptr || name == nullptr || rule == nullptr || set == nullptr || !set->is_object()) {
      return Error{ErrorCode::bad_input, "an expectation lacks a member", place,
                   R"(each line is {"file": …, "name": …, "rule": …, "set": {pointer: value}})"};
    }
    Entry& entry = out.changes_[{file->text, name->text}];
    entry.rule = rule->text;
    for (const auto& [pointer, value] : set->fields) entry.changes.push_back({pointer, value});
  }
  return out;
}

Result<void> Expectations::amend(std::string_view file, Json& row) const {
  const Json* name = row.find("name");
  const auto found = changes_.find({std::string(file), name != nullptr ? name->text : ""});
  if (found == changes_.end()) return {};
  for (auto& [key, value] : row.fields) {
    if (key == "expect" && !apply_changes(value, found->second.changes)) {
      return Error{ErrorCode::bad_input, "an expectation names a place that the row does not have", name->text,
                   "compare its pointers with the row"};
    }
  }
  return {};
}

std::string_view Expectations::rule(std::string_view file, std::string_view row) const {
  const auto found = changes_.find({std::string(file), std::string(row)});
  return found == changes_.end() ? std::string_view() : found->second.rule;
}

Result<std::string> derive_v41_json(std::string_view v4_json) {
  auto tree = parse_json(v4_json, "tokenizer.json");
  if (!tree) return tree.error();
  const std::map<int64_t, const char*> replaced = {
      {128799, "<｜System｜>"}, {129264, "<｜deepseek_image｜>"}, {129279, "<｜place▁holder▁no▁1279｜>"}};
  for (auto& [key, value] : tree->fields) {
    if (key != "added_tokens") continue;
    for (Json& token : value.items) {
      const Json* id = token.find("id");
      const auto spelling = replaced.find(id != nullptr ? id->as_int64().value_or(-1) : -1);
      if (spelling != replaced.end()) token.set("content", Json::of(spelling->second));
    }
  }
  return to_string(*tree);
}

Result<Tokenizer> derive_v41_tokenizer(std::string_view v4_json) {
  const auto derived = derive_v41_json(v4_json);
  if (!derived) return derived.error();
  return Tokenizer::parse(*derived, "the derived tokenizer");
}

}  // namespace fathom::recipe
