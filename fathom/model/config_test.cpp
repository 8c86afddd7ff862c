#include "fathom/model/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fathom/model/presets.h"

namespace fathom {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Json& text_of(Json& json) {
  for (auto& [key, value] : json.fields) {
    if (key == "text_config") return value;
  }
  return json;
}

void erase(Json& object, std::string_view key) {
  std::erase_if(object.fields, [&](const auto& field) { return field.first == key; });
}

Json value_of(const char* text) { return *parse_json(text, "test"); }

std::string first_problem(const Json& json) {
  const auto config = parse_model_config(json, "config.json");
  return config ? "none" : to_string(config.error());
}

class EveryConfiguration : public testing::TestWithParam<const char*> {};

ModelConfig configuration(std::string_view name) { return name == "mini-8" ? mini8_config() : *preset_config(name); }

TEST_P(EveryConfiguration, PassesItsChecksAndReadsBackAsItWasWritten) {
  const ModelConfig config = configuration(GetParam());
  const auto reading = read_model_config(to_json(config), "config.json");
  ASSERT_TRUE(reading.problems.empty()) << to_string(reading.problems.front());
  EXPECT_TRUE(reading.warnings.empty()) << reading.warnings.front();
  EXPECT_EQ(reading.config, config);
  // ... and through the text of a file.
  EXPECT_EQ(*parse_model_config(*parse_json(to_string(to_json(config)), "test"), "test"), config);
}

INSTANTIATE_TEST_SUITE_P(Presets, EveryConfiguration,
                         testing::Values("tiny", "mini-random", "mini-8", "flash-slice", "flash-sparse", "flash-rank"));

// load-02: a checkpoint of another model is named by what it is and by what is wanted.
TEST(Config, Load02AnotherModelIsTheOnlyProblem) {
  const Json json = value_of(R"({"model_type": "deepseek_v4", "num_hidden_layers": 43})");
  EXPECT_THAT(first_problem(json), AllOf(HasSubstr("\"deepseek_v4\""), HasSubstr("\"deepseek_v41\"")));
  EXPECT_EQ(config_problems(json, "config.json").size(), 1u);
}

TEST(Config, AMissingFieldOfTheReleasedFileHasItsDocumentedDefault) {
  Json json = to_json(ModelConfig{});
  for (const char* key : {"attention_dropout", "tie_word_embeddings", "attention_bias"}) erase(text_of(json), key);
  EXPECT_EQ(*parse_model_config(json, "config.json"), ModelConfig{});
}

TEST(Config, AcceptsTheSpellingsThatMeanTheSame) {
  Json json = to_json(ModelConfig{});
  Json& text = text_of(json);
  text.set("candidate_source_layer_id", Json::of(-1));
  EXPECT_EQ(parse_model_config(json, "c")->candidate_source_layer_id, std::nullopt);
  text.set("candidate_source_layer_id", Json{});
  EXPECT_EQ(parse_model_config(json, "c")->candidate_source_layer_id, std::nullopt);
  text.set(
      "rope_scaling",
      value_of(R"({"type":"yarn","factor":16,"beta_fast":32,"beta_slow":1,"original_max_position_embeddings":65536})"));
  EXPECT_EQ(parse_model_config(json, "c")->rope_scaling, YarnScaling{});
  text.set("rope_scaling", Json{});
  EXPECT_EQ(parse_model_config(json, "c")->rope_scaling, std::nullopt);
  text.set("index_k_source_layer_ids", value_of("[2,8,14,20]"));
  text.set("hidden_size", value_of("5120.0"));
  EXPECT_TRUE(parse_model_config(json, "c").ok());
  json.set("vision_config", Json{});
  EXPECT_EQ(parse_model_config(json, "c")->vision, std::nullopt);
  erase(json, "vision_config");
  EXPECT_EQ(parse_model_config(json, "c")->vision, std::nullopt);
}

TEST(Config, UnknownKeysAreWarningsNotProblems) {
  Json json = to_json(ModelConfig{});
  text_of(json).set("use_cache", Json::of(true));
  json.set("transformers_version", Json::of("5"));  // top level: many tools write there
  const auto reading = read_model_config(json, "config.json");
  EXPECT_TRUE(reading.problems.empty());
  ASSERT_EQ(reading.warnings.size(), 1u);
  EXPECT_THAT(reading.warnings.front(), HasSubstr("text_config.use_cache"));
}

TEST(Config, ListsAllProblemsAtOnce) {
  Json json = to_json(ModelConfig{});
  text_of(json).set("hidden_size", Json::of("wide"));
  text_of(json).set("scoring_func", Json::of("softmax"));
  erase(text_of(json), "hc_mult");
  json.set("dtype", Json::of("float16"));
  EXPECT_EQ(config_problems(json, "config.json").size(), 4u);
}

// Each wrong value alone, and what its message must name: the key, the value found, the value expected.
struct Wrong {
  const char* key;
  const char* value;  // nullptr: the key is missing
  std::vector<std::string> mentions;
};

std::vector<Wrong> wrong_values() {
  return {
      {"architectures", R"(["DeepseekV4ForCausalLM"])", {"DeepseekV4ForCausalLM", "DeepseekV41ForCausalLM"}},
      {"architectures", R"(["DeepseekV41ForCausalLM","Other"])", {"Other", "DeepseekV41ForCausalLM"}},
      {"model_type", nullptr, {"missing", "deepseek_v41"}},
      {"model_type", "41", {"41", "deepseek_v41"}},
      {"dtype", R"("float16")", {"float16", "bfloat16"}},
      {"bos_token_id", "129280", {"129280", "below vocab_size"}},
      {"eos_token_id", "-1", {"-1", "from 0"}},
      {"pad_token_id", R"("<pad>")", {"<pad>", "integer"}},
      {"image_token_id", nullptr, {"missing"}},
      {"quantization_config", nullptr, {"missing"}},
      {"quantization_config", "[]", {"[]", "object"}},
      {"quantization_config.quant_method", R"("gptq")", {"gptq", "fp8"}},
      {"quantization_config.expert_dtype", R"("bf16")", {"bf16", "fp4"}},
      {"quantization_config.activation_scheme", R"("static")", {"static", "dynamic"}},
      {"quantization_config.weight_block_size", "[128,128]", {"[128,128]", "[32,32]"}},
      {"quantization_config.scale_fmt", nullptr, {"missing", "ue8m0"}},
      {"text_config", nullptr, {"missing"}},
      {"text_config", "3", {"3", "object"}},
      {"text_config.vocab_size", "0", {"0", "from 1"}},
      {"text_config.vocab_size", "129280.5", {"129280.5", "integer"}},
      {"text_config.hidden_size", "5100", {"5100", "multiple of 32"}},
      {"text_config.hidden_size", "99999999999999999999", {"99999999999999999999", "integer"}},
      {"text_config.num_hidden_layers", "41", {"compress_ratios", "44"}},
      {"text_config.num_attention_heads", "60", {"o_groups", "60"}},
      {"text_config.num_key_value_heads", "8", {"8", "must be 1"}},
      {"text_config.head_dim", "500", {"500", "multiple of 32"}},
      {"text_config.qk_rope_head_dim", "63", {"63", "multiple of 2"}},
      {"text_config.qk_rope_head_dim", "130", {"130", "at most 128"}},
      {"text_config.q_lora_rank", "1288", {"1288", "multiple of 32"}},
      {"text_config.o_lora_rank", "1001", {"1001", "8008", "multiple of 32"}},
      {"text_config.hidden_act", R"("gelu")", {"gelu", "silu"}},
      {"text_config.swiglu_limit", "-1", {"-1", "at least 0"}},
      {"text_config.attention_bias", "true", {"true", "false"}},
      {"text_config.attention_dropout", "0.1", {"0.1", "0"}},
      {"text_config.tie_word_embeddings", "true", {"true", "false"}},
      {"text_config.rope_theta", "0", {"above 0"}},
      {"text_config.rope_scaling", R"({"rope_type":"linear","factor":2})", {"linear", "yarn"}},
      {"text_config.rope_scaling", "7", {"7", "null"}},
      {"text_config.n_shared_experts", "2", {"2", "must be 1"}},
      {"text_config.num_experts_per_tok", "385", {"385", "384"}},
      {"text_config.moe_intermediate_size", "2300", {"2300", "multiple of 32"}},
      {"text_config.scoring_func", R"("sigmoid")", {"sigmoid", "sqrtsoftplus"}},
      {"text_config.topk_method", R"("greedy")", {"greedy", "noaux_tc"}},
      {"text_config.norm_topk_prob", "false", {"false", "true"}},
      {"text_config.compress_ratios", "[0,2,3]", {"from 0 to 2"}},
      {"text_config.kv_source_layer_ids", "[8,2,14,20]", {"[8, 2, 14, 20]", "sorted"}},
      {"text_config.kv_source_layer_ids", "[2,8,8,14,20]", {"sorted"}},
      {"text_config.kv_source_layer_ids", "[2,8,14,20,40]", {"40", "sorted"}},
      {"text_config.kv_source_layer_ids", "[2,8,14]", {"20"}},
      {"text_config.kv_source_layer_ids", "[2,8,14,20,21]", {"index_source_layer_ids"}},
      {"text_config.index_k_source_layer_ids", "[2,8,14,20,24]", {"24", "[2, 8, 14, 20]"}},
      {"text_config.index_source_layer_ids", "[2,14,20,24]", {"[2, 14, 20, 24]"}},
      {"text_config.candidate_source_layer_id", "21", {"21", "index_source_layer_ids"}},
      {"text_config.candidate_source_layer_id", "14", {"14", "ratio"}},
      {"text_config.candidate_topk_blocks", "32", {"32", "256", "512"}},
      {"text_config.index_head_dim", "100", {"100", "multiple of 32"}},
      {"text_config.use_fp4_sparse_kv", "false", {"false", "true"}},
      {"text_config.hc_shifted", "false", {"false", "true"}},
      {"text_config.dspark_target_attn_input", "false", {"false", "true"}},
      {"text_config.hc_mult", nullptr, {"missing"}},
      {"text_config.engram_layer_ids", "[1,20]", {"20", "below 20"}},
      {"text_config.engram_num_embeddings", "[384006168,384016681]", {"384016681", "384016682"}},
      {"text_config.engram_num_embeddings", "[384006168]", {"1", "2"}},
      {"text_config.engram_vocab_size", "16000058", {"engram_num_embeddings"}},
      {"text_config.engram_head_dim", "250", {"250", "multiple of 32"}},
      {"text_config.engram_pad_token_id", "129280", {"129280", "below vocab_size"}},
      {"text_config.engram_compressed_vocab_size", "129281", {"129281", "at most vocab_size"}},
      {"text_config.dspark_noise_token_id", "200000", {"200000", "below vocab_size"}},
      {"text_config.dspark_target_layer_ids", "[19,38,39]", {"[19, 38, 39]", "20"}},
      {"text_config.dspark_target_layer_ids", "[]", {"at least one"}},
      {"text_config.dspark_num_experts_per_tok", "129", {"129", "128"}},
      {"vision_config", "1", {"1", "object"}},
      {"vision_config.hidden_size", "1000", {"1000", "multiple of"}},
      {"vision_config.hidden_size", "1040", {"65", "multiple of 4"}},
      {"vision_config.patch_size", "0", {"0", "from 1"}},
      {"vision_config.max_wh_ratio", "0.5", {"0.5", "at least 1"}},
  };
}

TEST(WrongValues, AreNamedWithWhatIsExpected) {
  for (const auto& [key, value, mentions] : wrong_values()) {
    Json json = to_json(ModelConfig{});
    const std::string path = key;
    const size_t dot = path.find('.');
    Json* object = &json;
    for (auto& [name, field] : json.fields) {
      if (dot != std::string::npos && name == path.substr(0, dot)) object = &field;
    }
    const std::string name = dot == std::string::npos ? path : path.substr(dot + 1);
    if (value) {
      object->set(name, value_of(value));
    } else {
      erase(*object, name);
    }
    const std::string problem = first_problem(json);
    for (const std::string& mention : mentions) {
      EXPECT_THAT(problem, HasSubstr(mention)) << key << " = " << (value ? value : "missing");
    }
    EXPECT_THAT(problem, HasSubstr("config.json")) << key;
  }
}

// Layers of ratio 0 between others are legal; sources there are not.
TEST(Config, ASourceWithoutGlobalCacheIsRefused) {
  ModelConfig config;
  config.kv_source_layer_ids = config.index_k_source_layer_ids = {1, 2, 8, 14, 20};
  config.index_source_layer_ids = {1, 2, 8, 14, 20, 24, 28, 32, 36};
  const auto problems = config_problems(config, "c");
  ASSERT_FALSE(problems.empty());
  EXPECT_THAT(to_string(problems.front()), HasSubstr("layer 1 with ratio 0"));
}

TEST(Config, RatioOneMustNotEndAgain) {
  ModelConfig config;
  config.compress_ratios[30] = 2;
  EXPECT_FALSE(config_problems(config, "c").empty());
  config.compress_ratios[30] = 0;
  EXPECT_FALSE(config_problems(config, "c").empty());
}

TEST(Config, WithoutDraftStagesAndEngramTheirFieldsDoNotMatter) {
  ModelConfig config;
  config.num_nextn_predict_layers = 0;
  config.compress_ratios.resize(40);
  config.dspark_target_layer_ids = {};
  config.dspark_noise_token_id = 1 << 20;
  config.engram_layer_ids = {};
  config.engram_num_embeddings = {};
  EXPECT_TRUE(config_problems(config, "c").empty());
}

TEST(ExpertShare, DividesAllExpertsAmongTheRanks) {
  for (const int ranks : {1, 5, 64, 384}) {
    for (const int experts : {128, 384}) {
      for (int expert = 0; expert < experts; ++expert) {
        int holders = 0;
        for (int rank = 0; rank < ranks; ++rank) holders += ExpertShare{rank, ranks}.holds(expert, experts);
        EXPECT_EQ(holders, 1) << expert << " of " << experts << " over " << ranks;
      }
    }
  }
}

}  // namespace
}  // namespace fathom
