// fathom/recipe/api/responses/echo.h
// The settings of a Responses request that its answer repeats, as they were sent. Source: spec/recipe.md 9.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "fathom/base/json.h"

namespace fathom::recipe {

struct ResponsesEcho {
  std::optional<std::string> instructions;
  std::optional<uint32_t> max_output_tokens;
  float temperature = 1.0f;  // as requested, not as sampled
  float top_p = 1.0f;
  uint32_t top_logprobs = 0;
  std::optional<std::string> user;
  Json reasoning;  // as the response object shows it
  Json text;
  Json tool_choice;
  Json tools;  // from them the writer also knows which calls are custom_tool_call and tool_search_call
};

}  // namespace fathom::recipe
