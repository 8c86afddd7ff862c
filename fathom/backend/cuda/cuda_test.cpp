// The tests of every operation run over the device's table too (tables_under_test.h). This one says whether they did.
#include <gtest/gtest.h>

#include "fathom/backend/backend.h"
#include "fathom/backend/operation_list.h"

namespace fathom {
namespace {

TEST(CudaTest, TheDeviceIsHereSoThatTheTestsOfOperationsRanOnIt) {
  const auto backend = cuda_backend();
  if (!backend.ok()) GTEST_SKIP() << to_string(backend.error());
  for (const OperationEntry& entry : list_operations(backend->ops)) EXPECT_NE(entry.function, nullptr) << entry.name;
  EXPECT_FALSE(backend->memory.host_visible);
}

TEST(CudaTest, MemoryOfBothKindsIsZeroAlignedAndCopied) {
  const auto backend = cuda_backend();
  if (!backend.ok()) GTEST_SKIP() << to_string(backend.error());
  auto device = backend->memory.allocate(1000), shared = backend->memory.shared(1000);
  ASSERT_TRUE(device.ok() && shared.ok());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(device->data()) % 64, 0u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(shared->data()) % 64, 0u);
  std::vector<uint8_t> plain(1000, 7);
  backend->memory.copy(plain.data(), device->data(), 1000);
  EXPECT_EQ(plain, std::vector<uint8_t>(1000, 0));
  shared->data()[999] = 9;
  backend->memory.copy(device->data(), shared->data(), 1000);
  backend->memory.copy(plain.data(), device->data(), 1000);
  EXPECT_EQ(plain[999], 9);
  const auto too_much = backend->memory.allocate(int64_t(1) << 50);
  ASSERT_FALSE(too_much.ok());
  EXPECT_EQ(too_much.error().code, ErrorCode::out_of_memory);
}

}  // namespace
}  // namespace fathom
