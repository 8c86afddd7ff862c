// fathom/net/http/connection.h
// One connection: reads requests one after another, hands each to the handler, sends what its responder says.
//
// The pump, a coroutine, keeps one read pending from the first byte to the last, whatever the request is doing: so the
// end of the connection is noticed at once, and what comes early (pipelining) waits in the buffer. Everything else is
// plain functions of the io thread that look at the state and do what can be done: process() (what was read), flush()
// (what is to be sent). They are called when bytes came, when bytes went, and when another thread said something.
#pragma once
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "fathom/net/http/answer_head.h"
#include "fathom/net/http/request_reader.h"
#include "fathom/net/http/worker.h"

namespace fathom::net {

class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  using Clock = Worker::Clock;
  enum class Cut { client, slow, stopped, ours };  // who ended it before its time

  /// Begins on the worker's thread. It lives as long as its pump, a write or a responder.
  static void open(std::shared_ptr<Worker> worker, boost::asio::ip::tcp::socket socket);
  HttpConnection(std::shared_ptr<Worker> worker, boost::asio::ip::tcp::socket socket);

  // Any thread; `request` is the number that the responder was given. See HttpResponder.
  void respond(uint64_t request, int status, HttpFields fields, std::string body);
  void begin_stream(uint64_t request, int status, HttpFields fields);
  bool write(uint64_t request, std::string_view bytes);
  void end(uint64_t request);
  void abort(uint64_t request);
  void on_gone(uint64_t request, std::function<void()> callback);
  bool gone(uint64_t request) const;
  int64_t queued_bytes(uint64_t request) const;
  void dropped(uint64_t request);  // the last pointer to the responder is gone

  // The worker's thread.
  void on_wake();
  void on_tick(Clock::time_point now);
  void close_if_idle();
  void cut(Cut reason);  // at once; what was not sent is lost

  size_t place = 0;  // in the worker's list

 private:
  enum class Phase { none, waiting, streaming, ended };
  enum class Deadline { none, handshake, idle, header, body, linger };

  boost::asio::awaitable<void> pump();
  void process();
  void take_requests();
  void on_header();
  bool count_body();
  void dispatch();
  void refuse(HttpAnswer answer, bool keep_alive);
  void begin_answer(bool keep_alive);
  void cut_if_asked();
  void flush();
  void on_written(const boost::system::error_code& error, size_t bytes);
  void advance(size_t bytes);
  void finish_answer();
  void begin_close();
  void close();
  void on_read_end();
  bool make_room();
  void set_deadline(Deadline kind);

  void say(std::string bytes);  // with the lock held: queue
  void say_head(int status, const HttpFields& fields, Framing framing, int64_t content_length);
  void wake(std::unique_lock<std::mutex> lock);

  /// The connection whose handler runs on this thread: what it says is sent when the handler returns, without a wake.
  static inline thread_local HttpConnection* in_handler_ = nullptr;

  std::shared_ptr<Worker> worker_;
  ServerShared& shared_;
  boost::asio::ip::tcp::socket socket_;
  std::shared_ptr<boost::asio::ssl::context> tls_context_;
  std::optional<boost::asio::ssl::stream<boost::asio::ip::tcp::socket&>> tls_;
  std::string peer_;
  int peer_port_ = 0;

  // Input. The pump alone moves or replaces the buffer; process() only takes from its front.
  std::unique_ptr<char[]> in_;
  size_t in_capacity_ = 0, in_begin_ = 0, in_end_ = 0;
  RequestReader reader_;
  std::shared_ptr<BodyShare> body_share_;          // none: no byte of a body yet
  std::optional<HttpAnswer> refusal_;              // admit's, while a short body is read and dropped
  bool header_seen_ = false;                       // of the request that is being read
  std::optional<boost::asio::steady_timer> room_;  // the pump waits on it when the buffer is full

  // State of the io thread.
  bool running_ = false;     // a request is with the handler, or its answer not yet sent whole
  bool handed_out_ = false;  // of these: the handler has it
  bool writing_ = false;     // an asynchronous write is under way
  bool read_ended_ = false;  // the client sends no more
  bool lingering_ = false;   // all is said; what comes is dropped until the client closes
  bool closed_ = false;
  Deadline deadline_kind_ = Deadline::none;
  Clock::time_point deadline_ = Clock::time_point::max();
  Clock::time_point write_deadline_ = Clock::time_point::max();
  Clock::time_point body_begin_;
  std::vector<std::string> flying_;  // being sent, from flying_at_ in the first on
  size_t flying_at_ = 0;

  mutable std::mutex mutex_;  // of what follows: the answer of the current request
  uint64_t request_ = 0;
  Phase phase_ = Phase::none;
  Framing framing_ = Framing::length;
  bool head_only_ = false, keep_alive_ = true;
  int minor_version_ = 1;
  std::vector<std::string> pending_;  // said and not yet flying
  int64_t queued_ = 0;                // bytes of pending_ and flying_
  bool gone_ = false;
  bool too_slow_ = false, cut_asked_ = false, dropped_ = false;
  bool awake_ = false;  // the io thread will look anyway
  std::function<void()> gone_callback_;
};

}  // namespace fathom::net
