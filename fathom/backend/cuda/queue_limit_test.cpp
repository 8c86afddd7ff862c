#include "fathom/backend/cuda/queue_limit.h"

#include <gtest/gtest.h>

namespace fathom::cuda {
namespace {

TEST(QueueLimitTest, IsOneUnlessASecondIsAskedFor) {
  EXPECT_EQ(*queue_limit(nullptr), 1);
  EXPECT_EQ(*queue_limit("1"), 1);
  EXPECT_EQ(*queue_limit("2"), 2);
  for (const char* wrong : {"", "0", "3", "02", "two"}) {
    const auto limit = queue_limit(wrong);
    ASSERT_FALSE(limit.ok()) << wrong;
    EXPECT_EQ(limit.error().code, ErrorCode::usage);
    EXPECT_NE(to_string(limit.error()).find("FATHOM_CUDA_QUEUES"), std::string::npos);
  }
}

}  // namespace
}  // namespace fathom::cuda
