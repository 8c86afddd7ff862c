#include "fathom/checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "fathom/base/sha256.h"
#include "fathom/checkpoint/checkpoint_writer.h"
#include "fathom/checkpoint/safetensors.h"

namespace fathom {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// A folder of its own, removed at the end.
class CheckpointFolder : public testing::Test {
 protected:
  CheckpointFolder() {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = testing::TempDir() + "fathom_" + info->name() + "_" + std::to_string(::getpid());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~CheckpointFolder() override { std::filesystem::remove_all(folder_); }

  void write(const std::string& file, std::string_view bytes) {
    const auto wrote = write_file(folder_ + "/" + file, bytes);
    ASSERT_TRUE(wrote.ok()) << to_string(wrote.error());
  }
  // Every data byte is `fill`.
  static std::string shard(const std::vector<TensorSpec>& tensors, char fill = 1) {
    return write_safetensors_header(tensors) + std::string(size_t(ShardSpec{"", tensors}.data_bytes()), fill);
  }
  std::string error() const {
    const auto opened = Checkpoint::open(folder_);
    return opened ? "none" : to_string(opened.error());
  }

  std::string folder_;
};

TEST(EmbeddedModel, OpensWithTheCountsOfItsCard) {
  const auto checkpoint = Checkpoint::open(embedded_model());
  ASSERT_TRUE(checkpoint.ok()) << to_string(checkpoint.error());
  EXPECT_EQ(checkpoint->tensors().size(), 1545u);
  EXPECT_EQ(checkpoint->tensor_bytes(), 19'190'106);
  EXPECT_TRUE(checkpoint->warnings().empty());
  EXPECT_EQ(checkpoint->config().find("model_type")->text, "deepseek_v41");
  for (const EmbeddedFile& file : embedded_model()) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(file.bytes.data()) % 64, 0u) << file.name;
    EXPECT_TRUE(checkpoint->has_file(file.name));
  }
  EXPECT_FALSE(checkpoint->has_file("eval.jsonl"));
  EXPECT_EQ(checkpoint->read_text("tokenizer.json")->front(), '{');
  EXPECT_FALSE(checkpoint->read_text("nothing.json").ok());
}

TEST(EmbeddedModel, IsTheFolderInTheSources) {
  const auto folder = Checkpoint::open(std::string(FATHOM_SOURCE_DIR) + "/models/mini");
  const auto embedded = Checkpoint::open(embedded_model());
  ASSERT_TRUE(folder.ok()) << to_string(folder.error());
  ASSERT_EQ(folder->tensors().size(), embedded->tensors().size());
  for (size_t i = 0; i < folder->tensors().size(); ++i) {
    const TensorInfo &a = folder->tensors()[i], &b = embedded->tensors()[i];
    EXPECT_EQ(a.spec, b.spec);
    EXPECT_TRUE(std::ranges::equal(folder->bytes_of(a), embedded->bytes_of(b))) << a.spec.name;
  }
}

TEST_F(CheckpointFolder, ASingleFileNeedsNoIndex) {
  write("config.json", R"({"a": 1})");
  write(
      "model.safetensors",
      shard({{"m", DType::bf16, {2, 3}}, {"v", DType::f32, {5}}, {"s", DType::f32, {}}, {"c", DType::i8, {2, 3, 4}}}));
  const auto opened = Checkpoint::open(folder_);
  ASSERT_TRUE(opened.ok()) << to_string(opened.error());
  EXPECT_EQ(opened->config().find("a")->as_int64(), 1);
  EXPECT_EQ(opened->tensor("m")->rows, 2);
  EXPECT_EQ(opened->tensor("m")->cols, 3);
  EXPECT_EQ(opened->tensor("m")->dtype, DType::bf16);
  EXPECT_EQ(opened->tensor("v")->rows, 1);
  EXPECT_EQ(opened->tensor("v")->cols, 5);
  EXPECT_EQ(opened->tensor("s")->cols, 1);
  EXPECT_EQ(opened->tensor("c")->rows, 6);
  EXPECT_EQ(opened->tensor("c")->cols, 4);
  EXPECT_EQ(opened->tensor("c")->data[23], 1);
  const auto missing = opened->tensor("x");
  EXPECT_EQ(missing.error().code, ErrorCode::not_found);
  EXPECT_THAT(to_string(missing.error()), HasSubstr("no tensor x"));
}

// load-01: a valid file of two tensors, then the last 64 bytes are cut.
TEST_F(CheckpointFolder, Load01AShortShardIsNamedWithItsExpectedAndActualSize) {
  write("config.json", "{}");
  const std::string whole = shard({{"a", DType::f32, {16, 16}}, {"b", DType::bf16, {64}}});
  write("model.safetensors", std::string_view(whole).substr(0, whole.size() - 64));
  EXPECT_THAT(error(), AllOf(HasSubstr("model.safetensors"), HasSubstr(with_commas(int64_t(whole.size()))),
                             HasSubstr(with_commas(int64_t(whole.size()) - 64))));
  EXPECT_EQ(Checkpoint::open(folder_).error().code, ErrorCode::corrupt);
}

TEST_F(CheckpointFolder, NamesMayCarryThePrefixOfReExports) {
  write("config.json", "{}");
  write("model.safetensors", shard({{"model.embed.weight", DType::f32, {2}}, {"head.weight", DType::f32, {3}}}));
  const auto opened = Checkpoint::open(folder_);
  ASSERT_TRUE(opened.ok()) << to_string(opened.error());
  EXPECT_TRUE(opened->has("embed.weight"));
  EXPECT_TRUE(opened->has("head.weight"));
  EXPECT_FALSE(opened->has("model.embed.weight"));
}

TEST_F(CheckpointFolder, BothSpellingsOfOneTensorAreRefused) {
  write("config.json", "{}");
  write("model.safetensors", shard({{"model.embed.weight", DType::f32, {2}}, {"embed.weight", DType::f32, {2}}}));
  EXPECT_THAT(error(), AllOf(HasSubstr("embed.weight"), HasSubstr("exists twice"), HasSubstr("model.")));
}

// Two shards; total_size as some writers put it, and wrong, and absent.
TEST_F(CheckpointFolder, ADifferentTotalSizeIsAWarning) {
  write("config.json", "{}");
  write("a.safetensors", shard({{"x", DType::f32, {2}}}));
  write("b.safetensors", shard({{"y", DType::f32, {3}}}));
  const std::string map = R"("weight_map": {"x": "a.safetensors", "y": "b.safetensors"}})";
  const auto warnings = [&](const std::string& metadata) {
    write("model.safetensors.index.json", "{" + metadata + map);
    const auto opened = Checkpoint::open(folder_);
    EXPECT_TRUE(opened.ok()) << to_string(opened.error());
    return opened.ok() ? opened->warnings() : std::vector<std::string>{"failed"};
  };
  EXPECT_THAT(warnings(R"("metadata": {"total_size": 20},)"), testing::IsEmpty());
  EXPECT_THAT(warnings(R"("metadata": {"total_size": 20.0, "other": [1, {"a": null}]},)"), testing::IsEmpty());
  EXPECT_THAT(warnings(R"("metadata": {"total_size": 24},)"),
              testing::ElementsAre(AllOf(HasSubstr("24"), HasSubstr("20"))));
  EXPECT_THAT(warnings(""), testing::ElementsAre(HasSubstr("absent")));
}

TEST_F(CheckpointFolder, UnalignedTensorsAreLegalAndReported) {
  write("config.json", "{}");
  write("model.safetensors", shard({{"byte", DType::i8, {1}}, {"word", DType::f32, {4}}}));
  const auto opened = Checkpoint::open(folder_);
  ASSERT_TRUE(opened.ok()) << to_string(opened.error());
  EXPECT_TRUE(opened->is_aligned(*opened->find("byte")));
  EXPECT_FALSE(opened->is_aligned(*opened->find("word")));
}

TEST_F(CheckpointFolder, OpenPartlyListsEveryProblemAndKeepsTheRest) {
  write("config.json", "{");
  write("a.safetensors", shard({{"x", DType::f32, {2}}}));
  write("b.safetensors", "torn");
  write(
      "model.safetensors.index.json",
      R"({"weight_map": {"x": "a.safetensors", "gone": "a.safetensors", "y": "b.safetensors", "z": "c.safetensors"}})");
  std::vector<Error> problems;
  const Checkpoint opened = Checkpoint::open_partly(folder_, problems);
  std::vector<std::string> lines;
  for (const Error& problem : problems) lines.push_back(to_string(problem));
  EXPECT_THAT(lines, testing::UnorderedElementsAre(HasSubstr("config.json"), HasSubstr("b.safetensors"),
                                                   HasSubstr("c.safetensors"), HasSubstr("gone")));
  EXPECT_TRUE(opened.has("x"));
  EXPECT_TRUE(opened.unreadable("y"));
  EXPECT_TRUE(opened.unreadable("z"));
  EXPECT_FALSE(opened.unreadable("x"));
}

TEST_F(CheckpointFolder, AFolderThatIsNotThereIsSaidSo) {
  EXPECT_THAT(to_string(Checkpoint::open(folder_ + "/nowhere").error()), HasSubstr("no such folder"));
  EXPECT_THAT(error(), HasSubstr("config.json"));
  write("config.json", "{}");
  EXPECT_THAT(error(), HasSubstr("no weights"));
  EXPECT_EQ(Checkpoint::read_config(folder_)->fields.size(), 0u);
}

// ---------------------------------------------------------------- writing

CheckpointContent two_shards(bool hole = false) {
  CheckpointContent content;
  content.config = Json::object();
  content.shards = {{"a.safetensors", {{"x", DType::f32, {70, 3}}, {"y", DType::i8, {5}}}, hole},
                    {"b.safetensors", {{"z", DType::bf16, {4, 4}}}, hole}};
  content.files = {{"tokenizer.json", "{}"}};
  return content;
}

// Every byte of row r is r.
void fill_by_row(const TensorSpec&, int64_t first_row, int64_t rows, std::span<uint8_t> out) {
  const size_t row_bytes = out.size() / size_t(rows);
  for (size_t i = 0; i < out.size(); ++i) out[i] = uint8_t(first_row + int64_t(i / row_bytes));
}

TEST_F(CheckpointFolder, WritesWhatItOpens) {
  ThreadPool pool(2);
  int64_t done = 0, total = 0;
  const auto wrote =
      write_checkpoint(folder_ + "/new/folder", two_shards(), fill_by_row, pool, [&](int64_t d, int64_t t) {
        done = d;
        total = t;
        return true;
      });
  ASSERT_TRUE(wrote.ok()) << to_string(wrote.error());
  EXPECT_EQ(done, 840 + 5 + 32);
  EXPECT_EQ(total, done);
  const auto opened = Checkpoint::open(folder_ + "/new/folder");
  ASSERT_TRUE(opened.ok()) << to_string(opened.error());
  EXPECT_TRUE(opened->warnings().empty());
  EXPECT_EQ(opened->tensors().size(), 3u);
  EXPECT_EQ(*opened->tensor("x")->row(69), 69);
  EXPECT_EQ(*opened->tensor("z")->row(3), 3);
  EXPECT_EQ(*opened->read_text("tokenizer.json"), "{}");
}

TEST_F(CheckpointFolder, DoesNotWriteIntoAFolderThatHoldsSomething) {
  write("notes.txt", "mine");
  ThreadPool pool(1);
  const auto wrote = write_checkpoint(folder_, two_shards(), fill_by_row, pool);
  ASSERT_FALSE(wrote.ok());
  EXPECT_EQ(wrote.error().code, ErrorCode::usage);
  EXPECT_THAT(to_string(wrote.error()), AllOf(HasSubstr("not empty"), HasSubstr("notes.txt")));
}

TEST_F(CheckpointFolder, StopsWhenAskedAndLeavesNoHalfFile) {
  ThreadPool pool(1);
  const auto wrote = write_checkpoint(folder_, two_shards(), fill_by_row, pool, [](int64_t, int64_t) { return false; });
  ASSERT_FALSE(wrote.ok());
  EXPECT_EQ(wrote.error().code, ErrorCode::interrupted);
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(CheckpointFolder, HolesReadAsZeroAndTakeNoSpace) {
  CheckpointContent content = two_shards(true);
  content.shards[0].tensors.push_back({"large", DType::i8, {int64_t(1) << 30}});
  ThreadPool pool(1);
  const auto wrote = write_checkpoint(folder_, content, fill_by_row, pool);
  if (!wrote && wrote.error().code == ErrorCode::bad_input) GTEST_SKIP() << to_string(wrote.error());
  ASSERT_TRUE(wrote.ok()) << to_string(wrote.error());
  const auto opened = Checkpoint::open(folder_);
  ASSERT_TRUE(opened.ok()) << to_string(opened.error());
  EXPECT_EQ(opened->bytes_of(*opened->find("large"))[(size_t(1) << 30) - 1], 0);
}

TEST(WithCommas, GroupsThreeDigits) {
  EXPECT_EQ(with_commas(0), "0");
  EXPECT_EQ(with_commas(999), "999");
  EXPECT_EQ(with_commas(1000), "1,000");
  EXPECT_EQ(with_commas(-123456), "-123,456");
  EXPECT_EQ(with_commas(510286023000), "510,286,023,000");
}

TEST(CheckpointIdentity, IsThatOfTheFilesNotOfTheirPlace) {
  const auto folder = Checkpoint::open(std::string(FATHOM_SOURCE_DIR) + "/models/mini");
  const auto embedded = Checkpoint::open(embedded_model());
  EXPECT_EQ(folder->identity(), embedded->identity());
  EXPECT_EQ(folder->identity(), folder->identity());
}

// docs/formats/prefix-keys.md, written out for one tensor of four bytes.
TEST_F(CheckpointFolder, IdentityIsTheHashOfTheFormat) {
  write("config.json", "{ \"a\": 1 }");
  write("model.safetensors", shard({{"model.w", DType::f32, {1}}}, 7));
  const auto framed = [](char kind, std::string_view bytes) {
    std::string out(1, kind);
    for (int i = 0; i < 8; ++i) out += char(uint64_t(bytes.size()) >> (8 * i));
    return out + std::string(bytes);
  };
  const std::string text = framed(1, "fathom checkpoint") + framed(2, R"({"a":1})") +
                           framed(3, std::string("w\0F32\0\1\0\0\0\0\0\0\0", 14)) +
                           framed(4, std::string(8, '\0') + std::string(4, '\7'));
  Sha256 want;
  want.add({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  EXPECT_EQ(Checkpoint::open(folder_)->identity(), want.digest());
}

// Below 1 MiB every byte counts; so do every header and the configuration, and nothing else does.
TEST_F(CheckpointFolder, IdentityChangesWithEveryByteHeaderAndSetting) {
  const std::vector<TensorSpec> tensors = {{"a", DType::bf16, {3, 2}}, {"b", DType::i8, {}}};
  const auto identity = [&](const std::string& config, std::vector<TensorSpec> specs, std::string file) {
    write("config.json", config);
    write("model.safetensors", file.empty() ? shard(specs) : file);
    const auto opened = Checkpoint::open(folder_);
    EXPECT_TRUE(opened.ok()) << to_string(opened.error());
    return opened->identity();
  };
  std::vector<std::array<uint8_t, 32>> seen;
  seen.push_back(identity("{}", tensors, ""));
  seen.push_back(identity(R"({"x":1})", tensors, ""));
  seen.push_back(identity("{}", {{"a", DType::bf16, {2, 3}}, {"b", DType::i8, {}}}, ""));
  seen.push_back(identity("{}", {{"a", DType::f16, {3, 2}}, {"b", DType::i8, {}}}, ""));
  seen.push_back(identity("{}", {{"c", DType::bf16, {3, 2}}, {"b", DType::i8, {}}}, ""));
  seen.push_back(identity("{}", {{"a", DType::bf16, {3, 2}}, {"b", DType::i8, {1}}}, ""));
  const std::string file = shard(tensors);
  for (size_t i = file.size() - 13; i < file.size(); ++i) {
    std::string changed = file;
    changed[i] = 2;
    seen.push_back(identity("{}", tensors, changed));
  }
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(std::adjacent_find(seen.begin(), seen.end()), seen.end());
}

TEST_F(CheckpointFolder, IdentityDoesNotDependOnShardsAndPrefix) {
  const std::vector<TensorSpec> tensors = {{"a", DType::bf16, {3}}, {"b", DType::f32, {5, 2}}};
  write("config.json", "{}");
  write("model.safetensors", shard(tensors));
  const auto one = Checkpoint::open(folder_)->identity();
  std::filesystem::remove(folder_ + "/model.safetensors");
  write("x-1.safetensors", shard({{"model.b", DType::f32, {5, 2}}}));
  write("x-2.safetensors", shard({{"model.a", DType::bf16, {3}}}));
  write("model.safetensors.index.json", R"({"weight_map":{"model.a":"x-2.safetensors","model.b":"x-1.safetensors"}})");
  const auto two = Checkpoint::open(folder_);
  ASSERT_TRUE(two.ok()) << to_string(two.error());
  EXPECT_EQ(two->identity(), one);
}

// Of large data the samples count: a training step changes nearly all bytes, and so at least one of them.
TEST_F(CheckpointFolder, IdentityOfALargeCheckpointSeesOtherWeights) {
  std::vector<TensorSpec> tensors;
  for (int i = 0; i < 40; ++i) {
    tensors.push_back({"big." + std::to_string(i), DType::i8, {300, 1'000}});
    tensors.push_back({"small." + std::to_string(i), DType::f32, {8}});
  }
  write("config.json", "{}");
  std::string file = shard(tensors);
  write("model.safetensors", file);
  const auto before = Checkpoint::open(folder_)->identity();
  // All small ones lie behind the big ones by name, and are a ten-thousandth of the bytes.
  std::vector<uint8_t> changed(file.begin(), file.end());
  const auto opened = Checkpoint::open(folder_);
  const TensorInfo* small = opened->find("small.7");
  for (int64_t i = 0; i < 32; ++i) file[size_t(small->offset + i)] = 2;
  write("model.safetensors", file);
  EXPECT_NE(Checkpoint::open(folder_)->identity(), before);
}

}  // namespace
}  // namespace fathom
