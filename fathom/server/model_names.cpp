#include "fathom/server/model_names.h"

#include <algorithm>

#include "fathom/net/http_message.h"

namespace fathom {

std::vector<std::string> model_names(const recipe::ConversionOptions& options) {
  std::vector<std::string> names;
  for (const auto& [name, version] : options.models) names.push_back(name);
  if (options.policy == recipe::Policy::lenient) names.emplace_back("deepseek-flash");
  return names;
}

bool is_model(const std::string& name, const recipe::ConversionOptions& options) {
  const std::vector<std::string> names = model_names(options);
  return std::any_of(names.begin(), names.end(), [&](const std::string& known) {
    return options.policy == recipe::Policy::lenient ? net::equals_ignoring_case(known, name) : known == name;
  });
}

Result<void> check_model(const std::string& name, const recipe::ConversionOptions& options) {
  if (is_model(name, options)) return {};
  std::string list;
  for (const auto& [known, version] : options.models) list += (list.empty() ? "" : ", ") + known;
  return Error{ErrorCode::usage, "The supported API model names are " + list + ", but you passed " + name + ".",
               "model", ""};
}

}  // namespace fathom
