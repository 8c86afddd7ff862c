#include "fathom/net/http/worker.h"

#include <gtest/gtest.h>

#include <boost/asio/post.hpp>
#include <future>

namespace fathom::net {
namespace {

using namespace std::chrono_literals;

// Bug: a tick that was due when stop() cancelled its timer set the timer again, and stop() waited for ever. Both are
// queued here while the worker's thread is busy, the tick behind the stop.
TEST(WorkerTest, StopsThoughATickIsDue) {
  const auto shared = std::make_shared<ServerShared>();
  shared->options.idle_deadline = 40ms;  // a tick each 5 ms
  const auto worker = std::make_shared<Worker>(shared);
  worker->start();
  std::promise<void> busy, stopped;
  boost::asio::post(worker->io, [&busy] {
    busy.set_value();
    std::this_thread::sleep_for(100ms);
  });
  busy.get_future().wait();
  std::future<void> end = stopped.get_future();
  std::thread([worker, stopped = std::move(stopped)]() mutable {
    worker->stop();
    stopped.set_value();
  }).detach();
  EXPECT_EQ(end.wait_for(30s), std::future_status::ready);
}

}  // namespace
}  // namespace fathom::net
