#include "fathom/base/check_note.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "fathom/base/check.h"

namespace fathom {
namespace {

std::string number(const void* about) { return "n=" + std::to_string(*static_cast<const int*>(about)); }

TEST(CheckNote, NotesStandWhileTheyLiveAndNest) {
  int one = 1, two = 2;
  EXPECT_EQ(check_notes(), "");
  {
    const CheckNote outer(&number, &one);
    EXPECT_EQ(check_notes(), "n=1");
    const CheckNote inner(&number, &two);
    two = 3;  // told when asked
    EXPECT_EQ(check_notes(), "n=1 n=3");
  }
  EXPECT_EQ(check_notes(), "");
}

TEST(CheckNote, AnExceptionLeavesTheNotesThatItWentThrough) {
  int one = 1, two = 2, three = 3;
  const CheckNote outside(&number, &three);
  try {
    const CheckNote outer(&number, &one);
    const CheckNote inner(&number, &two);
    throw std::runtime_error("x");
  } catch (const std::runtime_error&) {
  }
  EXPECT_EQ(take_unwound_notes(), "n=1 n=2");
  EXPECT_EQ(take_unwound_notes(), "");
  EXPECT_EQ(check_notes(), "n=3");
}

TEST(CheckNoteDeathTest, ACheckThatFailsSaysThem) {
  int step = 100;
  const CheckNote note(&number, &step);
  EXPECT_DEATH(check(false, "a row lies in the cache"), "a row lies in the cache.*while n=100");
}

}  // namespace
}  // namespace fathom
