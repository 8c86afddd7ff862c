// fathom/cli/serve_signals.h
// Signals of a server, taken by a thread of their own, so that the main thread may wait for them without looking. While
// the model loads SIGINT and SIGTERM end the program with 130. Then the first one asks for a drain and the second one
// ends at once, with 130. SIGHUP asks for a reload. An engine that has ended asks too.
#pragma once
#include <condition_variable>
#include <mutex>
#include <thread>

namespace fathom::cli {

class ServeSignals {
 public:
  enum class Asked { reload, stop, engine_ended };

  /// Before any other thread is started: they must inherit that these signals are blocked.
  ServeSignals();
  ~ServeSignals();
  ServeSignals(const ServeSignals&) = delete;
  ServeSignals& operator=(const ServeSignals&) = delete;

  /// The model is there: from now on a first signal asks.
  void loaded();
  /// Any thread: wait() says so from now on, unless a stop was asked before.
  void engine_ended();
  /// Sleeps until something is asked.
  Asked wait();

 private:
  void run();
  std::mutex mutex_;
  std::condition_variable changed_;
  bool loaded_ = false, stop_ = false, reload_ = false, engine_ended_ = false, ended_ = false;
  std::thread thread_;
};

}  // namespace fathom::cli
