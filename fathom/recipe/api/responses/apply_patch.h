// fathom/recipe/api/responses/apply_patch.h
// The one custom tool that is supported. To the model it is a function with one string argument, `input`, whatever
// the request says about it. Source: spec/recipe.md 3, vectors fixed_texts (apply_patch_tool).
#pragma once
#include <string_view>

#include "fathom/recipe/conversation.h"
#include "fathom/recipe/policy.h"

namespace fathom::recipe::responses {

inline constexpr std::string_view kApplyPatch = "apply_patch";

ToolDefinition apply_patch_tool(ModelVersion version);

}  // namespace fathom::recipe::responses
