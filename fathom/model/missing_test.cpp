#include "fathom/model/missing.h"

#include <gtest/gtest.h>

namespace fathom {
namespace {

TEST(MissingOperations, TheProcessorsBackendsLackNone) {
  for (const auto& name : present_backends()) EXPECT_TRUE(missing_operations(*open_backend(name)).ok()) << name;
}

TEST(MissingOperations, AllAreNamedInOneMessage) {
  Backend backend = reference_backend();
  backend.ops.select_rows = nullptr;
  backend.ops.accept = nullptr;
  const auto found = missing_operations(backend);
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, ErrorCode::unsupported);
  EXPECT_NE(found.error().message.find("select_rows, accept"), std::string::npos) << found.error().message;
}

}  // namespace
}  // namespace fathom
