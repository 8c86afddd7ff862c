// Weights in host memory and in files: the bits of a model whose weights all lie on the device.
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "fathom/model/make_checkpoint.h"
#include "fathom/model/moe/expert_slots.h"
#include "fathom/model/text_under_test.h"

namespace fathom {
namespace {

class WeightsElsewhere : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    auto backend = GetParam() == std::string("cuda") ? cuda_backend() : cpu_backend();
    if (!backend.ok()) GTEST_SKIP() << to_string(backend.error());
    backend_ = *backend;
    queue_ = std::move(*backend_->open_queue(2));
  }

  // Experts of widths that the kernels for many rows take.
  void make(ModelConfig config) {
    ThreadPool pool(2);
    auto made = make_checkpoint_in_memory(config, {.seed = 5}, int64_t(1) << 31, pool);
    ASSERT_TRUE(made.ok()) << to_string(made.error());
    files_ = std::move(*made);
    checkpoint_.emplace(std::move(*Checkpoint::open(files_.files())));
    token_map_ = token_map_of(config);
  }
  Model load(const Placement& placement) {
    auto model = Model::load(*checkpoint_, *backend_, {kReferenceNumerics, token_map_, placement});
    check(model.ok(), "the model fits");
    return std::move(*model);
  }

  std::vector<float> run(Model& model, int64_t tokens, int64_t chunk) {
    return logits_of_text(model, *queue_, backend_->memory, tokens, chunk);
  }

  std::optional<Backend> backend_;
  std::unique_ptr<Queue> queue_;
  MemoryCheckpoint files_;
  std::optional<Checkpoint> checkpoint_;
  std::vector<int32_t> token_map_;
};

TEST_P(WeightsElsewhere, ExpertsInSlotsGiveTheSameBitsHoweverFewThereAre) {
  const ModelConfig config = wide_experts();
  make(config);
  const int64_t one = expert_slot_bytes(config);
  for (const bool invariant : {true, false}) {
    queue_->batch_invariant = invariant;
    std::vector<float> whole;
    {
      Model model = load({});
      whole = run(model, 60, 25);
      EXPECT_FALSE(model.stream_statistics().has_value());
    }
    for (const int64_t slots : {2, 3, 10, 1000}) {
      Model model = load({.experts = Place::ram, .stream = {slots * one, false}});
      EXPECT_EQ(run(model, 60, 25), whole) << slots << " slots";
      const auto counts = model.stream_statistics();
      ASSERT_TRUE(counts.has_value());
      EXPECT_TRUE(counts->over_bus);
      EXPECT_GT(counts->uses, 100);
      EXPECT_LE(counts->resident_bytes, counts->limit_bytes);
      EXPECT_EQ(counts->evictions > 0, slots < 1000);
    }
  }
}

TEST_P(WeightsElsewhere, ExpertsOfARankInSlotsGiveTheSameBits) {
  ModelConfig config = wide_experts();
  config.expert_share = {1, 4};
  make(config);
  std::vector<float> whole;
  {
    Model model = load({});
    whole = run(model, 60, 25);
  }
  Model model = load({.experts = Place::ram, .stream = {3 * expert_slot_bytes(config), false}});
  EXPECT_EQ(run(model, 60, 25), whole);
  EXPECT_GT(model.stream_statistics()->evictions, 0);
}

TEST_P(WeightsElsewhere, EngramTablesAreReadWhereverTheyLie) {
  make(*preset_config("tiny"));
  std::vector<float> whole;
  {
    Model model = load({});
    whole = run(model, 60, 25);
  }
  for (const Place place : {Place::ram, Place::disk}) {
    Model model = load({.engram = place});
    EXPECT_EQ(run(model, 60, 25), whole) << name_of(place);
  }
}

// Wide enough for the products with many rows of an expert: 300 rows choose 2 of 8 experts.
TEST_P(WeightsElsewhere, LongPromptsGiveTheSameBits) {
  ModelConfig config = wide_experts();
  config.moe_intermediate_size = 2304;
  make(config);
  for (const bool invariant : {true, false}) {
    queue_->batch_invariant = invariant;
    std::vector<float> whole;
    {
      Model model = load({});
      whole = run(model, 400, 300);
    }
    for (const int64_t slots : {3, 20}) {
      Model model = load({.experts = Place::ram, .stream = {slots * expert_slot_bytes(config), false}});
      EXPECT_EQ(run(model, 400, 300), whole) << slots << " slots";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Of, WeightsElsewhere, testing::Values("cpu", "cuda"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace fathom
