#include "fathom/engine/step_plan.h"

#include <gtest/gtest.h>

namespace fathom {
namespace {

TEST(StepPlan, IsPrintedOnOneLine) {
  StepPlan plan;
  EXPECT_EQ(to_string(plan), "idle");
  plan.rows = {{7, 130, 6, 6, 5, 6}, {9, 0, 2048, 140, 0, 1}, {10, 0, 4, 4, 0, 1}};
  plan.copies = {{3, 8}};
  EXPECT_EQ(to_string(plan), "7: 130+6 (5 drafts), 9: 0+2048 (140 decoder), 10: 0+4, copy 3 to 8");
}

TEST(StepPlan, EqualPlansAreEqual) {
  StepPlan a, b;
  a.rows = b.rows = {{1, 0, 4, 4, 0, 1}};
  EXPECT_EQ(a, b);
  b.rows[0].logit_rows = 0;
  EXPECT_NE(a, b);
}

}  // namespace
}  // namespace fathom
