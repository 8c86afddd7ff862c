#include "fathom/base/processor_name.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace fathom {
namespace {

TEST(ProcessorName, IsTheKernelsModelName) {
  const std::string root = testing::TempDir() + "processor_name/";
  std::filesystem::create_directories(root + "proc");
  std::ofstream(root + "proc/cpuinfo") << "processor\t: 0\nmodel name\t: Some 64-Core Processor\nflags\t\t: fpu\n";
  EXPECT_EQ(processor_name(root), "Some 64-Core Processor");
  EXPECT_EQ(processor_name(root + "nowhere/"), "");
}

}  // namespace
}  // namespace fathom
