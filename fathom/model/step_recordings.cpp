#include "fathom/model/step_recordings.h"

#include <algorithm>

namespace fathom {

void StepRecordings::settle(Queue& queue) {
  if (reading_ == Reading::queue) queue.wait();
  if (reading_ == Reading::sent) recorder_.await_sent(tables_->given().data());
  reading_ = Reading::nothing;
}

bool StepRecordings::is_ready(const StepShape& shape, int64_t moves) const {
  return moves == moves_ && std::any_of(steps_.begin(), steps_.end(),
                                        [&](const Recorded& one) { return one.shape == shape && is_ready(one); });
}

StepRecordings::Recorded& StepRecordings::at(const StepShape& shape, int64_t moves) {
  if (moves != moves_) steps_.clear();
  moves_ = moves;
  const auto known =
      std::find_if(steps_.begin(), steps_.end(), [&](const Recorded& one) { return one.shape == shape; });
  if (known != steps_.end()) return *known;
  if (steps_.size() == kMost) steps_.erase(steps_.begin());
  return steps_.emplace_back(Recorded{shape, 0, nullptr});
}

void StepRecordings::launch(Queue& queue, Recorded& step) {
  const auto tables = tables_->given();
  recorder_.send_tables(queue, tables.data(), int64_t(tables.size()));
  step.recording->run();
  reading_ = Reading::sent;
}

}  // namespace fathom
