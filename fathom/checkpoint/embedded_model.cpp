#include "fathom/checkpoint/embedded_model.h"

#include <array>

// Labels of embedded_model.S: only their addresses mean something.
extern "C" {
extern const uint8_t fathom_mini_config[], fathom_mini_config_end[];
extern const uint8_t fathom_mini_shard[], fathom_mini_shard_end[];
extern const uint8_t fathom_mini_index[], fathom_mini_index_end[];
extern const uint8_t fathom_mini_tokenizer[], fathom_mini_tokenizer_end[];
extern const uint8_t fathom_mini_tokenizer_config[], fathom_mini_tokenizer_config_end[];
extern const uint8_t fathom_mini_generation_config[], fathom_mini_generation_config_end[];
}

namespace fathom {

std::span<const EmbeddedFile> embedded_model() {
  static const std::array<EmbeddedFile, 6> files = {{
      {"config.json", {fathom_mini_config, fathom_mini_config_end}},
      {"model-00001-of-00001.safetensors", {fathom_mini_shard, fathom_mini_shard_end}},
      {"model.safetensors.index.json", {fathom_mini_index, fathom_mini_index_end}},
      {"tokenizer.json", {fathom_mini_tokenizer, fathom_mini_tokenizer_end}},
      {"tokenizer_config.json", {fathom_mini_tokenizer_config, fathom_mini_tokenizer_config_end}},
      {"generation_config.json", {fathom_mini_generation_config, fathom_mini_generation_config_end}},
  }};
  return files;
}

}  // namespace fathom
