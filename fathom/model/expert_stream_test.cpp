// A checkpoint on disk, run with all experts mapped and run with few of them resident: the same bits.
#include "fathom/model/moe/expert_stream.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "fathom/model/make_checkpoint.h"
#include "fathom/model/text_under_test.h"

namespace fathom {
namespace {

constexpr int64_t kExpert = 208'896 + 8192;  // of wide_experts(), and pages cut at both ends

Placement in_files(const std::optional<StreamOptions>& stream) {
  if (!stream) return {};
  return {.experts = Place::disk, .stream = *stream};
}

class ExpertStream : public testing::Test {
 protected:
  ExpertStream() : backend_(*open_backend("cpu")), queue_(std::move(*backend_.open_queue(2))) {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = testing::TempDir() + "fathom_stream_" + info->name() + "_" + std::to_string(::getpid());
    std::filesystem::remove_all(folder_);
  }
  ~ExpertStream() override { std::filesystem::remove_all(folder_); }

  void make(const ModelConfig& config) {
    config_ = config;
    ThreadPool pool(2);
    const auto made = make_checkpoint(folder_, config, {.seed = 3}, pool);
    ASSERT_TRUE(made.ok()) << to_string(made.error());
    token_map_ = token_map_of(config);
  }

  std::vector<float> run(Model& model, int64_t tokens, int64_t chunk) {
    return logits_of_text(model, *queue_, backend_.memory, tokens, chunk);
  }

  Model load(std::optional<StreamOptions> stream) {
    checkpoint_.emplace(std::move(*Checkpoint::open(folder_)));
    auto model = Model::load(*checkpoint_, backend_, {kReferenceNumerics, token_map_, in_files(stream)});
    EXPECT_TRUE(model.ok()) << to_string(model.error());
    return std::move(*model);
  }

  // Resident pages of the mapped shards.
  int64_t mapped_bytes() const {
    std::ifstream maps("/proc/self/smaps");
    int64_t bytes = 0;
    bool ours = false;
    for (std::string line; std::getline(maps, line);) {
      if (line.find(" r--s ") != std::string::npos || line.find("-p ") != std::string::npos) {
        ours = line.find(folder_) != std::string::npos && line.ends_with(".safetensors");
      }
      if (ours && line.starts_with("Rss:")) bytes += 1024 * std::stoll(line.substr(4));
    }
    return bytes;
  }

  Backend backend_;
  std::unique_ptr<Queue> queue_;
  std::string folder_;
  ModelConfig config_;
  std::vector<int32_t> token_map_;
  std::optional<Checkpoint> checkpoint_;
};

TEST_F(ExpertStream, GivesTheSameBitsWithAnyLimitAndKeepsIt) {
  make(wide_experts());
  std::vector<float> whole;
  {
    Model model = load({});
    whole = run(model, 60, 25);
    EXPECT_FALSE(model.stream_statistics().has_value());
  }
  for (const int64_t experts : {2, 3, 10, 1000}) {
    for (const bool drop : {false, true}) {
      Model model = load(StreamOptions{experts * kExpert, drop});
      const std::vector<float> streamed = run(model, 60, 25);
      ASSERT_EQ(streamed.size(), whole.size());
      EXPECT_EQ(std::memcmp(streamed.data(), whole.data(), whole.size() * sizeof(float)), 0) << experts;
      const auto counts = model.stream_statistics();
      ASSERT_TRUE(counts.has_value());
      EXPECT_GT(counts->uses, 100);
      EXPECT_LE(counts->resident_bytes, counts->limit_bytes);
      EXPECT_EQ(counts->evictions > 0, experts < 1000);
    }
  }
}

// Of a rank with two of eight experts, which stand in for all.
TEST_F(ExpertStream, GivesTheSameBitsWithTheExpertsOfOneRank) {
  ModelConfig config = wide_experts();
  config.expert_share = {1, 4};
  make(config);
  std::vector<float> whole;
  {
    Model model = load({});
    whole = run(model, 60, 25);
  }
  Model model = load(StreamOptions{3 * kExpert, false});
  EXPECT_EQ(run(model, 60, 25), whole);
  EXPECT_GT(model.stream_statistics()->evictions, 0);
}

TEST_F(ExpertStream, RefusesALimitBelowTwoExpertsAndWeightsInMemory) {
  make(wide_experts());
  checkpoint_.emplace(std::move(*Checkpoint::open(folder_)));
  const auto small =
      Model::load(*checkpoint_, backend_, {kReferenceNumerics, token_map_, in_files(StreamOptions{300'000, false})});
  ASSERT_FALSE(small.ok());
  EXPECT_EQ(small.error().code, ErrorCode::out_of_memory);
  EXPECT_EQ(small.error().where, "--resident-limit");
  ThreadPool pool(1);
  const auto memory = make_checkpoint_in_memory(config_, {}, int64_t(1) << 30, pool);
  ASSERT_TRUE(memory.ok());
  const auto embedded = std::move(*Checkpoint::open(memory->files()));
  const auto model =
      Model::load(embedded, backend_, {kReferenceNumerics, token_map_, in_files(StreamOptions{1 << 30, false})});
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.error().code, ErrorCode::usage);
}

// Real widths take 5 GB and minutes: FATHOM_LONG=1.
TEST_F(ExpertStream, ASliceOfFlashGivesTheSameBits) {
  if (std::getenv("FATHOM_LONG") == nullptr) GTEST_SKIP() << "writes 5 GB: set FATHOM_LONG=1";
  make(*preset_config("flash-slice", {.encoder_layers = 2, .decoder_layers = 2, .experts = 8, .engram_vocab = 1000}));
  std::vector<float> whole;
  {
    Model model = load({});
    whole = run(model, 40, 32);
  }
  Model model = load(StreamOptions{10 * int64_t(21) << 20, true});
  const std::vector<float> streamed = run(model, 40, 32);
  ASSERT_EQ(streamed.size(), whole.size());
  EXPECT_EQ(std::memcmp(streamed.data(), whole.data(), whole.size() * sizeof(float)), 0);
  EXPECT_GT(model.stream_statistics()->evictions, 0);
  // Beside the experts that are kept: the other weights of the shards, of which steps read nearly all.
  EXPECT_LE(mapped_bytes(), model.stream_statistics()->limit_bytes + always_read_bytes(config_) + (int64_t(64) << 20));
  for (const float value : whole) ASSERT_TRUE(std::isfinite(value));
}

}  // namespace
}  // namespace fathom
