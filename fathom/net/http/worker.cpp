#include "fathom/net/http/worker.h"

#include <algorithm>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>

#include "fathom/base/system_memory.h"
#include "fathom/net/http/connection.h"

namespace fathom::net {

namespace asio = boost::asio;

namespace {

constexpr size_t kMany = 1000;  // connections whose memory is worth a look

/// Often enough for the shortest deadline to be late by an eighth, and at most twice a second.
std::chrono::milliseconds tick_of(const HttpServerOptions& options) {
  const auto shortest =
      std::min({options.idle_deadline, options.header_deadline, options.body_deadline, options.write_deadline});
  return std::clamp(shortest / 8, std::chrono::milliseconds(5), std::chrono::milliseconds(500));
}

}  // namespace

Worker::Worker(std::shared_ptr<ServerShared> shared_by_all)
    : shared(std::move(shared_by_all)), work_(io.get_executor()), timer_(io), tick_(tick_of(shared->options)) {}

void Worker::start() {
  tick();
  thread_ = std::thread([this] { io.run(); });
}

void Worker::tick() {
  now_ = Clock::now();
  give_memory_back();  // of what closed before: what closes now is freed when this function has returned
  // Backwards: a connection that closes takes the last one's place.
  for (size_t i = connections_.size(); i > 0; --i) {
    if (i <= connections_.size()) connections_[i - 1]->on_tick(now_);
  }
  timer_.expires_after(tick_);
  // One that was due when stop() cancelled it is called all the same, without an error.
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error && !ends_) tick();
  });
}

/// After thousands of connections have closed: what they took lies in small pieces, which the allocator would keep.
void Worker::give_memory_back() {
  most_ = std::max(most_, connections_.size());
  if (most_ < kMany || connections_.size() > most_ / 2) return;
  most_ = connections_.size();
  return_free_memory();
}

void Worker::adopt(asio::ip::tcp::socket socket) {
  asio::dispatch(io, [this, socket = std::move(socket)]() mutable {
    HttpConnection::open(shared_from_this(), std::move(socket));
  });
}

void Worker::add(HttpConnection& connection) {
  connection.place = connections_.size();
  connections_.push_back(&connection);
}

void Worker::remove(HttpConnection& connection) {
  connections_.back()->place = connection.place;
  connections_[connection.place] = connections_.back();
  connections_.pop_back();
  {
    const std::lock_guard lock(shared->mutex);
    --shared->connections;
  }
  shared->connection_closed.notify_all();
}

void Worker::wake(std::shared_ptr<HttpConnection> connection) {
  {
    const std::lock_guard lock(mutex_);
    if (stopped_) return;
    woken_.push_back(std::move(connection));
    if (woken_.size() > 1) return;
  }
  asio::post(io, [this] { take_woken(); });
}

void Worker::take_woken() {
  std::vector<std::shared_ptr<HttpConnection>> woken;
  {
    const std::lock_guard lock(mutex_);
    woken.swap(woken_);
  }
  for (const auto& connection : woken) connection->on_wake();
}

void Worker::close_idle() {
  asio::post(io, [this] {
    for (size_t i = connections_.size(); i > 0; --i) {
      if (i <= connections_.size()) connections_[i - 1]->close_if_idle();
    }
  });
}

void Worker::stop() {
  if (!thread_.joinable()) return;
  asio::post(io, [this] {
    ends_ = true;
    timer_.cancel();
    // A connection that is opened by what is already queued is cut as well.
    std::vector<std::shared_ptr<HttpConnection>> none;
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
      none.swap(woken_);
    }
    while (!connections_.empty()) connections_.back()->cut(HttpConnection::Cut::stopped);
    work_.reset();
  });
  thread_.join();
}

}  // namespace fathom::net
