#include "fathom/model/tensor_list.h"

#include <gtest/gtest.h>

#include <map>

#include "fathom/model/open_model.h"
#include "fathom/model/presets.h"

namespace fathom {
namespace {

int64_t total_bytes(const std::vector<TensorSpec>& tensors) {
  int64_t sum = 0;
  for (const TensorSpec& tensor : tensors) sum += tensor.bytes();
  return sum;
}

struct Sum {
  int64_t tensors = 0, bytes = 0;
  friend bool operator==(const Sum&, const Sum&) = default;
  friend std::ostream& operator<<(std::ostream& out, const Sum& s) {
    return out << s.tensors << " tensors, " << s.bytes;
  }
};

TEST(TensorList, FlashHas96085TensorsAndTheOfficialBytes) {
  const auto list = tensor_list(ModelConfig{});
  EXPECT_EQ(list.size(), 96'085u);
  EXPECT_EQ(total_bytes(list), 510'286'023'000);
}

TEST(TensorList, FlashHasTheOfficialTotalsOfEachGroup) {
  const std::map<std::string, Sum> expected = {
      {"routed experts", {92'160, 288'777'830'400}},
      {"Engram tables", {4, 202'758'032'400}},
      {"DSpark", {2'401, 7'932'874'632}},
      {"attention", {520, 5'069'721'600}},
      {"shared experts", {240, 1'416'960'000}},
      {"embed", {1, 1'323'827'200}},
      {"head", {1, 1'323'827'200}},
      {"vision", {266, 970'536'960}},
      {"Engram projections", {8, 315'043'840}},
      {"gates", {120, 157'409'280}},
      {"hyper-connections", {240, 157'295'040}},
      {"indexers", {32, 45'130'752}},
      {"compressors", {11, 36'704'256}},
      {"block norms", {80, 819'200}},
      {"final norm", {1, 10'240}},
  };
  std::map<std::string, Sum> found;
  for (const TensorSpec& tensor : tensor_list(ModelConfig{})) {
    Sum& sum = found[name_of(group_of(tensor.name))];
    ++sum.tensors;
    sum.bytes += tensor.bytes();
  }
  EXPECT_EQ(found, expected);
}

TEST(TensorList, FlashHasTheOfficialTotalsOfEachDtype) {
  const std::map<std::string, Sum> expected = {{"I8", {47'232, 278'585'671'680}},
                                               {"F8_E4M3", {357, 204'015'223'296}},
                                               {"F8_E8M0", {47'589, 23'563'015'184}},
                                               {"BF16", {520, 3'952'883'712}},
                                               {"F32", {387, 169'229'128}}};
  std::map<std::string, Sum> found;
  for (const TensorSpec& tensor : tensor_list(ModelConfig{})) {
    Sum& sum = found[name_of(tensor.dtype)];
    ++sum.tensors;
    sum.bytes += tensor.bytes();
  }
  EXPECT_EQ(found, expected);
}

// checkpoint.md 4, "Per layer bytes without Engram" and the draft stages.
TEST(TensorList, FlashHasTheOfficialBytesOfEachLayer) {
  std::map<std::string, Sum> layers;
  for (const TensorSpec& tensor : tensor_list(ModelConfig{})) {
    if (tensor.name.find(".engram.") != std::string::npos) continue;
    const size_t dot = tensor.name.find('.');
    Sum& sum = layers[tensor.name.substr(0, tensor.name.find('.', dot + 1))];
    ++sum.tensors;
    sum.bytes += tensor.bytes();
  }
  for (const int layer : {0, 1, 3, 19, 21, 39}) {
    EXPECT_EQ(layers["layers." + std::to_string(layer)], (Sum{2334, 7'389'500'888})) << layer;
  }
  for (const int layer : {2, 8, 14}) EXPECT_EQ(layers["layers." + std::to_string(layer)].bytes, 7'405'694'680) << layer;
  EXPECT_EQ(layers["layers.20"].bytes, 7'400'451'800);
  for (const int layer : {24, 28, 32, 36}) {
    EXPECT_EQ(layers["layers." + std::to_string(layer)].bytes, 7'395'076'568) << layer;
  }
  EXPECT_EQ(layers["mtp.0"], (Sum{801, 2'652'643'800}));
  EXPECT_EQ(layers["mtp.1"], (Sum{798, 2'573'913'560}));
  EXPECT_EQ(layers["mtp.2"], (Sum{802, 2'706'317'272}));
}

TEST(TensorList, Mini8HasTheCountsWorkedOutInTheSpecification) {
  ModelConfig config = mini8_config();
  EXPECT_TRUE(config_problems(config, "mini-8").empty()) << to_string(config_problems(config, "mini-8").front());
  EXPECT_EQ(tensor_list(config).size(), 1'302u);
  EXPECT_EQ(total_bytes(tensor_list(config)), 17'698'310);
  config.vocab_size = 129'280;
  EXPECT_EQ(total_bytes(tensor_list(config)), 165'449'222);
}

TEST(TensorList, WithoutVisionConfigThereIsNoVisionTensor) {
  ModelConfig config = mini8_config();
  config.vision.reset();
  for (const TensorSpec& tensor : tensor_list(config))
    EXPECT_NE(group_of(tensor.name), WeightGroup::vision) << tensor.name;
}

TEST(TensorList, ARankHoldsItsExpertsOnly) {
  ModelConfig config;
  config.expert_share = {3, 64};  // experts 18 to 23 of 384, 6 and 7 of 128
  std::map<std::string, int> experts;
  for (const TensorSpec& tensor : tensor_list(config)) {
    const size_t at = tensor.name.find(".experts.");
    if (at != std::string::npos) ++experts[tensor.name.substr(0, tensor.name.find('.', at + 9))];
  }
  EXPECT_EQ(experts.size(), 40u * 6 + 3 * 2);
  EXPECT_EQ(experts["layers.39.ffn.experts.18"], 6);
  EXPECT_EQ(experts["layers.39.ffn.experts.23"], 6);
  EXPECT_EQ(experts["mtp.2.ffn.experts.7"], 6);
}

TEST(OpenModel, TheEmbeddedModelHasExactlyTheTensorsOfItsConfiguration) {
  const auto model = open_model(embedded_model());
  ASSERT_TRUE(model.ok()) << to_string(model.error());
  EXPECT_TRUE(model->warnings.empty());
  EXPECT_EQ(model->config.hidden_size, 256);
  EXPECT_EQ(model->config.vision, std::nullopt);
}

}  // namespace
}  // namespace fathom
