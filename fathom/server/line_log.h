// fathom/server/line_log.h
// Lines for an operator, written by a thread of its own: a full pipe or a slow disk behind stderr must not hold up an
// answer. When more than `most_lines` wait, further ones are dropped and counted; the next line that gets through says
// how many.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace fathom {

class LineLog {
 public:
  /// `write` gets whole lines with their newline, on the log's thread. Empty: nothing is logged.
  explicit LineLog(std::function<void(const std::string&)> write, int64_t most_lines = 4096);
  ~LineLog();  // writes what waits
  LineLog(const LineLog&) = delete;
  LineLog& operator=(const LineLog&) = delete;

  /// Any thread; never blocks on the writing.
  void add(std::string line);
  int64_t dropped() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fathom
