#include "fathom/backend/peer_access.h"

#include <gtest/gtest.h>

namespace fathom {
namespace {

PeerAccess machine(std::vector<std::vector<int>> reaches) {
  PeerAccess access{true, "", {}, std::move(reaches)};
  access.devices.assign(access.reaches.size(), "NVIDIA H200");
  return access;
}

TEST(PeerAccess, SaysWhyThereIsNothingToReach) {
  EXPECT_EQ(to_string(PeerAccess{}), "no NVIDIA device: its driver (libcuda.so.1) is not installed");
  EXPECT_EQ(to_string(machine({})), "CUDA shows no NVIDIA device");
  EXPECT_EQ(to_string(machine({{}})), "one GPU: there is no other to read from");
  EXPECT_EQ(to_string(PeerAccess{true, "CUDA error 999", {}, {}}), "unknown: CUDA error 999; look at nvidia-smi");
}

TEST(PeerAccess, NamesThePairsThatDoNotReachEachOther) {
  EXPECT_EQ(to_string(machine({{1, 2}, {0, 2}, {0, 1}})), "each of 3 GPUs reads the memory of every other");
  EXPECT_EQ(to_string(machine({{1}, {0}, {}})),
            "not everywhere: GPU 0 reads only 1; GPU 1 reads only 0; GPU 2 reads none");
  EXPECT_EQ(to_string(machine({{}, {}})), "none: no GPU of 2 reads the memory of another");
}

// Whatever the machine has: the answer is complete and names only devices that exist.
TEST(PeerAccess, AnswersOnEveryMachine) {
  const PeerAccess access = read_peer_access();
  EXPECT_FALSE(to_string(access).empty());
  if (!access.problem.empty()) GTEST_SKIP() << access.problem;
  ASSERT_EQ(access.reaches.size(), access.devices.size());
  for (size_t from = 0; from < access.reaches.size(); ++from) {
    for (const int to : access.reaches[from]) {
      EXPECT_LT(size_t(to), access.devices.size());
      EXPECT_NE(size_t(to), from);
    }
  }
}

}  // namespace
}  // namespace fathom
