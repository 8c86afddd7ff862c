// fathom/recipe/testing/request_vectors.h
// For tests of requests: the rows of vectors/recipe, their options, and the comparison of a ConvertedRequest with a
// row. Prompts are not compared here. Source: vectors/recipe/README.md.
#pragma once
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "fathom/base/json.h"
#include "fathom/recipe/conformance/json_difference.h"
#include "fathom/recipe/describe.h"
#include "fathom/recipe/request_error.h"
#include "fathom/recipe/settings.h"

namespace fathom::recipe::vectors {

/// A file of the shared folder. Tests skip, visibly, when it is not there.
inline std::string shared(std::string_view name) {
  const char* set = std::getenv("FATHOM_SHARED");
  return std::string(set ? set : "shared") + "/" + std::string(name);
}

/// The rows of a JSONL file in their order; empty when the file is not there.
inline std::vector<Json> rows(std::string_view name) {
  std::vector<Json> rows;
  std::ifstream file(shared(name));
  for (std::string line; std::getline(file, line);) {
    auto row = parse_json(line, name);
    EXPECT_TRUE(row.ok()) << name << ": " << line.substr(0, 80);
    if (row) rows.push_back(std::move(*row));
  }
  return rows;
}

/// The rows of `requests` or `invalid` of one API ("chat", "responses", "messages").
inline std::vector<Json> rows_of(std::string_view file, std::string_view api) {
  std::vector<Json> selected;
  for (Json& row : rows("vectors/recipe/" + std::string(file) + ".jsonl")) {
    if (row.find("api")->text == api) selected.push_back(std::move(row));
  }
  return selected;
}

inline const std::string& name_of(const Json& row) { return row.find("name")->text; }

/// The request's body as it was sent.
inline std::string body_of(const Json& row) {
  const Json* text = row.find("request_text");
  return text ? text->text : to_string(*row.find("request"));
}

inline ConversionOptions options_of(const Json& row, Policy policy) {
  using WebSearch = ConversionOptions::WebSearch;
  ConversionOptions options;
  options.policy = policy;
  const Json none = Json::object();
  const Json* given = row.find("options");
  for (const auto& [name, value] : (given ? *given : none).fields) {
    const auto web_search = value.text == "Drop" ? WebSearch::drop : WebSearch::reject;
    if (name == "default_thinking_mode") options.default_thinking = value.boolean;
    if (name == "reasoning_content_behavior") options.reject_missing_reasoning = value.text == "Reject";
    if (name == "responses_web_search") options.responses_web_search = web_search;
    if (name == "messages_web_search") options.messages_web_search = web_search;
    if (name == "thinking_max_tokens_upper_bound") options.thinking_max_tokens = uint32_t(*value.as_int64());
    if (name == "non_thinking_max_tokens_upper_bound") options.non_thinking_max_tokens = uint32_t(*value.as_int64());
    if (name == "model_aliases") {
      for (const auto& [alias, version] : value.fields) {
        options.models.emplace_back(alias, version.text == "v4" ? ModelVersion::v4 : ModelVersion::v41);
      }
    }
    if (name == "special_tokens") {
      for (const auto& [token, spelling] : value.fields) {
        for (int i = 0; i < kSpecialTokens; ++i) {
          if (recipe::name_of(SpecialToken(i)) == token) options.spellings[SpecialToken(i)] = spelling.text;
        }
      }
    }
  }
  return options;
}

/// What differs first between two values, as one line; empty when nothing does.
inline std::string difference(const Json& expected, const Json& found) {
  const auto first = first_difference(expected, found, KeyOrder::matters);
  return first ? first->pointer + ": expected " + first->expected + ", found " + first->found : "";
}

/// What differs first between a converted request and its row: every member of `expect` that describe() knows, and
/// resolve_max_tokens.
inline std::string difference(const Json& row, const ConvertedRequest& request, Api api, Policy policy) {
  const Json& expect = *row.find("expect");
  for (const auto& [name, found] : describe(request).fields) {
    const Json* expected = expect.find(name);
    if (!expected) return "/" + name + " is not in the row";
    if (const std::string differs = difference(*expected, found); !differs.empty()) return "/" + name + differs;
  }
  for (const Json& limit : expect.find("resolve_max_tokens")->items) {
    const auto resolved = resolve_max_tokens(request, *limit.items[0].as_int64(), *limit.items[1].as_int64());
    Json found;
    if (resolved) {
      found = Json::of(*resolved);
    } else {
      found.set("status", Json::of(status_of(resolved.error())));
      auto body = parse_json(error_body(resolved.error(), api, policy), "body");
      EXPECT_TRUE(body.ok());
      found.set("body", body ? *body : Json());
    }
    if (const std::string differs = difference(limit.items[2], found); !differs.empty()) {
      return "/resolve_max_tokens of " + to_string(limit) + differs;
    }
  }
  return "";
}

/// Why a refusal does not have the status and body that an `invalid` row expects; empty when it has. Texts of the parse
/// stage are not normative: only that it is refused there, with status 400 and a body of the one form.
inline std::string difference(const Json& row, const Error& error, Api api, Policy policy) {
  const Json& expect = *row.find("expect");
  const std::string body = error_body(error, api, policy);
  if (status_of(error) != 400) return "status " + std::to_string(status_of(error));
  if (expect.find("stage")->text == "parse") {
    return error.code == ErrorCode::bad_input ? "" : "refused too late: " + body;
  }
  if (error.code != ErrorCode::usage) return "refused too early: " + body;
  const std::string& expected = expect.find("body_text")->text;
  return body == expected ? "" : "expected " + expected + ", found " + body;
}

}  // namespace fathom::recipe::vectors
