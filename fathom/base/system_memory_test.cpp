#include "fathom/base/system_memory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

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

TEST_F(SystemMemory, ThisMachineHasSome) { EXPECT_GT(available_memory_bytes(), 1 << 20); }

}  // namespace
}  // namespace fathom
