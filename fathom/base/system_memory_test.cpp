#include "fathom/base/system_memory.h"

#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <memory>
#include <vector>

#include "fathom/base/test_size.h"

namespace fathom {
namespace {

class SystemMemory : public testing::Test {
 protected:
  void SetUp() override {
    root_ = testing::TempDir() + "system_memory/" + testing::UnitTest::GetInstance()->current_test_info()->name() + "/";
    std::filesystem::remove_all(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  std::string root_;
};

TEST_F(SystemMemory, IsWhatTheKernelCallsAvailable) {
  write("proc/meminfo", "MemTotal:       2000 kB\nMemFree:        100 kB\nMemAvailable:   1500 kB\n");
  EXPECT_EQ(available_memory_bytes(root_), 1500 * 1024);
}

TEST_F(SystemMemory, IsCutByTheGroupAndByThoseAboveIt) {
  write("proc/meminfo", "MemAvailable:   1500 kB\n");
  write("proc/self/cgroup", "0::/outer/inner\n");
  write("sys/fs/cgroup/outer/inner/memory.max", "900000\n");
  write("sys/fs/cgroup/outer/inner/memory.current", "100000\n");
  EXPECT_EQ(available_memory_bytes(root_), 800000);
  write("sys/fs/cgroup/outer/memory.max", "500000\n");
  write("sys/fs/cgroup/outer/memory.current", "200000\n");
  EXPECT_EQ(available_memory_bytes(root_), 300000);
  write("sys/fs/cgroup/outer/memory.current", "600000\n");
  EXPECT_EQ(available_memory_bytes(root_), 0);
}

TEST_F(SystemMemory, AGroupWithoutLimitLimitsNothing) {
  write("proc/meminfo", "MemAvailable:   1500 kB\n");
  write("proc/self/cgroup", "0::/\n");
  write("sys/fs/cgroup/memory.max", "max\n");
  write("sys/fs/cgroup/memory.current", "100\n");
  EXPECT_EQ(available_memory_bytes(root_), 1500 * 1024);
}

TEST_F(SystemMemory, GroupsOfTheFirstVersionAreReadToo) {
  write("proc/meminfo", "MemAvailable:   1500 kB\n");
  write("proc/self/cgroup", "10:cpu,cpuacct:/a\n9:memory:/a\n");
  write("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "70000\n");
  write("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "20000\n");
  EXPECT_EQ(available_memory_bytes(root_), 50000);
}

// 100 MB in pieces of 100 bytes, of which one in a thousand stays: without asking, the allocator keeps all of it.
TEST_F(SystemMemory, FreePagesGoBackToTheKernel) {
  if (is_set("FATHOM_BRIEF")) GTEST_SKIP() << "the allocators of sanitizers keep what is freed";
  const auto resident = [] {
    std::ifstream file("/proc/self/statm");
    int64_t all = 0, pages = 0;
    file >> all >> pages;
    return pages * 4096;
  };
  return_free_memory();
  const int64_t before = resident();
  std::vector<std::unique_ptr<std::array<char, 100>>> pieces(1'000'000);
  for (auto& piece : pieces) piece = std::make_unique<std::array<char, 100>>();
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (i % 1000 != 0) pieces[i].reset();
  }
  return_free_memory();
  EXPECT_LT(resident() - before, 30'000'000);
}

TEST_F(SystemMemory, ThisMachineHasSome) { EXPECT_GT(available_memory_bytes(), 1 << 20); }

}  // namespace
}  // namespace fathom
