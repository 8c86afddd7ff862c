// Any bytes as config.json: problems, or a configuration from which everything else can be derived.
#include <string_view>

#include "fathom/base/check.h"
#include "fathom/base/json.h"
#include "fathom/model/config.h"
#include "fathom/model/layer_plan.h"
#include "fathom/model/memory_plan.h"
#include "fathom/model/presets.h"
#include "fathom/model/tensor_list.h"

using namespace fathom;

namespace {

// A small valid configuration with single values replaced: bytes are pairs of (which key, which value).
Json mutated(const uint8_t* data, size_t size) {
  static const Json base = to_json(mini8_config());
  static const char* const values[] = {"0",     "1",     "-1",
                                       "2",     "3",     "4",
                                       "7",     "8",     "31",
                                       "32",    "64",    "255",
                                       "4096",  "1e9",   "9007199254740993",
                                       "null",  "true",  "\"silu\"",
                                       "[]",    "{}",    "[0]",
                                       "[1,0]", "[2,4]", "[0,0,2,2,1,1,1,1,0,0,0]",
                                       "[7]",   "0.5",   "1e-300",
                                       "1e400"};
  Json json = base;
  for (size_t i = 0; i + 1 < size && i < 8; i += 2) {
    for (auto& [key, section] : json.fields) {
      if (key != "text_config") continue;
      const size_t field = data[i] % section.fields.size();
      section.fields[field].second = *parse_json(values[data[i + 1] % std::size(values)], "fuzz");
    }
  }
  return json;
}

void use(const Json& json) {
  const ConfigReading reading = read_model_config(json, "fuzz");
  if (!reading.problems.empty()) return;
  const ModelConfig& config = reading.config;
  check(int(plan_layers(config).size()) == all_layers(config), "one row a layer");
  check(parse_model_config(to_json(config), "again").ok(), "a written configuration reads back");
  check(growing_cache_bytes(config, 1000) >= 0 && minimum_state_bytes(config) > 0, "sizes are not negative");
  if (int64_t(config.num_hidden_layers) * config.n_routed_experts > 10'000) return;  // a long list, but no new case
  int64_t bytes = 0;
  for (const TensorSpec& tensor : tensor_list(config)) {
    check(tensor.bytes() > 0 && tensor.bytes() < INT64_MAX - bytes, "no tensor is empty and no sum overflows");
    bytes += tensor.bytes();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto json = parse_json(std::string_view(reinterpret_cast<const char*>(data), size), "fuzz");
  if (json) use(*json);
  use(mutated(data, size));
  return 0;
}
