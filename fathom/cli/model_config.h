// fathom/cli/model_config.h
// The configuration of what --model names, without its weights.
#pragma once
#include <string>

#include "fathom/base/result.h"
#include "fathom/model/config.h"

namespace fathom::cli {

/// Empty: the embedded miniature. Errors: usage for a synthetic model, bad_input and not_found for a folder.
Result<ModelConfig> config_of(const std::string& model);

}  // namespace fathom::cli
