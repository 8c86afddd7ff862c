#include "fathom/model/make_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "fathom/model/initial_weights.h"
#include "fathom/model/inspect.h"
#include "fathom/model/open_model.h"
#include "fathom/model/presets.h"
#include "fathom/tensor/number_formats.h"

namespace fathom {
namespace {

using testing::HasSubstr;

class MakeCheckpoint : public testing::Test {
 protected:
  MakeCheckpoint() {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = testing::TempDir() + "fathom_make_" + info->name() + "_" + std::to_string(::getpid());
    std::filesystem::remove_all(folder_);
  }
  ~MakeCheckpoint() override { std::filesystem::remove_all(folder_); }
  std::string folder_;
  ThreadPool pool_{2};
};

TEST_F(MakeCheckpoint, TinyAndMini8OpenWithoutAProblem) {
  for (const ModelConfig& config : {*preset_config("tiny"), mini8_config()}) {
    const std::string folder = folder_ + "/" + std::to_string(config.hidden_size);
    const auto made = make_checkpoint(folder, config, {.seed = 1}, pool_);
    ASSERT_TRUE(made.ok()) << to_string(made.error());
    const auto model = open_model(folder);
    ASSERT_TRUE(model.ok()) << to_string(model.error());
    EXPECT_EQ(model->config, config);
    EXPECT_TRUE(model->warnings.empty());
    EXPECT_EQ(unaligned_tensors(model->checkpoint), 0);
    EXPECT_FALSE(model->checkpoint.has_file("tokenizer.json"));
    EXPECT_TRUE(model->checkpoint.has_file("engram_token_map.json"));
  }
}

TEST_F(MakeCheckpoint, MiniRandomHasTheTokenizerOfTheMiniature) {
  const auto made = make_checkpoint(folder_, *preset_config("mini-random"), {.seed = 1}, pool_);
  ASSERT_TRUE(made.ok()) << to_string(made.error());
  const auto model = open_model(folder_);
  ASSERT_TRUE(model.ok()) << to_string(model.error());
  EXPECT_EQ(*model->checkpoint.read_text("tokenizer.json"),
            *Checkpoint::open(embedded_model())->read_text("tokenizer.json"));
}

TEST_F(MakeCheckpoint, TheFilesInMemoryAreThoseOfTheFolder) {
  for (const char* preset : {"tiny", "mini-random"}) {
    const ModelConfig config = *preset_config(preset);
    const std::string folder = folder_ + "/" + preset;
    ASSERT_TRUE(make_checkpoint(folder, config, {.seed = 7}, pool_).ok());
    auto made = make_checkpoint_in_memory(config, {.seed = 7}, weight_bytes(config), pool_);
    ASSERT_TRUE(made.ok()) << to_string(made.error());
    const MemoryCheckpoint memory = std::move(*made);  // files() stays valid when the owner moves
    size_t files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      ++files;
      const std::string name = entry.path().filename();
      const auto at = std::find_if(memory.files().begin(), memory.files().end(),
                                   [&](const EmbeddedFile& file) { return file.name == name; });
      ASSERT_NE(at, memory.files().end()) << name;
      const auto disk = MappedFile::open(entry.path());
      EXPECT_TRUE(std::ranges::equal(disk->bytes(), at->bytes)) << name;
      EXPECT_EQ(reinterpret_cast<uintptr_t>(at->bytes.data()) % 64, 0u);
    }
    EXPECT_EQ(memory.files().size(), files);
    const auto model = open_model(memory.files(), "synthetic:tiny");
    ASSERT_TRUE(model.ok()) << to_string(model.error());
    EXPECT_EQ(model->config, config);
    EXPECT_EQ(model->checkpoint.location(), "synthetic:tiny");
  }
}

TEST_F(MakeCheckpoint, WeightsThatDoNotFitAreRefusedBeforeTheyAreMade) {
  const ModelConfig flash = *preset_config("flash-sparse");
  const auto made = make_checkpoint_in_memory(flash, {}, int64_t(1) << 40 >> 2, pool_);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, ErrorCode::out_of_memory);
  EXPECT_THAT(to_string(made.error()), HasSubstr("510,286,023,000"));
  EXPECT_THAT(to_string(made.error()), HasSubstr("274,877,906,944"));
}

TEST_F(MakeCheckpoint, AllOfFlashIsDeclaredInMemoryWithoutTakingIt) {
  const auto memory = make_checkpoint_in_memory(*preset_config("flash-sparse"), {.holes = true}, 0, pool_);
  if (!memory && memory.error().code == ErrorCode::out_of_memory) GTEST_SKIP() << to_string(memory.error());
  ASSERT_TRUE(memory.ok()) << to_string(memory.error());
  const auto model = open_model(memory->files());
  ASSERT_TRUE(model.ok()) << to_string(model.error());
  EXPECT_EQ(weight_totals(model->checkpoint).all, (Totals{96'085, 510'286'023'000, 763'205'315'794}));
}

TEST_F(MakeCheckpoint, WeightsInMemoryCanBeInterrupted) {
  const ModelConfig config = *preset_config("tiny");
  const auto made =
      make_checkpoint_in_memory(config, {}, weight_bytes(config), pool_, [](int64_t, int64_t) { return false; });
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, ErrorCode::interrupted);
}

// Pages of mapped files in memory, in bytes.
int64_t mapped_bytes_in_memory() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word != "RssFile:") continue;
    int64_t kibibytes = 0;
    status >> kibibytes;
    return kibibytes * 1024;
  }
  return -1;
}

// The whole list of the official checkpoint, opened and compared within a second (docs/benchmarks.md): headers are
// read, and of the weights nothing.
TEST_F(MakeCheckpoint, FlashSparseHas48FilesAndOpensWithoutReadingAWeight) {
  const auto made = make_checkpoint(folder_, *preset_config("flash-sparse"), {.holes = true}, pool_);
  if (!made && made.error().code == ErrorCode::bad_input) GTEST_SKIP() << to_string(made.error());
  ASSERT_TRUE(made.ok()) << to_string(made.error());
  const int64_t before = mapped_bytes_in_memory();
  ASSERT_GT(before, 0);
  const auto model = open_model(folder_);
  ASSERT_TRUE(model.ok()) << to_string(model.error());
  EXPECT_EQ(model->checkpoint.shards().size(), 48u);
  EXPECT_EQ(weight_totals(model->checkpoint).all, (Totals{96'085, 510'286'023'000, 763'205'315'794}));
  EXPECT_TRUE(model->warnings.empty());
  const int64_t headers = int64_t(32) << 20;
  EXPECT_LT(mapped_bytes_in_memory() - before, headers) << "of 510 GB";
}

TEST_F(MakeCheckpoint, ASliceHasTheRolesOfTheOfficialShards) {
  PresetOptions options;
  options.encoder_layers = options.decoder_layers = 2;
  options.experts = 8;
  const auto plan = shard_plan(*preset_config("flash-slice", options));
  ASSERT_EQ(plan.size(), 1u + 1 + 4 + 1 + 3 + 1);
  EXPECT_EQ(plan.front().file, "model-00001-of-00011.safetensors");
  EXPECT_TRUE(group_of(plan.front().tensors.front().name) == WeightGroup::vision);
}

TEST(ShardPlan, OfFlashHasTheObservedSizes) {
  const auto plan = shard_plan(ModelConfig{});
  ASSERT_EQ(plan.size(), 48u);
  EXPECT_EQ(plan[1].data_bytes(), 1'323'827'200);   // embed
  EXPECT_EQ(plan[2].data_bytes(), 7'389'500'888);   // layer 0
  EXPECT_EQ(plan[3].data_bytes(), 7'389'500'888);   // layer 1, without Engram
  EXPECT_EQ(plan[42].data_bytes(), 1'323'837'440);  // norm and head
  EXPECT_EQ(plan[43].tensors.size(), 801u);
  EXPECT_EQ(plan[46].tensors.size(), 6u);
  EXPECT_EQ(plan[46].data_bytes(), 101'535'150'272);
  EXPECT_EQ(plan[47].data_bytes(), 101'537'925'968);
}

TEST(Presets, ASliceFollowsTheRuleOfItsLayers) {
  PresetOptions options;
  ASSERT_TRUE(parse_layers("4+8", options).ok());
  const ModelConfig config = *preset_config("flash-slice", options);
  EXPECT_EQ(config.kv_source_layer_ids, (std::vector<int>{2, 4}));
  EXPECT_EQ(config.index_source_layer_ids, (std::vector<int>{2, 4, 8}));
  EXPECT_EQ(config.dspark_target_layer_ids, (std::vector<int>{9, 10, 11}));
  EXPECT_EQ(config.engram_layer_ids, (std::vector<int>{1}));
  EXPECT_EQ(config.hidden_size, 5120);
  options = {.encoder_layers = 20, .decoder_layers = 20, .experts = 384, .engram_vocab = 16'000'000};
  EXPECT_EQ(*preset_config("flash-slice", options), ModelConfig{});
}

TEST(Presets, RefuseWhatMakesNoModel) {
  PresetOptions options;
  for (const char* text : {"", "4", "4+", "+4", "4+8+2", "a+b", "4 + 8"})
    EXPECT_FALSE(parse_layers(text, options).ok()) << text;
  EXPECT_THAT(to_string(preset_config("huge").error()), HasSubstr("flash-slice"));
  EXPECT_FALSE(preset_config("flash-slice", {.encoder_layers = 1}).ok());
  EXPECT_FALSE(preset_config("flash-slice", {.experts = 5}).ok());
  EXPECT_FALSE(preset_config("flash-rank", {.rank = 64, .ranks = 64}).ok());
  EXPECT_FALSE(preset_config("flash-rank", {.ranks = 7}).ok());
  EXPECT_FALSE(preset_config("flash-slice", {.engram_vocab = 1}).ok());
}

// ---------------------------------------------------------------- the numbers

TensorSpec spec_of(const ModelConfig& config, std::string_view name) {
  for (const TensorSpec& tensor : tensor_list(config)) {
    if (tensor.name == name) return tensor;
  }
  ADD_FAILURE() << "no tensor " << name;
  return {};
}

std::vector<uint8_t> bytes_of(const ModelConfig& config, uint64_t seed, const TensorSpec& spec) {
  std::vector<uint8_t> bytes(size_t(spec.bytes()));
  const int64_t cols = spec.shape[spec.shape.rank() - 1];
  fill_initial_rows(config, seed, spec, 0, spec.shape.elements() / cols, bytes);
  return bytes;
}

std::vector<uint8_t> bytes_of(const ModelConfig& config, uint64_t seed, std::string_view name) {
  return bytes_of(config, seed, spec_of(config, name));
}

// Values of a weight as stored: code x 2^(scale - 127).
std::vector<float> values_of(const ModelConfig& config, const std::string& stem) {
  const TensorSpec spec = spec_of(config, stem + ".weight");
  const auto codes = bytes_of(config, 7, stem + ".weight"), scales = bytes_of(config, 7, stem + ".scale");
  const bool fp4 = spec.dtype == DType::i8;
  const int64_t rows = spec.shape[0], cols = spec.shape[1] * (fp4 ? 2 : 1);
  const int64_t height = rows / (int64_t(scales.size()) / (cols / 32));
  std::vector<float> values;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) {
      const size_t at = size_t(r * cols + c);
      const float code = fp4 ? e2m1_to_float(uint8_t(codes[at / 2] >> (at % 2 * 4))) : e4m3_to_float(codes[at]);
      values.push_back(code * e8m0_to_float(scales[size_t(r / height * (cols / 32) + c / 32)]));
    }
  }
  return values;
}

double deviation(const std::vector<float>& values) {
  double sum = 0, squares = 0;
  for (const float v : values) sum += v, squares += double(v) * v;
  const double n = double(values.size());
  return std::sqrt(squares / n - sum / n * (sum / n));
}

// n samples give the deviation to about 1/sqrt(2n); FP4 rounding adds at most a few percent of variance.
TEST(InitialWeights, HaveTheDeviationOfTheirFanIn) {
  const ModelConfig config = mini8_config();
  EXPECT_NEAR(deviation(values_of(config, "layers.0.attn.wq_b")), 1 / std::sqrt(128.0), 0.01 / std::sqrt(128.0));
  EXPECT_NEAR(deviation(values_of(config, "layers.0.ffn.experts.3.w1")), 1 / std::sqrt(256.0), 0.05 / std::sqrt(256.0));
  EXPECT_NEAR(deviation(values_of(config, "layers.1.engram.embed")), 0.5, 0.01);
}

// checkpoint.md 6: scale = pow2ceil(amax / 448) of a tile, pow2ceil(amax / 6) of a row: so the largest code of a group
// is above half the range, and nothing is clamped.
TEST(InitialWeights, ScalesAreTheSmallestPowersThatHoldTheGroup) {
  const ModelConfig config = mini8_config();
  const auto tiles = bytes_of(config, 7, "layers.0.attn.wq_b.weight");  // [1024, 128]
  for (int64_t tile = 0; tile < 32 * 4; ++tile) {
    float largest = 0;
    for (int64_t i = 0; i < 1024; ++i) {
      const int64_t row = tile / 4 * 32 + i / 32, col = tile % 4 * 32 + i % 32;
      largest = std::max(largest, std::abs(e4m3_to_float(tiles[size_t(row * 128 + col)])));
    }
    EXPECT_GE(largest, 224);
    EXPECT_LE(largest, 448);
  }
  const auto rows = bytes_of(config, 7, "layers.0.ffn.experts.0.w1.weight");  // I8 [128, 128]: 256 inputs
  for (size_t group = 0; group < rows.size() / 16; ++group) {
    float largest = 0;
    for (size_t i = 0; i < 16; ++i) {
      const uint8_t byte = rows[group * 16 + i];
      largest = std::max({largest, std::abs(e2m1_to_float(byte)), std::abs(e2m1_to_float(uint8_t(byte >> 4)))});
    }
    EXPECT_GE(largest, 3);  // amax / scale is in (3, 6] and rounds to 3, 4 or 6
  }
}

TEST(InitialWeights, DoNotDependOnHowTheyAreCut) {
  const ModelConfig config = mini8_config();
  for (const char* name :
       {"layers.0.attn.wq_b.weight", "layers.0.attn.wq_b.scale", "layers.0.ffn.experts.0.w2.weight",
        "layers.0.ffn.experts.0.w2.scale", "embed.weight", "layers.1.engram.embed.weight", "layers.0.hc_attn_fn"}) {
    const TensorSpec spec = spec_of(config, name);
    const auto whole = bytes_of(config, 3, name);
    const int64_t rows = spec.shape[0], row_bytes = spec.bytes() / rows;
    for (int64_t row = 0; row < rows; row += 32) {
      std::vector<uint8_t> piece(size_t(std::min<int64_t>(32, rows - row) * row_bytes));
      fill_initial_rows(config, 3, spec, row, std::min<int64_t>(32, rows - row), piece);
      EXPECT_EQ(std::memcmp(piece.data(), whole.data() + row * row_bytes, piece.size()), 0) << name << " row " << row;
    }
  }
}

TEST(InitialWeights, FollowTheSeedAndTheName) {
  const ModelConfig config = mini8_config();
  const auto a = bytes_of(config, 1, "layers.0.attn.wq_a.weight");
  EXPECT_EQ(a, bytes_of(config, 1, "layers.0.attn.wq_a.weight"));
  EXPECT_NE(a, bytes_of(config, 2, "layers.0.attn.wq_a.weight"));
  EXPECT_NE(a, bytes_of(config, 1, "layers.1.attn.wq_a.weight"));
}

std::vector<float> floats_of(const ModelConfig& config, const std::string& name) {
  const auto bytes = bytes_of(config, 1, name);
  std::vector<float> values(bytes.size() / 4);
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// The initial values of checkpoint.md 6, in the order pre, post, comb (row by row) of model.md 4.3.
TEST(InitialWeights, MixesBeginAsTheSpecificationSays) {
  const ModelConfig config = mini8_config();
  EXPECT_EQ(
      floats_of(config, "layers.6.hc_ffn_base"),
      (std::vector<float>{-3, -3, 3, -3, 0, 0, 0, 0, 3, -3, -3, -3, -3, 3, -3, -3, -3, -3, 3, -3, -3, -3, -3, 3}));
  EXPECT_EQ(floats_of(config, "mtp.1.hc_attn_base")[1], 3);  // layer 8 + 1
  EXPECT_EQ(floats_of(config, "layers.0.hc_attn_scale"), (std::vector<float>(3, 0.01f)));
  EXPECT_EQ(floats_of(config, "layers.0.attn.attn_sink"), (std::vector<float>(8, 0)));
  EXPECT_EQ(floats_of(config, "layers.0.ffn.gate.bias_vl"), (std::vector<float>(16, 0)));
  const auto norm = bytes_of(config, 1, "layers.2.attn.indexer.k_norm.weight");
  EXPECT_EQ(norm[0] | norm[1] << 8, 0x3f80);
}

// FNV-1a over all tensors of `tiny`, in the order of the list. The bytes were compared one by one with an independent
// implementation of the construction in numpy (tiny and mini-8, seed 1: none differs).
TEST(InitialWeights, AreTheSameBytesOnEveryMachine) {
  const ModelConfig config = *preset_config("tiny");
  uint64_t hash = 0xcbf29ce484222325u;
  for (const TensorSpec& tensor : tensor_list(config)) {
    for (const uint8_t byte : bytes_of(config, 1, tensor)) hash = (hash ^ byte) * 0x100000001b3u;
  }
  EXPECT_EQ(hash, 9574786174712161712u);
}

}  // namespace
}  // namespace fathom
