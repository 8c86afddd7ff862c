#include "fathom/server/line_log.h"

#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace fathom {

struct LineLog::State {
  const std::function<void(const std::string&)> write;
  const int64_t most_lines;
  mutable std::mutex mutex;
  std::condition_variable wakes;
  std::vector<std::string> lines;
  int64_t dropped = 0, dropped_since = 0;
  bool stopping = false;
  std::thread thread;

  State(std::function<void(const std::string&)> w, int64_t most) : write(std::move(w)), most_lines(most) {}

  void run() {
    std::vector<std::string> taken;
    while (true) {
      int64_t missing = 0;
      {
        std::unique_lock lock(mutex);
        wakes.wait(lock, [&] { return stopping || !lines.empty(); });
        if (lines.empty()) return;
        taken.swap(lines);
        missing = std::exchange(dropped_since, 0);
      }
      for (std::string& line : taken) write(line);
      taken.clear();
      if (missing > 0) write("level=warn lines_dropped=" + std::to_string(missing) + "\n");
    }
  }
};

LineLog::LineLog(std::function<void(const std::string&)> write, int64_t most_lines)
    : state_(std::make_unique<State>(std::move(write), most_lines)) {
  if (state_->write) {
    state_->thread = std::thread([state = state_.get()] { state->run(); });
  }
}

LineLog::~LineLog() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopping = true;
    state_->wakes.notify_all();
  }
  if (state_->thread.joinable()) state_->thread.join();
}

void LineLog::add(std::string line) {
  if (!state_->write) return;
  const std::lock_guard lock(state_->mutex);
  if (int64_t(state_->lines.size()) >= state_->most_lines) {
    ++state_->dropped;
    ++state_->dropped_since;
    return;
  }
  state_->lines.push_back(std::move(line));
  state_->wakes.notify_one();
}

int64_t LineLog::dropped() const {
  const std::lock_guard lock(state_->mutex);
  return state_->dropped;
}

}  // namespace fathom
