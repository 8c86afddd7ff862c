// fathom/server/model_names.h
// The names that the model answers to (codec-policy.md D-7), for routes that do not go through the codec.
#pragma once
#include <string>
#include <vector>

#include "fathom/base/result.h"
#include "fathom/recipe/settings.h"

namespace fathom {

/// Of the conversion's table, with those that policy `default` adds.
std::vector<std::string> model_names(const recipe::ConversionOptions& options);
bool is_model(const std::string& name, const recipe::ConversionOptions& options);
/// Errors: usage, in the words of the codec.
Result<void> check_model(const std::string& name, const recipe::ConversionOptions& options);

}  // namespace fathom
