#include "fathom/cli/model_config.h"

#include <vector>

#include "fathom/checkpoint/checkpoint.h"
#include "fathom/checkpoint/embedded_model.h"
#include "fathom/cli/synthetic_model.h"

namespace fathom::cli {

Result<ModelConfig> config_of(const std::string& model) {
  if (is_synthetic(model)) {
    auto wanted = parse_synthetic(model);
    if (!wanted) return wanted.error();
    return std::move(wanted->config);
  }
  Result<Json> json = Json{};
  if (model.empty()) {
    std::vector<Error> problems;
    json = Checkpoint::open_partly(embedded_model(), problems).config();
  } else {
    json = Checkpoint::read_config(model);
  }
  if (!json) return json.error();
  auto config = parse_model_config(*json, model.empty() ? "embedded model" : model + "/config.json");
  if (config || config.error().code != ErrorCode::unsupported) return config;
  Error error = config.error();
  error.code = ErrorCode::bad_input;
  return error;
}

}  // namespace fathom::cli
