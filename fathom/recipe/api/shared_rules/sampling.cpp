// Model names, sampling values, stop sequences.
#include <algorithm>

#include "fathom/recipe/api/shared_rules.h"
#include "fathom/recipe/request_error.h"

namespace fathom::recipe {
namespace {

constexpr size_t kMostStopSequences = 16;

char lower_letter(char c) { return c >= 'A' && c <= 'Z' ? char(c + ('a' - 'A')) : c; }

bool same_without_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return lower_letter(x) == lower_letter(y); });
}

}  // namespace

Result<ModelVersion> resolve_model(std::string_view model, const ConversionOptions& options) {
  for (const auto& [name, version] : options.models) {
    if (name == model) return version;
  }
  if (options.policy == Policy::lenient) {
    for (const auto& [name, version] : options.models) {
      if (same_without_case(name, model)) return version;
    }
    if (same_without_case("deepseek-flash", model)) return ModelVersion::v41;
  }
  std::string message = "The supported API model names are ";
  for (const auto& [name, version] : options.models) message += name + ", ";
  return convert_error(message + "but you passed " + std::string(model) + ".", "model");
}

Result<void> check_temperature(std::optional<float> temperature) {
  // Written so that it refuses NaN too.
  if (!temperature || (*temperature >= 0 && *temperature <= 2)) return {};
  return convert_error("Invalid temperature value, the valid range of temperature is [0, 2]", "temperature");
}

Result<void> check_top_p(std::optional<float> top_p) {
  if (!top_p || (*top_p > 0 && *top_p <= 1)) return {};
  return convert_error("Invalid top_p value, the valid range of top_p is (0, 1.0]", "top_p");
}

Result<void> check_top_logprobs(std::optional<uint32_t> top_logprobs) {
  if (!top_logprobs || *top_logprobs <= 20) return {};
  return convert_error("Invalid top_logprobs value, the valid range of top_logprobs is [0, 20].", "top_logprobs");
}

Result<void> check_max_tokens(std::optional<uint32_t> max_tokens, bool thinking, const ConversionOptions& options,
                              std::string_view path) {
  const uint32_t bound = thinking ? options.thinking_max_tokens : options.non_thinking_max_tokens;
  if (!max_tokens || (*max_tokens >= 1 && *max_tokens <= bound)) return {};
  return convert_error("Invalid max_tokens value, the valid range of max_tokens is [1, " + std::to_string(bound) + "]",
                       std::string(path));
}

void resolve_sampling(Inference& inference, std::optional<float> temperature, std::optional<float> top_p,
                      ModelVersion version, bool thinking, bool tools_active) {
  if (thinking) {
    inference.temperature = 1.0f;
    if (version == ModelVersion::v4) {
      inference.top_p = tools_active ? 0.95f : 1.0f;
    } else {
      inference.top_p = std::max(top_p.value_or(1.0f), 0.95f);
    }
    return;
  }
  inference.temperature = temperature.value_or(1.0f);
  inference.top_p = version == ModelVersion::v4 ? top_p.value_or(1.0f) : 1.0f;
}

Result<void> check_stop(const std::vector<std::string>& stop, bool single, std::string_view path) {
  if (stop.size() > kMostStopSequences) {
    return convert_error("Stop string array too long: " + std::to_string(stop.size()), std::string(path));
  }
  for (size_t i = 0; i < stop.size(); ++i) {
    if (!stop[i].empty()) continue;
    const std::string index = single ? "" : "[" + std::to_string(i) + "]";
    return convert_error("Invalid 'stop" + index +
                             "': empty string. Expected a string with minimum length 1, but got an empty string "
                             "instead.",
                         std::string(path) + index);
  }
  return {};
}

}  // namespace fathom::recipe
