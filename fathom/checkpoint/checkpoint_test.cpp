#include "fathom/checkpoint/checkpoint.h"

#include <gtest/gtest.h>

namespace fathom {
namespace {

// spec/checkpoint.md and models/mini/README.md: 1545 tensors, 19,190,106 bytes in one shard.
TEST(EmbeddedModel, OpensWithTheCountsOfItsCard) {
  const auto checkpoint = Checkpoint::open(embedded_model());
  ASSERT_TRUE(checkpoint.ok()) << to_string(checkpoint.error());
  EXPECT_EQ(checkpoint->tensors().size(), 1545u);
  EXPECT_EQ(checkpoint->tensor_bytes(), 19'190'106);
  EXPECT_TRUE(checkpoint->warnings().empty());
  EXPECT_EQ(checkpoint->config().find("model_type")->text, "deepseek_v41");
}

}  // namespace
}  // namespace fathom
