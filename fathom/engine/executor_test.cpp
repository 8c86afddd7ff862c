// What a library throws in a step reaches whoever waits for the step, on either kind of executor: an engine ends with
// its message, a process never (case obs-03).
#include <gtest/gtest.h>

#include <stdexcept>

#include "fathom/base/check_note.h"
#include "fathom/engine/loop_under_test.h"

namespace fathom {
namespace {

class AStepThatThrows : public testing::TestWithParam<bool> {
 protected:
  AStepThatThrows() {
    Settings settings;
    settings.asynchronous = GetParam();
    ModelPort port = model_.port();
    port.forward = [forward = port.forward, this](const Batch& batch) {
      ++calls_;
      if (calls_ == throws_at_) throw std::runtime_error("the device is gone");
      return forward(batch);
    };
    loop_.emplace(options_of(settings), std::move(port), reference_operations(), *queue_);
  }

  std::unique_ptr<Queue> queue_ = std::move(*reference_backend().open_queue(1));
  FakeModel model_{Settings().shape};
  int calls_ = 0, throws_at_ = 1;
  std::optional<StepLoop> loop_;
};

TEST_P(AStepThatThrows, ThrowsWhereItIsAwaited) {
  ASSERT_TRUE(loop_->submit(greedy(1, 40, 100)).ok());
  std::string told;
  try {
    for (int steps = 0; steps < 100; ++steps) loop_->step();
  } catch (const std::runtime_error& thrown) {
    told = thrown.what();
  }
  EXPECT_EQ(told, "the device is gone");
}

TEST_P(AStepThatThrows, SaysInWhichPhaseWhoeverRanIt) {
  ASSERT_TRUE(loop_->submit(greedy(1, 40, 100)).ok());
  EXPECT_THROW(for (int steps = 0; steps < 100; ++steps) loop_->step(), std::runtime_error);
  EXPECT_EQ(take_unwound_notes().find("step=1 phase=4 (forward) prompt_pieces=1"), 0u);
}

TEST_P(AStepThatThrows, RunsNothingAfterItAndEnds) {
  throws_at_ = 3;
  ASSERT_TRUE(loop_->submit(greedy(1, 40, 100)).ok());
  ASSERT_TRUE(loop_->submit(greedy(2, 40, 100)).ok());
  EXPECT_THROW(for (int steps = 0; steps < 100; ++steps) loop_->step(), std::runtime_error);
  loop_.reset();  // with a step in flight behind the one that threw
  EXPECT_EQ(calls_, 3);
}

INSTANTIATE_TEST_SUITE_P(OnEitherExecutor, AStepThatThrows, testing::Bool(),
                         [](const auto& p) { return p.param ? "asynchronous" : "synchronous"; });

}  // namespace
}  // namespace fathom
