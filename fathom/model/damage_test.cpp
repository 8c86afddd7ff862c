// One thing wrong at a time. A small checkpoint in two shards is opened after each way of damaging it: every way must
// end in an error that names what a person has to look at; none may succeed, crash, or read beyond a file (asan
// watches).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "fathom/checkpoint/safetensors.h"
#include "fathom/model/initial_weights.h"
#include "fathom/model/open_model.h"
#include "fathom/model/presets.h"
#include "fathom/model/tensor_list.h"

namespace fathom {
namespace {

using testing::HasSubstr;

constexpr const char* kFirst = "model-00001-of-00002.safetensors";
constexpr const char* kSecond = "model-00002-of-00002.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

using Files = std::map<std::string, std::string>;

// The tiny configuration; layers 0 and 1 in the second file. Weights are zero: nothing here reads them.
Files sound_files() {
  const ModelConfig config = *preset_config("tiny");
  std::vector<TensorSpec> shards[2];
  for (TensorSpec& tensor : tensor_list(config)) {
    const bool second = tensor.name.starts_with("layers.0.") || tensor.name.starts_with("layers.1.");
    shards[second].push_back(std::move(tensor));
  }
  Files files;
  std::string map;
  for (const int s : {0, 1}) {
    const char* name = s == 0 ? kFirst : kSecond;
    std::string bytes = write_safetensors_header(shards[s]);
    for (const TensorSpec& tensor : shards[s]) {
      bytes.resize(bytes.size() + size_t(tensor.bytes()));
      map += (map.empty() ? "\"" : ",\n\"") + tensor.name + "\": \"" + name + "\"";
    }
    files[name] = std::move(bytes);
  }
  files[kIndex] = "{\"metadata\": {\"total_size\": 0}, \"weight_map\": {" + map + "}}";
  files["config.json"] = to_string(to_json(config));
  return files;
}

std::vector<EmbeddedFile> views_of(const Files& files) {
  std::vector<EmbeddedFile> views;
  for (const auto& [name, text] : files) {
    views.push_back({name, {reinterpret_cast<const uint8_t*>(text.data()), text.size()}});
  }
  return views;
}

void replace(std::string& text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  ASSERT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
}

// Replaces inside a shard's header and keeps the length field true, so that only the replaced words are wrong.
void in_header(std::string& shard, const std::string& from, const std::string& to) {
  uint64_t length = 0;
  for (size_t i = 8; i-- > 0;) length = length << 8 | uint8_t(shard[i]);
  std::string header = shard.substr(8, length);
  replace(header, from, to);
  for (size_t i = 0; i < 8; ++i) shard[i] = char(header.size() >> (8 * i));
  shard.replace(8, length, header);
}

struct Way {
  const char* what;
  std::function<void(Files&)> damage;
  std::vector<std::string> mentions;
};

Way config_value(const char* what, std::string from, std::string to, std::vector<std::string> mentions) {
  mentions.push_back("config.json");
  return {what, [=](Files& files) { replace(files["config.json"], from, to); }, mentions};
}
Way header_text(const char* what, std::string from, std::string to, std::vector<std::string> mentions) {
  mentions.push_back(kFirst);
  return {what, [=](Files& files) { in_header(files[kFirst], from, to); }, mentions};
}
Way index_text(const char* what, std::string from, std::string to, std::vector<std::string> mentions) {
  return {what, [=](Files& files) { replace(files[kIndex], from, to); }, mentions};
}
Way file_bytes(const char* what, const char* file, std::function<void(std::string&)> damage,
               std::vector<std::string> mentions) {
  mentions.push_back(file);
  return {what, [=](Files& files) { damage(files[file]); }, mentions};
}

std::vector<Way> damaged_configurations() {
  return {
      {"no config.json", [](Files& files) { files.erase("config.json"); }, {"config.json", "no such file"}},
      file_bytes("an empty config.json", "config.json", [](auto& text) { text.clear(); }, {}),
      file_bytes("half a config.json", "config.json", [](auto& text) { text.resize(text.size() / 2); }, {}),
      file_bytes("a list as config.json", "config.json", [](auto& text) { text = "[]"; }, {"no JSON object"}),
      config_value("another model (load-02)", "\"deepseek_v41\"", "\"deepseek_v4\"", {"deepseek_v4\"", "deepseek_v41"}),
      config_value("another architecture", "DeepseekV41ForCausalLM", "LlamaForCausalLM", {"LlamaForCausalLM"}),
      config_value("another dtype", "\"bfloat16\"", "\"float32\"", {"float32", "bfloat16"}),
      config_value("experts in another format", "\"fp4\"", "\"bf16\"", {"expert_dtype", "bf16", "fp4"}),
      config_value("a width that is no multiple of 32", "\"hidden_size\":128", "\"hidden_size\":120", {"120", "32"}),
      config_value("a width that is a string", "\"hidden_size\":128", "\"hidden_size\":\"128\"", {"hidden_size"}),
      config_value("a negative vocabulary", "\"vocab_size\":384", "\"vocab_size\":-384", {"vocab_size", "-384"}),
      config_value("an absurd width", "\"hidden_size\":128", "\"hidden_size\":1180591620717411303424", {"hidden_size"}),
      config_value("too few ratios", "[0,0,2,2,1,1,1,1,0,0,0]", "[0,0,2,2,1,1,1,1,0,0]", {"compress_ratios", "11"}),
      config_value("sources out of order", "\"kv_source_layer_ids\":[2,4]", "\"kv_source_layer_ids\":[4,2]",
                   {"[4, 2]"}),
      config_value("no source at the border", "\"kv_source_layer_ids\":[2,4]", "\"kv_source_layer_ids\":[2]", {"4"}),
      config_value("a table of the wrong size", "[434,606]", "[434,607]", {"607", "606"}),
      config_value("two keys for one head", "\"num_key_value_heads\":1", "\"num_key_value_heads\":2", {"2", "1"}),
      config_value("more experts than stored", "\"n_routed_experts\":8", "\"n_routed_experts\":9",
                   {"layers.0.ffn.gate.weight", "[9, 128]"}),
      config_value("fewer experts than stored", "\"dspark_n_routed_experts\":4", "\"dspark_n_routed_experts\":3",
                   {"mtp.0.ffn.gate.weight", "[3, 128]"}),
      config_value("wider experts than stored", "\"moe_intermediate_size\":64", "\"moe_intermediate_size\":96",
                   {"[64, 128]", "[96, 128]"}),
      config_value("one stage less than stored", "\"num_nextn_predict_layers\":3", "\"num_nextn_predict_layers\":2",
                   {"compress_ratios"}),
      config_value("an index source that has no weights", "\"index_source_layer_ids\":[2,4,6]",
                   "\"index_source_layer_ids\":[2,4,6,7]", {"layers.7.attn.indexer"}),
      config_value("an index source less than stored", "\"index_source_layer_ids\":[2,4,6]",
                   "\"index_source_layer_ids\":[2,4]", {"layers.6.attn.indexer", "unknown"}),
      config_value(
          "vision without weights", "\"vision_config\":{}",
          R"("vision_config":{"num_hidden_layers":1,"hidden_size":64,"num_attention_heads":4,"intermediate_size":128,
                   "patch_size":14,"rope_theta":10000,"downsample_ratio":3,"max_image_tokens":1024,"min_pixels":295936})",
          {"image_start", "missing"}),
  };
}

std::vector<Way> damaged_indices() {
  return {
      {"no index", [](Files& files) { files.erase(kIndex); }, {kIndex, "model.safetensors"}},
      file_bytes("an empty index", kIndex, [](auto& text) { text.clear(); }, {"damaged"}),
      file_bytes("half an index", kIndex, [](auto& text) { text.resize(text.size() / 2); }, {"damaged"}),
      file_bytes("something after the index", kIndex, [](auto& text) { text += "{}"; }, {"nothing may follow"}),
      file_bytes("no weight_map", kIndex, [](auto& text) { text = "{\"metadata\": {}}"; }, {"weight_map is missing"}),
      file_bytes("an empty weight_map", kIndex, [](auto& text) { text = "{\"weight_map\": {}}"; }, {"empty"}),
      index_text("two weight_maps", "\"metadata\": {\"total_size\": 0}", "\"weight_map\": {}",
                 {"weight_map occurs twice"}),
      index_text("a number for a file", "\"model-00001-of-00002.safetensors\"", "3", {kIndex, "string"}),
      index_text("a file outside the folder", kFirst, "../other.safetensors", {kIndex, "../other.safetensors"}),
      index_text("a file that is no shard", kFirst, "config.json", {kIndex, "config.json"}),
      index_text("a shard that is not there", kFirst, "model-00003-of-00002.safetensors",
                 {"model-00003-of-00002.safetensors", "no such file"}),
      index_text("a tensor in the wrong shard", std::string("\"norm.weight\": \"") + kFirst,
                 std::string("\"norm.weight\": \"") + kSecond, {"norm.weight", kIndex}),
      index_text("a tensor that is nowhere", "\"norm.weight\"", "\"enorm.weight\"", {"enorm.weight", kFirst}),
      index_text("a tensor less than stored", std::string(",\n\"norm.weight\": \"") + kFirst + "\"", "",
                 {"norm.weight", kFirst}),
      index_text("a tensor twice", "\"norm.weight\"",
                 std::string("\"norm.weight\": \"") + kFirst + "\", \"norm.weight\"", {"norm.weight", "twice"}),
  };
}

std::vector<Way> damaged_shards() {
  const auto field = [](int byte, uint8_t value) {
    return [=](std::string& text) { text[size_t(byte)] = char(value); };
  };
  return {
      {"no second shard", [](Files& files) { files.erase(kSecond); }, {kSecond, "no such file"}},
      file_bytes("an empty shard", kFirst, [](auto& text) { text.clear(); }, {"0 bytes"}),
      file_bytes("seven bytes", kFirst, [](auto& text) { text.resize(7); }, {"7 bytes"}),
      file_bytes("a shard that ends in its header", kFirst, [](auto& text) { text.resize(1000); }, {"1,000"}),
      file_bytes("64 bytes too few (load-01)", kFirst, [](auto& text) { text.resize(text.size() - 64); },
                 {"its header says"}),
      file_bytes("one byte too few", kSecond, [](auto& text) { text.pop_back(); }, {"its header says"}),
      file_bytes("one byte too many", kSecond, [](auto& text) { text += 'x'; }, {"its header says"}),
      file_bytes("a length field beyond the file", kFirst, field(3, 1), {"its header alone needs"}),
      file_bytes("a length field that would be negative", kFirst, field(7, 0x80), {"header length field"}),
      file_bytes("a length field of nothing", kFirst, [](auto& text) { text.replace(0, 8, 8, '\0'); }, {"header"}),
      file_bytes("a header that is a web page", kFirst, [](auto& text) { text.replace(8, 14, "<!DOCTYPE html"); },
                 {"no JSON"}),
      file_bytes("both shards the same", kSecond, [](auto& text) { text = sound_files()[kFirst]; }, {"tensor"}),
  };
}

// The entry of norm.weight in the first shard: BF16 [128], 256 bytes.
std::vector<Way> damaged_headers() {
  const std::string norm = R"("norm.weight":{"dtype":"BF16","shape":[128])";
  const auto with = [&](const std::string& text) { return "\"norm.weight\":{" + text; };
  return {
      header_text("an unknown dtype", norm, with(R"("dtype":"F64","shape":[128])"), {"norm.weight", "F64"}),
      header_text("another dtype of the same size", norm, with(R"("dtype":"F16","shape":[128])"),
                  {"norm.weight", "F16", "BF16"}),
      header_text("a dtype of another size", norm, with(R"("dtype":"F32","shape":[128])"), {"norm.weight", "512"}),
      header_text("another rank", norm, with(R"("dtype":"BF16","shape":[1,128])"),
                  {"norm.weight", "[1, 128]", "[128]"}),
      header_text("a shorter shape", norm, with(R"("dtype":"BF16","shape":[127])"), {"norm.weight", "254"}),
      header_text("a negative dimension", norm, with(R"("dtype":"BF16","shape":[-128])"), {"norm.weight", "integer"}),
      header_text("a fraction of a dimension", norm, with(R"("dtype":"BF16","shape":[128.0])"),
                  {"norm.weight", "integer"}),
      header_text("a shape that overflows", norm, with(R"("dtype":"BF16","shape":[4294967296,4294967296,128])"),
                  {"norm.weight", "2^62"}),
      header_text("nine dimensions", norm, with(R"("dtype":"BF16","shape":[128,1,1,1,1,1,1,1,1])"),
                  {"norm.weight", "8 dim"}),
      header_text("no shape", norm, with(R"("dtype":"BF16")"), {"norm.weight", "no shape"}),
      header_text("no dtype", norm, with(R"("shape":[128])"), {"norm.weight", "no dtype"}),
      header_text("a key too many", norm, with(R"("zip":1,"dtype":"BF16","shape":[128])"),
                  {"norm.weight", "key other than"}),
      header_text("the wrong offsets", R"("embed.weight":{"dtype":"BF16","shape":[384,128],"data_offsets":[0,98304])",
                  R"("embed.weight":{"dtype":"BF16","shape":[384,128],"data_offsets":[4,98308])", {"offset 4"}),
      header_text("an overlap", R"([64],"data_offsets":[)", R"([64],"data_offsets":[ 1 , 129 ], "data_offsets":[)",
                  {"twice"}),
      header_text("a foreign name", norm, R"("nrom.weight":{"dtype":"BF16","shape":[128])", {"norm.weight", kIndex}),
      header_text("an escape that is none", norm, R"("norm\qweight":{"dtype":"BF16","shape":[128])", {"escape"}),
      header_text("bytes that are no text", norm, "\"norm\xfeweight\":{\"dtype\":\"BF16\",\"shape\":[128]", {"UTF-8"}),
      header_text("metadata of numbers", R"({"format":"pt"})", R"({"format":1})", {"string"}),
      header_text("a brace less", R"("shape":[128],"data_offsets":)", R"("shape":[128,"data_offsets":)", {"integer"}),
  };
}

// A tensor in shard and index that no configuration demands.
void add_tensor(Files& files, const std::string& name, const std::string& dtype, int64_t bytes) {
  const std::string& first = files[kFirst];
  uint64_t length = 0;
  for (size_t i = 8; i-- > 0;) length = length << 8 | uint8_t(first[i]);
  const std::string begin = std::to_string(first.size() - 8 - length);
  const std::string end = std::to_string(int64_t(first.size() - 8 - length) + bytes);
  in_header(files[kFirst], "\"norm.weight\":",
            "\"" + name + R"(":{"dtype":")" + dtype + R"(","shape":[)" +
                std::to_string(bytes / (dtype == "F32" ? 4 : 1)) + R"(],"data_offsets":[)" + begin + "," + end +
                "]},\"norm.weight\":");
  files[kFirst].append(size_t(bytes), '\0');
  replace(files[kIndex], "\"norm.weight\"", "\"" + name + "\": \"" + kFirst + "\", \"norm.weight\"");
}

std::vector<Way> unknown_tensors() {
  const auto unknown = [](const char* what, std::string name, std::vector<std::string> mentions) {
    mentions.insert(mentions.end(), {kFirst});
    return Way{what, [=](Files& files) { add_tensor(files, name, "F32", 64); }, mentions};
  };
  return {
      unknown("a norm of the mixes", "layers.3.hc_attn_norm.weight", {"layers.3.hc_attn_norm.weight", "unknown"}),
      unknown("a position bias", "layers.2.attn.compressor.ape", {"layers.2.attn.compressor.ape", "unknown"}),
      unknown("an expert too many", "layers.3.ffn.experts.8.w1.weight", {"experts.8", "unknown"}),
      unknown("a layer too many", "layers.8.attn_norm.weight", {"layers.8", "unknown"}),
      unknown("a head of V4", "mtp.0.hc_head_fn", {"mtp.0.hc_head_fn", "unknown"}),
      unknown("one name in both spellings", "model.norm.weight", {"norm.weight", "twice"}),
  };
}

class DamagedCheckpoint : public testing::TestWithParam<std::vector<Way> (*)()> {};

TEST_P(DamagedCheckpoint, IsNamedNeverOpened) {
  const Files sound = sound_files();
  for (const Way& way : GetParam()()) {
    Files files = sound;
    way.damage(files);
    const auto views = views_of(files);
    const auto opened = open_model(views);
    ASSERT_FALSE(opened.ok()) << way.what;
    const std::string line = to_string(opened.error());
    for (const std::string& mention : way.mentions) EXPECT_THAT(line, HasSubstr(mention)) << way.what;
    EXPECT_FALSE(model_problems(views).empty()) << way.what;
  }
}

INSTANTIATE_TEST_SUITE_P(Configuration, DamagedCheckpoint, testing::Values(&damaged_configurations));
INSTANTIATE_TEST_SUITE_P(Index, DamagedCheckpoint, testing::Values(&damaged_indices));
INSTANTIATE_TEST_SUITE_P(Shard, DamagedCheckpoint, testing::Values(&damaged_shards));
INSTANTIATE_TEST_SUITE_P(Header, DamagedCheckpoint, testing::Values(&damaged_headers));
INSTANTIATE_TEST_SUITE_P(Tensors, DamagedCheckpoint, testing::Values(&unknown_tensors));

TEST(DamagedCheckpoint, ThereAreMoreThanFortyWays) {
  EXPECT_GT(damaged_configurations().size() + damaged_indices().size() + damaged_shards().size() +
                damaged_headers().size() + unknown_tensors().size(),
            40u);
}

TEST(SoundCheckpoint, OpensWithoutAWarningButThatOfItsTotal) {
  const Files files = sound_files();
  const auto opened = open_model(views_of(files));
  ASSERT_TRUE(opened.ok()) << to_string(opened.error());
  EXPECT_EQ(opened->warnings.size(), 1u);  // sound_files() writes a total of 0
  EXPECT_TRUE(model_problems(views_of(files)).empty());
}

TEST(SoundCheckpoint, MayRepeatEmbedAndHeadInTheDraftStages) {
  Files files = sound_files();
  add_tensor(files, "mtp.0.embed.weight", "F32", 64);
  add_tensor(files, "mtp.2.head.weight", "I8", 64);
  const auto opened = open_model(views_of(files));
  EXPECT_TRUE(opened.ok()) << to_string(opened.error());
}

// load-02: experts in bf16 without scales. With config.json of V4 that is said first; without it, the first expert is
// named.
TEST(DamagedCheckpoint, Load02ExpertsInAnotherFormatAreNamed) {
  Files files = sound_files();
  in_header(files[kSecond], R"("layers.0.ffn.experts.0.w1.weight":{"dtype":"I8","shape":[64,64])",
            R"("layers.0.ffn.experts.0.w1.weight":{"dtype":"BF16","shape":[64,32])");
  const auto opened = open_model(views_of(files));
  ASSERT_FALSE(opened.ok());
  EXPECT_THAT(to_string(opened.error()),
              testing::AllOf(HasSubstr("layers.0.ffn.experts.0.w1.weight"), HasSubstr("BF16"), HasSubstr("expected I8"),
                             HasSubstr(kSecond)));
}

TEST(DamagedCheckpoint, EveryDifferenceIsListed) {
  Files files = sound_files();
  replace(files["config.json"], "\"moe_intermediate_size\":64", "\"moe_intermediate_size\":96");
  // Of every expert and shared expert w1, w2, w3: weight and scale, but the scales of w2 keep their rows.
  const ModelConfig config = *preset_config("tiny");
  ModelConfig wider = config;
  wider.moe_intermediate_size = 96;
  const auto a = tensor_list(config), b = tensor_list(wider);
  size_t different = 0;
  for (size_t i = 0; i < a.size(); ++i) different += a[i].shape != b[i].shape;
  EXPECT_EQ(model_problems(views_of(files)).size(), different);
  EXPECT_THAT(to_string(open_model(views_of(files)).error()), HasSubstr(with_commas(int64_t(different) - 1) + " more"));
}

}  // namespace
}  // namespace fathom
