#include "fathom/tensor/dtype.h"

#include <gtest/gtest.h>

#include "fathom/tensor/buffer.h"

namespace fathom {
namespace {

TEST(DType, NamesAreThoseOfSafetensorsAndComeBack) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f8_e4m3, DType::f8_e8m0, DType::f4_e2m1, DType::i8,
                            DType::u8, DType::i32, DType::i64, DType::boolean, DType::f16}) {
    EXPECT_EQ(dtype_of(name_of(dtype)), dtype);
  }
  EXPECT_STREQ(name_of(DType::f8_e4m3), "F8_E4M3");
  EXPECT_EQ(dtype_of("bf16"), std::nullopt);
  EXPECT_EQ(dtype_of(""), std::nullopt);
}

TEST(DType, AnOddNibbleTakesAWholeByte) {
  EXPECT_EQ(bytes_of(DType::f4_e2m1, 0), 0);
  EXPECT_EQ(bytes_of(DType::f4_e2m1, 1), 1);
  EXPECT_EQ(bytes_of(DType::f4_e2m1, 2), 1);
  EXPECT_EQ(bytes_of(DType::f4_e2m1, 3), 2);
  EXPECT_EQ(bytes_of(DType::bf16, 3), 6);
  // The Engram table of layer 1: beyond 32 bits, so counts are 64 bits wide.
  EXPECT_EQ(bytes_of(DType::f8_e4m3, int64_t(384006168) * 256), 98305579008);
}

TEST(Buffer, IsFreedOnceByTheFunctionThatCameWithIt) {
  static int frees = 0;
  static int64_t freed_bytes = 0;
  uint8_t memory[64];
  const auto free = [](void*, int64_t bytes) {
    ++frees;
    freed_bytes += bytes;
  };
  {
    Buffer first(memory, 64, free);
    Buffer second = std::move(first);
    EXPECT_EQ(second.data(), memory);
    EXPECT_EQ(second.bytes(), 64);
    Buffer third;
    EXPECT_EQ(third.data(), nullptr);
    third = std::move(second);
    EXPECT_EQ(frees, 0);
  }
  EXPECT_EQ(frees, 1);
  EXPECT_EQ(freed_bytes, 64);
}

}  // namespace
}  // namespace fathom
