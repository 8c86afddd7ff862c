#include "fathom/backend/backend.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace fathom {
namespace {

TEST(BackendTest, EveryPresentNameOpensAndFillsItsTable) {
  for (const std::string& name : present_backends()) {
    const auto backend = open_backend(name);
    ASSERT_TRUE(backend.ok()) << name;
    EXPECT_EQ(backend->name, name);
    EXPECT_FALSE(backend->detail.empty());
    // The table is a name and function pointers: no entry may be empty on the processor.
    const auto* entries = reinterpret_cast<void* const*>(&backend->ops);
    for (size_t i = 0; i < sizeof(Operations) / sizeof(void*); ++i) EXPECT_NE(entries[i], nullptr) << name << ' ' << i;
  }
  EXPECT_EQ(open_backend("")->name, present_backends().front());
}

TEST(BackendTest, AnUnknownNameIsAMistakeThatListsTheChoices) {
  const auto backend = open_backend("gpu");
  ASSERT_FALSE(backend.ok());
  EXPECT_EQ(backend.error().code, ErrorCode::usage);
  EXPECT_EQ(to_string(backend.error()), "unknown backend 'gpu' (--backend): choose cpu, cuda, ascend or reference");
}

TEST(BackendTest, ABackendThatIsNotHereSaysWhatToDo) {
  for (const char* name : {"cuda", "ascend"}) {
    const auto names = present_backends();
    if (std::count(names.begin(), names.end(), name)) continue;
    const auto backend = open_backend(name);
    ASSERT_FALSE(backend.ok());
    EXPECT_EQ(backend.error().code, ErrorCode::unsupported);
    EXPECT_FALSE(backend.error().remedy.empty());
  }
}

TEST(BackendTest, MemoryIsZeroedAlignedAndMayBeLargerThanWhatIsTouched) {
  const Backend backend = reference_backend();
  auto memory = backend.memory.allocate(int64_t(1) << 32);  // 4 GiB, of which one page is touched
  ASSERT_TRUE(memory.ok());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory->data()) % 64, 0u);
  EXPECT_EQ(memory->data()[(int64_t(1) << 32) - 1], 0);
  memory->data()[0] = 1;
  EXPECT_EQ(backend.memory.allocate(0)->bytes(), 0);
}

TEST(BackendTest, TooMuchMemoryIsAnErrorWithTheSize) {
  const auto memory = reference_backend().memory.allocate(int64_t(1) << 60);
  ASSERT_FALSE(memory.ok());
  EXPECT_EQ(memory.error().code, ErrorCode::out_of_memory);
  EXPECT_NE(memory.error().message.find("1152921504606846976 bytes"), std::string::npos);
}

TEST(BackendTest, AQueueHasTheThreadsThatWereAskedFor) {
  auto queue = reference_backend().open_queue(2);
  ASSERT_TRUE(queue.ok());
  EXPECT_EQ((*queue)->pool.threads(), 2);
}

}  // namespace
}  // namespace fathom
