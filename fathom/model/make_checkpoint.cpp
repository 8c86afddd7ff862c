#include "fathom/model/make_checkpoint.h"

#include <algorithm>
#include <charconv>
#include <cstdio>

#include "fathom/checkpoint/checkpoint.h"
#include "fathom/model/initial_weights.h"
#include "fathom/model/presets.h"
#include "fathom/model/tensor_list.h"

namespace fathom {
namespace {

constexpr int64_t kOneFile = 1'000'000'000;  // weights below this many bytes are not split

// Position of a tensor's file among the official ones. Engram tensors stand behind everything, by layer.
int64_t role_of(const TensorSpec& tensor) {
  const std::string_view name = tensor.name;
  int64_t number = 0;
  if (const size_t dot = name.find('.'); dot != std::string_view::npos) {
    std::from_chars(name.data() + dot + 1, name.data() + name.size(), number);
  }
  constexpr int64_t kKind = 1000;  // more than there are layers
  if (name.starts_with("mtp.")) return 4 * kKind + number;
  if (name.starts_with("layers.")) {
    return (name.find(".engram.") == std::string_view::npos ? 2 : 5) * kKind + number;
  }
  if (name == "embed.weight") return kKind;
  return name == "norm.weight" || name == "head.weight" ? 3 * kKind : 0;
}

std::string shard_name(size_t number, size_t count) {
  char name[64];
  std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", number, count);
  return name;
}

// Not the map of any real tokenizer; it has the right size and keeps the first ids, so the pad id is where it should
// be.
std::string token_map_text(const ModelConfig& config) {
  std::string map;
  for (int64_t id = 0; id < config.vocab_size; ++id) {
    if (id > 0) map += ',';
    map += std::to_string(id % config.engram_compressed_vocab_size);
  }
  return "{\"size\":" + std::to_string(config.engram_compressed_vocab_size) + ",\"map\":[" + map + "]}\n";
}

Result<std::vector<TextFile>> text_files(const ModelConfig& config) {
  const auto miniature = Checkpoint::open(embedded_model());
  if (!miniature) return miniature.error();
  const auto its_config = preset_config("mini-random");
  if (!its_config) return its_config.error();
  if (config.vocab_size != its_config->vocab_size ||
      config.engram_compressed_vocab_size != its_config->engram_compressed_vocab_size) {
    return std::vector<TextFile>{{"engram_token_map.json", token_map_text(config)}};
  }
  std::vector<TextFile> files;
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "generation_config.json"}) {
    auto text = miniature->read_text(name);
    if (!text) return text.error();
    files.push_back({name, std::move(*text)});
  }
  return files;
}

Result<CheckpointContent> content_of(const ModelConfig& config, const MakeOptions& options) {
  const auto problems = config_problems(config, "config.json");
  if (!problems.empty()) return problems.front();
  auto files = text_files(config);
  if (!files) return files.error();
  CheckpointContent content{to_json(config), shard_plan(config), std::move(*files)};
  for (ShardSpec& shard : content.shards) shard.hole = options.holes;
  return content;
}

// `config` must outlive it.
FillRows fill_of(const ModelConfig& config, const MakeOptions& options) {
  return [&config, seed = options.seed](const TensorSpec& tensor, int64_t first_row, int64_t rows,
                                        std::span<uint8_t> out) {
    fill_initial_rows(config, seed, tensor, first_row, rows, out);
  };
}

}  // namespace

std::vector<ShardSpec> shard_plan(const ModelConfig& config) {
  auto tensors = tensor_list(config);
  ShardSpec whole{"", std::move(tensors)};
  std::vector<ShardSpec> shards;
  if (whole.data_bytes() < kOneFile) {
    shards.push_back(std::move(whole));
  } else {
    std::sort(whole.tensors.begin(), whole.tensors.end(),
              [](const TensorSpec& a, const TensorSpec& b) { return role_of(a) < role_of(b); });
    for (TensorSpec& tensor : whole.tensors) {
      if (shards.empty() || role_of(shards.back().tensors.back()) != role_of(tensor)) shards.emplace_back();
      shards.back().tensors.push_back(std::move(tensor));
    }
  }
  for (size_t i = 0; i < shards.size(); ++i) {
    shards[i].file = shard_name(i + 1, shards.size());
    order_for_alignment(shards[i].tensors);
  }
  return shards;
}

int64_t weight_bytes(const ModelConfig& config) {
  int64_t sum = 0;
  for (const TensorSpec& tensor : tensor_list(config)) sum += tensor.bytes();
  return sum;
}

Result<void> make_checkpoint(const std::string& folder, const ModelConfig& config, const MakeOptions& options,
                             ThreadPool& pool, const WriteProgress& progress) {
  const auto content = content_of(config, options);
  if (!content) return content.error();
  return write_checkpoint(folder, *content, fill_of(config, options), pool, progress);
}

Result<MemoryCheckpoint> make_checkpoint_in_memory(const ModelConfig& config, const MakeOptions& options,
                                                   int64_t most_bytes, ThreadPool& pool,
                                                   const WriteProgress& progress) {
  if (const int64_t bytes = weight_bytes(config); !options.holes && bytes > most_bytes) {
    return Error{ErrorCode::out_of_memory,
                 "the weights take " + with_commas(bytes) + " bytes, " + with_commas(most_bytes) + " may be taken",
                 "weights in memory", "make a smaller checkpoint, or write it to a folder and map it"};
  }
  const auto content = content_of(config, options);
  if (!content) return content.error();
  return MemoryCheckpoint::make(*content, fill_of(config, options), pool, progress);
}

}  // namespace fathom
