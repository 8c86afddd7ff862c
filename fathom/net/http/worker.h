// fathom/net/http/worker.h
// One io thread and its connections. Only this thread touches them, but for wake().
#pragma once
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "fathom/net/http/server_shared.h"

namespace fathom::net {

class Worker : public std::enable_shared_from_this<Worker> {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Worker(std::shared_ptr<ServerShared> shared);

  void start();       // begins its thread
  void close_idle();  // any thread: connections without a request
  void stop();        // any thread but its own: cuts all connections and joins the thread

  /// Takes a new connection over. Any thread.
  void adopt(boost::asio::ip::tcp::socket socket);

  /// Any thread: `connection` has something to send. Many wakes between two turns of the loop are one.
  void wake(std::shared_ptr<HttpConnection> connection);

  /// The time as of the last tick: no system call a request. Late by a tick at most.
  Clock::time_point now() const { return now_; }

  void add(HttpConnection& connection);
  void remove(HttpConnection& connection);

  boost::asio::io_context io{1};
  std::shared_ptr<ServerShared> shared;

 private:
  void tick();
  void take_woken();
  void give_memory_back();

  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
  boost::asio::steady_timer timer_;
  std::chrono::milliseconds tick_;
  Clock::time_point now_ = Clock::now();
  std::vector<HttpConnection*> connections_;  // each knows its place
  size_t most_ = 0;                           // of them, since memory was given back
  bool ends_ = false;                         // no tick may follow
  std::thread thread_;

  std::mutex mutex_;  // of what follows
  std::vector<std::shared_ptr<HttpConnection>> woken_;
  bool stopped_ = false;
};

}  // namespace fathom::net
