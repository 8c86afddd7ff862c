#include "fathom/checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fathom {
namespace {

using testing::HasSubstr;

// A file with this header text and `data_bytes` of zeros.
std::vector<uint8_t> file_of(std::string_view header, int64_t data_bytes) {
  std::vector<uint8_t> bytes(8 + header.size() + size_t(data_bytes));
  for (size_t i = 0; i < 8; ++i) bytes[i] = uint8_t(header.size() >> (8 * i));
  std::copy(header.begin(), header.end(), bytes.begin() + 8);
  return bytes;
}

std::string problem(std::string_view header, int64_t data_bytes) {
  const auto got = read_safetensors_header(file_of(header, data_bytes), "x.safetensors");
  return got ? "none" : to_string(got.error());
}

TEST(SafetensorsHeader, ReadsWhatItWrites) {
  const std::vector<TensorSpec> specs = {{"a.weight", DType::f32, {3}},
                                         {"b \"q\" \\ é\n", DType::bf16, {2, 5}},
                                         {"scalar", DType::f32, {}},
                                         {"empty", DType::i8, {0, 7}},
                                         {"deep", DType::u8, {1, 2, 1, 2, 1, 2, 1, 2}}};
  const std::string header = write_safetensors_header(specs);
  EXPECT_EQ(header.size() % 8, 0u);
  std::vector<uint8_t> bytes(header.begin(), header.end());
  bytes.resize(header.size() + 12 + 20 + 4 + 0 + 16);
  const auto got = read_safetensors_header(bytes, "x");
  ASSERT_TRUE(got.ok()) << to_string(got.error());
  ASSERT_EQ(got->tensors.size(), specs.size());
  EXPECT_EQ(got->tensors[0].spec, specs[0]);
  EXPECT_EQ(got->tensors[0].begin, int64_t(header.size()));
  EXPECT_EQ(got->tensors[1].spec, specs[1]);
  EXPECT_EQ(got->tensors[2].spec, specs[2]);
  EXPECT_EQ(got->tensors[3].spec, specs[3]);  // empty: where the next one begins
  EXPECT_EQ(got->tensors[4].spec, specs[4]);
  EXPECT_EQ(got->tensors[4].begin, int64_t(header.size()) + 36);
}

TEST(SafetensorsHeader, AcceptsAnyOrderBlanksEscapesAndMetadata) {
  const auto bytes = file_of(
      "{ \"b\" : {\"data_offsets\":[4,8], \"shape\":[1],\n\"dtype\":\"F32\"},\t\"\\u0061\\ud83d\\ude00\":"
      "{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},\"__metadata__\":{\"format\":\"pt\"} }    ",
      8);
  const auto got = read_safetensors_header(bytes, "x");
  ASSERT_TRUE(got.ok()) << to_string(got.error());
  EXPECT_EQ(got->tensors[0].spec.name, "a\U0001F600");
  EXPECT_EQ(got->tensors[1].spec.name, "b");
}

TEST(SafetensorsHeader, AnEmptyHeaderIsAnEmptyFile) {
  EXPECT_EQ(problem("{}", 0), "none");
  EXPECT_THAT(problem("{}", 1), HasSubstr("file has 11 bytes, its header says 10"));
}

// Every mistake alone. `mentions` is what a person needs to find it.
struct Mistake {
  const char* header;
  int64_t data_bytes;
  const char* mentions;
};

TEST(SafetensorsHeader, NamesEveryMistake) {
  const Mistake mistakes[] = {
      {"", 0, "an object is expected"},
      {"[]", 0, "an object is expected"},
      {"{", 0, "a string is expected"},
      {"{} x", 0, "nothing may follow"},
      {"{\"a\":1}", 0, "tensor a has a damaged entry"},
      {"{\"a\":{}}", 0, "tensor a has no dtype"},
      {R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", 4, "tensor a has no shape"},
      {R"({"a":{"dtype":"F32","shape":[1]}})", 4, "tensor a has no data_offsets"},
      {R"({"a":{"dtype":"F64","shape":[1],"data_offsets":[0,8]}})", 8, "tensor a has dtype F64"},
      {R"({"a":{"dtype":32,"shape":[1],"data_offsets":[0,4]}})", 4, "a string is expected"},
      {R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4, "non-negative integer"},
      {R"({"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})", 4, "non-negative integer"},
      {R"({"a":{"dtype":"F32","shape":[01],"data_offsets":[0,4]}})", 4, "non-negative integer"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4, "takes 8 bytes"},
      {R"({"a":{"dtype":"F32","shape":[],"data_offsets":[0,8]}})", 8, "takes 4 bytes"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4, "[4, 0]"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4, "two offsets"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,8]}})", 4, "closing bracket"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,9999999999999999999]}})", 4, "18 digits"},
      {R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})", 0, "18 digits"},
      {R"({"a":{"dtype":"F32","shape":[999999999999999999,99],"data_offsets":[0,0]}})", 0, "more than 2^62"},
      {R"({"a":{"dtype":"F32","shape":[0,999999999999999999,999999999999999999],"data_offsets":[0,4]}})", 4, "takes 0"},
      {R"({"a":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]}})", 1, "more than 8 dimensions"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"crc":3}})", 1, "a key other than"},
      {R"({"a":{"dtype":"U8","shape":[1],"shape":[1],"data_offsets":[0,1]}})", 1, "occurs twice in one entry"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
       2, "tensor a occurs twice"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
       3, "tensor b begins at offset 1 inside tensor a"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[3,5]}})",
       5, "tensor b begins at offset 3 but the data before it ends at 2"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})", 3, "tensor a begins at offset 1"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 1, "its header says"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 3, "bytes follow the last tensor"},
      {R"({"__metadata__":{"a":1}})", 0, "a string is expected"},
      {R"({"__metadata__":{},"__metadata__":{}})", 0, "occurs twice"},
      {"{\"\\x\":{}}", 0, "unknown escape"},
      {"{\"\\ud800\":{}}", 0, "unpaired surrogate"},
      {"{\"\\udc00\":{}}", 0, "unpaired surrogate"},
      {"{\"\\u12g4\":{}}", 0, "hexadecimal"},
      {"{\"\xff\":{}}", 0, "not UTF-8"},
      {"{\"\xc0\xaf\":{}}", 0, "not UTF-8"},
      {"{\"\xed\xa0\x80\":{}}", 0, "not UTF-8"},
      {"{\"a\nb\":{}}", 0, "control character"},
      {"{\"a", 0, "has no end"},
  };
  for (const Mistake& mistake : mistakes) {
    EXPECT_THAT(problem(mistake.header, mistake.data_bytes), HasSubstr(mistake.mentions)) << mistake.header;
    EXPECT_THAT(problem(mistake.header, mistake.data_bytes), HasSubstr("x.safetensors")) << mistake.header;
  }
}

TEST(SafetensorsHeader, TheLengthFieldIsBelievedOnlyWhenItFits) {
  std::vector<uint8_t> bytes = file_of("{}", 0);
  bytes[0] = 3;
  EXPECT_THAT(to_string(read_safetensors_header(bytes, "x").error()), HasSubstr("its header alone needs 11"));
  bytes[4] = 1;  // 4 GiB
  EXPECT_THAT(to_string(read_safetensors_header(bytes, "x").error()), HasSubstr("4294967299"));
  bytes[7] = 0xff;  // would be negative as a signed number
  EXPECT_FALSE(read_safetensors_header(bytes, "x").ok());
}

// A header that is cut anywhere, and a file that is cut anywhere, is an error, never a shorter tensor.
TEST(SafetensorsHeader, NoPrefixOfAFileIsAFile) {
  const std::vector<TensorSpec> specs = {{"a", DType::f32, {4, 8}}, {"b", DType::i8, {64}}};
  const std::string header = write_safetensors_header(specs);
  std::vector<uint8_t> bytes(header.begin(), header.end());
  bytes.resize(header.size() + 192);
  ASSERT_TRUE(read_safetensors_header(bytes, "x").ok());
  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_FALSE(read_safetensors_header({bytes.data(), length}, "x").ok()) << length;
  }
}

}  // namespace
}  // namespace fathom
