// HttpConnection: what comes in, and the end. What goes out: connection_output.cpp.
#include "fathom/net/http/connection.h"

#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cstring>

namespace fathom::net {

namespace asio = boost::asio;

namespace {

constexpr size_t kSmallBuffer = 2 * 1024;    // of a connection at rest: most requests fit
constexpr size_t kLargeBuffer = 64 * 1024;   // while a body comes
constexpr int64_t kDroppedBody = 64 * 1024;  // a refused request's body is read to its end if it is no longer
constexpr int64_t kSmallBody = 64 * 1024;    // passes however large all bodies together are
constexpr int64_t kUnsent = 128 * 1024;      // bytes that wait in the system's buffer of a connection
constexpr std::chrono::milliseconds kLinger(2000);
constexpr auto kQuietly = asio::as_tuple(asio::use_awaitable);

void set_option(int socket, int level, int name, int64_t value) {
  const int number = int(std::clamp<int64_t>(value, 1, 1 << 30));
  setsockopt(socket, level, name, &number, sizeof number);  // a socket without it still works
}

/// Small answers at once, and a host that vanished is noticed: probes while all is silent, a deadline for what is sent.
void prepare(int socket, const HttpServerOptions& options) {
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, options.keepalive.count() / 1000);
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, options.keepalive.count() / 3000);
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, 3);
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, options.write_deadline.count());
  // What a reader that does not keep up has not been sent waits with us, where it is counted, not in megabytes of the
  // system's buffer.
  set_option(socket, IPPROTO_TCP, TCP_NOTSENT_LOWAT, kUnsent);
}

}  // namespace

HttpConnection::HttpConnection(std::shared_ptr<Worker> worker, asio::ip::tcp::socket socket)
    : worker_(std::move(worker)),
      shared_(*worker_->shared),
      socket_(std::move(socket)),
      reader_({.header_bytes = shared_.options.header_bytes, .body_bytes = shared_.options.body_bytes}) {}

void HttpConnection::open(std::shared_ptr<Worker> worker, asio::ip::tcp::socket socket) {
  const auto self = std::make_shared<HttpConnection>(std::move(worker), std::move(socket));
  self->worker_->add(*self);
  boost::system::error_code error;
  self->socket_.non_blocking(true, error);
  const auto endpoint = self->socket_.remote_endpoint(error);
  if (error) return self->close();  // it was reset before we looked
  const auto address = endpoint.address();
  self->peer_ = address.is_v6() && address.to_v6().is_v4_mapped()
                    ? asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6()).to_string()
                    : address.to_string();
  self->peer_port_ = endpoint.port();
  prepare(self->socket_.native_handle(), self->shared_.options);
  {
    const std::lock_guard lock(self->shared_.mutex);
    self->tls_context_ = self->shared_.tls;
  }
  if (self->tls_context_) self->tls_.emplace(self->socket_, *self->tls_context_);
  asio::co_spawn(
      self->worker_->io, [self] { return self->pump(); },
      [self](std::exception_ptr failure) {  // of memory: this connection ends, the others go on
        if (failure) self->cut(Cut::ours);
      });
}

// ---- input

asio::awaitable<void> HttpConnection::pump() {
  if (tls_) {
    set_deadline(Deadline::handshake);
    const auto [error] = co_await tls_->async_handshake(asio::ssl::stream_base::server, kQuietly);
    if (closed_) co_return;  // its deadline, or the server stopped
    if (error) {
      ++shared_.tls_handshakes_failed;
      close();
      co_return;
    }
  }
  set_deadline(Deadline::header);
  while (!closed_) {
    process();
    if (closed_) co_return;
    if (!make_room()) {  // more requests in advance than we keep: they wait in the system's buffer
      if (!room_) room_.emplace(worker_->io);
      room_->expires_at(Clock::time_point::max());
      co_await room_->async_wait(kQuietly);
      continue;
    }
    const asio::mutable_buffer space(in_.get() + in_end_, in_capacity_ - in_end_);
    const auto [error, bytes] =
        tls_ ? co_await tls_->async_read_some(space, kQuietly) : co_await socket_.async_read_some(space, kQuietly);
    if (closed_) co_return;
    if (error) {
      on_read_end();
      co_return;
    }
    if (!lingering_) in_end_ += bytes;
  }
}

/// Room for the next read. False: the buffer is full of requests that wait for the running one.
bool HttpConnection::make_room() {
  const bool in_body = reader_.state() == RequestReader::State::body;
  const size_t held = in_end_ - in_begin_;
  const size_t wanted = in_body || lingering_ ? kLargeBuffer : kSmallBuffer;
  // Beyond the longest header, so that the reader sees that it is too long.
  const size_t most = std::max(kLargeBuffer, size_t(shared_.options.header_bytes) + kSmallBuffer);
  size_t capacity = in_capacity_;
  if (held == 0) {
    capacity = wanted;
  } else if (held == in_capacity_) {
    capacity = std::min(most, in_capacity_ * 4);
    if (capacity == held) return false;
  }
  if (capacity != in_capacity_) {
    std::unique_ptr<char[]> next(new char[capacity]);
    if (held > 0) std::memcpy(next.get(), in_.get() + in_begin_, held);
    in_ = std::move(next);
    in_capacity_ = capacity;
  } else if (held > 0 && in_begin_ > 0) {
    std::memmove(in_.get(), in_.get() + in_begin_, held);
  }
  in_begin_ = 0;
  in_end_ = held;
  return true;
}

void HttpConnection::on_read_end() {
  read_ended_ = true;
  if (lingering_) return close();
  if (!running_) return close();
  bool answered = false;
  {
    const std::lock_guard lock(mutex_);
    answered = phase_ == Phase::ended;
  }
  if (!answered) return cut(Cut::client);
  // Its answer is on its way: it gets the rest.
}

/// Does with the input what can be done now, and lets a pump go on that waited for room.
void HttpConnection::process() {
  take_requests();
  if (room_ && in_begin_ > 0) room_->cancel();
}

void HttpConnection::take_requests() {
  using State = RequestReader::State;
  while (!closed_ && !running_ && !lingering_) {
    const size_t taken = reader_.feed({in_.get() + in_begin_, in_end_ - in_begin_});
    in_begin_ += taken;
    if (header_seen_ && !refusal_ && reader_.state() != State::failed && !count_body()) {
      HttpAnswer answer = error_answer(shared_, 503, "too many large requests at once; try again later");
      answer.fields.add("Retry-After", "5");
      return refuse(std::move(answer), false);
    }
    switch (reader_.state()) {
      case State::nothing:
        if (read_ended_) return close();
        return;
      case State::header:
        if (deadline_kind_ == Deadline::idle) set_deadline(Deadline::header);
        if (read_ended_) return close();
        return;
      case State::body:
        if (!header_seen_) {
          on_header();
        } else {
          set_deadline(Deadline::body);
          if (taken == 0 || in_begin_ == in_end_) {
            if (read_ended_) return close();
            return;
          }
        }
        break;
      case State::done:
        if (!header_seen_) on_header();
        if (running_ || closed_) break;
        dispatch();
        break;
      case State::failed: return refuse(error_answer(shared_, reader_.status(), reader_.message()), false);
    }
  }
}

/// The header is whole: may its request go on?
void HttpConnection::on_header() {
  header_seen_ = true;
  HttpRequest& request = reader_.request();
  request.peer = peer_;
  request.peer_port = peer_port_;
  request.secure = tls_.has_value();
  const bool has_body = reader_.state() == RequestReader::State::body;
  if (has_body) {
    body_begin_ = worker_->now();
    set_deadline(Deadline::body);
  }
  if (shared_.options.admit) refusal_ = shared_.options.admit(request);
  if (!has_body) return;
  const bool waits = reader_.expects_continue() && in_begin_ == in_end_;
  if (refusal_) {
    // A short body is read, so that the client may ask again on this connection.
    const auto length = reader_.content_length();
    if (waits || !length || *length > kDroppedBody) refuse(*std::exchange(refusal_, std::nullopt), false);
  } else if (waits) {
    {
      const std::lock_guard lock(mutex_);
      say("HTTP/1.1 100 Continue\r\n\r\n");
    }
    flush();
  }
}

/// False: all bodies together are too large and this one is not small. Small ones pass, so that others are served while
/// somebody sends as much as he can.
bool HttpConnection::count_body() {
  const auto bytes = int64_t(reader_.request().body.size());
  if (bytes == 0) return true;
  if (!body_share_) body_share_ = std::make_shared<BodyShare>(worker_->shared);
  const int64_t all = shared_.body_bytes += bytes - body_share_->bytes;
  body_share_->bytes = bytes;
  return bytes <= kSmallBody || all <= std::max(shared_.options.bodies_bytes, shared_.options.body_bytes);
}

void HttpConnection::dispatch() {
  const bool keep_alive = reader_.keep_alive() && !shared_.draining;
  if (refusal_) {
    refuse(*std::exchange(refusal_, std::nullopt), keep_alive);
    return;
  }
  begin_answer(keep_alive);
  handed_out_ = true;
  ++shared_.requests;
  ++shared_.requests_running;
  auto responder = std::make_shared<HttpResponder>(shared_from_this(), request_);
  HttpRequest request = reader_.take();
  request.body_share = std::move(body_share_);
  header_seen_ = false;
  HttpConnection* const outer = std::exchange(in_handler_, this);
  try {
    shared_.handler(std::move(request), std::move(responder));
  } catch (const std::exception&) {  // foreign code, no memory: the responder is dropped, the client gets 500
  }
  in_handler_ = outer;
  flush();
}

/// Prepares for the answer to what the reader holds.
void HttpConnection::begin_answer(bool keep_alive) {
  running_ = true;
  set_deadline(Deadline::none);
  const std::lock_guard lock(mutex_);
  ++request_;
  phase_ = Phase::waiting;
  keep_alive_ = keep_alive;
  head_only_ = reader_.request().method == "HEAD";
  minor_version_ = reader_.request().minor_version;
  gone_callback_ = nullptr;
}

/// Answers by ourselves. Without keep_alive the connection closes behind it, also when a body is on its way.
void HttpConnection::refuse(HttpAnswer answer, bool keep_alive) {
  ++shared_.requests_refused;
  begin_answer(keep_alive);
  HttpRequest& request = reader_.request();
  request.peer = peer_;
  request.peer_port = peer_port_;
  request.secure = tls_.has_value();
  if (shared_.options.refused) shared_.options.refused(request, answer.status);
  request.drop_body();
  body_share_.reset();
  if (keep_alive) {
    reader_.take();
    header_seen_ = false;
  }
  HttpConnection* const outer = std::exchange(in_handler_, this);
  respond(request_, answer.status, std::move(answer.fields), std::move(answer.body));
  in_handler_ = outer;
  flush();
}

// ---- the end

/// All is sent. The client may still be sending: were the socket closed now, the system would answer those bytes with
/// a reset that can overtake our answer. So we end our side, and read until it ends its own, or two seconds.
void HttpConnection::begin_close() {
  if (read_ended_) return close();
  lingering_ = true;
  set_deadline(Deadline::linger);
  in_begin_ = in_end_;
  if (room_) room_->cancel();
  if (tls_) {
    tls_->async_shutdown([self = shared_from_this()](const boost::system::error_code&) { self->close(); });
  } else {
    boost::system::error_code ignored;
    socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  }
}

void HttpConnection::close() { cut(Cut::ours); }

void HttpConnection::cut(Cut reason) {
  if (closed_) return;
  closed_ = true;
  const auto self = shared_from_this();  // the worker's list holds no share
  std::function<void()> callback;
  bool unanswered = false;
  {
    const std::lock_guard lock(mutex_);
    if (too_slow_) reason = Cut::slow;
    unanswered = phase_ != Phase::none;
    gone_ = true;
    pending_.clear();
    queued_ = 0;
    callback.swap(gone_callback_);
  }
  if (std::exchange(handed_out_, false)) --shared_.requests_running;
  if (unanswered && (reason == Cut::client || reason == Cut::slow)) ++shared_.clients_gone;
  if (unanswered && reason == Cut::slow) ++shared_.slow_readers_cut;
  if (unanswered) {
    // A half answer must not look whole: where its end is the connection's, the client sees a reset.
    const linger reset{.l_onoff = 1, .l_linger = 0};
    setsockopt(socket_.native_handle(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  }
  boost::system::error_code ignored;
  socket_.close(ignored);
  if (room_) room_->cancel();
  worker_->remove(*this);
  if (callback && unanswered) callback();
}

void HttpConnection::close_if_idle() {
  if (!running_ && !writing_ && reader_.state() == RequestReader::State::nothing && in_begin_ == in_end_) close();
}

void HttpConnection::set_deadline(Deadline kind) {
  const HttpServerOptions& options = shared_.options;
  deadline_kind_ = kind;
  switch (kind) {
    case Deadline::none: deadline_ = Clock::time_point::max(); break;
    case Deadline::handshake:
    case Deadline::header: deadline_ = worker_->now() + options.header_deadline; break;
    case Deadline::idle: deadline_ = worker_->now() + options.idle_deadline; break;
    case Deadline::linger: deadline_ = worker_->now() + kLinger; break;
    case Deadline::body: {
      const auto earned =
          int64_t(reader_.request().body.size()) * 1000 / std::max<int64_t>(1, options.body_bytes_per_second);
      deadline_ = body_begin_ + options.body_deadline + std::chrono::milliseconds(earned);
      break;
    }
  }
}

void HttpConnection::on_tick(Clock::time_point now) {
  if (!flying_.empty() && now > write_deadline_) return cut(Cut::slow);
  if (now <= deadline_) return;
  switch (deadline_kind_) {
    case Deadline::none:
    case Deadline::idle:
    case Deadline::linger: return close();
    case Deadline::handshake: ++shared_.tls_handshakes_failed; return close();
    case Deadline::header:
    case Deadline::body:
      // A connection that never said a word gets none.
      if (reader_.state() == RequestReader::State::nothing) return close();
      ++shared_.deadlines_missed;
      return refuse(
          error_answer(shared_, 408,
                       deadline_kind_ == Deadline::header ? "the header took too long" : "the body took too long"),
          false);
  }
}

}  // namespace fathom::net
