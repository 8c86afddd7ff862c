// fathom/net/http_server.h
// An HTTP/1.1 server for answers that stream for minutes: few bytes at a time, to many readers, some of which are slow
// or gone.
//
// A connection lives on one io thread for all its life, so its state needs no lock against itself; what other threads
// say through a responder is queued and the io thread is woken. A read is pending on every connection, also while its
// request runs: that is how a client that went away is noticed before the next byte is written. Deadlines are one
// number a connection and one timer a thread, so that 10,000 idle connections cost some memory and nothing else.
// Boost.Beast reads the header and the chunks of a request (http/request_reader.h), Asio moves bytes, OpenSSL seals
// them; none of them shows in this header.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "fathom/base/result.h"
#include "fathom/net/http_message.h"

namespace fathom::net {

class HttpConnection;  // http/connection.h, private to the room
struct HttpServerState;

/// Where an answer goes when there is no connection: a caller in the same process, a test. All five are called by the
/// thread that calls the responder. `respond` and `end` come at most once; `write` says false when nobody reads.
struct HttpSink {
  std::function<void(HttpAnswer)> respond;
  std::function<void(int status, HttpFields)> begin_stream;
  std::function<bool(std::string_view bytes)> write;
  std::function<void()> end;
  std::function<void()> abort;  // also when the responder was dropped without an answer or an end
};

/// The answer to one request. Any thread may call any function at any time; calls of one response should come from one
/// thread at a time, or their order is a matter of luck. Calls after the client is gone do nothing. It may outlive the
/// server. When the last pointer goes before an answer was given, the client gets 500; before a stream was ended, the
/// connection is cut, so that a half answer never looks whole.
class HttpResponder {
 public:
  HttpResponder(std::shared_ptr<HttpConnection> connection, uint64_t request);
  explicit HttpResponder(HttpSink sink);
  HttpResponder(const HttpResponder&) = delete;
  HttpResponder& operator=(const HttpResponder&) = delete;
  ~HttpResponder();

  /// The whole answer, once. Adds Content-Length, Date, Connection; a field of those names in `fields` is ignored. For
  /// HEAD the body is counted and not sent. Any length; it is sent as fast as the client reads.
  void respond(int status, HttpFields fields, std::string body);
  void respond(HttpAnswer answer) { respond(answer.status, std::move(answer.fields), std::move(answer.body)); }

  /// Begins an answer of unknown length: the header goes out at once. HTTP/1.1 gets chunks, HTTP/1.0 an end by closing.
  void begin_stream(int status, HttpFields fields);

  /// Sends bytes of the stream, once begun. False: nobody will read them, stop. That is when the client is gone, or
  /// when more than `queued_bytes` wait for a reader that is too slow: then the connection is cut and on_gone called.
  /// What is written while an earlier piece is on its way goes out together.
  bool write(std::string_view bytes);

  /// Ends the stream; without it the client sees a broken answer.
  void end();

  /// Cuts the connection without an ending: the client sees a broken answer.
  void abort();

  /// `callback` is called once when the client went away (closed, half-closed or reset the connection, stopped reading,
  /// or the server stopped) before it got the end of the answer; never after respond() or end() have been sent whole.
  /// From the connection's io thread: it must not block. When the client is already gone it is called before on_gone
  /// returns, by the caller. A second on_gone replaces the first. The callback is dropped with the request's end.
  /// A client that half-closes its side after the request counts as gone, as with most servers of long answers.
  void on_gone(std::function<void()> callback);

  /// Of a responder with a sink: its reader went away; calls what on_gone was given.
  void reader_gone();

  bool gone() const;
  /// Bytes that wait for the client, beyond what the system's socket buffer holds.
  int64_t queued_bytes() const;

 private:
  struct Local;
  std::shared_ptr<HttpConnection> connection_;
  uint64_t request_ = 0;  // its number in the connection: what is said after its end says nothing
  std::unique_ptr<Local> local_;
};

/// Called on an io thread for each request: must not block, all other connections of the thread wait meanwhile. It may
/// answer at once, or keep the responder and answer later from any thread.
using HttpHandler = std::function<void(HttpRequest request, std::shared_ptr<HttpResponder> responder)>;

struct HttpServerOptions {
  std::string host = "127.0.0.1";    // an address or a name; "0.0.0.0" and "::" are all interfaces
  int port = 8000;                   // 0: any free one, see HttpServer::port()
  int threads = 1;                   // io threads; a connection stays on one. 1 serves 50,000 small requests a second
  std::string tls_certificate_file;  // PEM, the server's first, then its chain; empty: no TLS
  std::string tls_key_file;          // PEM

  int64_t header_bytes = 64 * 1024;         // longest request line and header together; longer: 414 or 431
  int64_t body_bytes = 128 * 1024 * 1024;   // longest body; longer: 413
  int64_t bodies_bytes = int64_t(1) << 30;  // of all bodies until drop_body(); then one over 64 KiB gets 503
  int64_t queued_bytes = 1024 * 1024;       // most that a stream may have waiting for a slow reader
  int64_t connections = 20'000;             // more are answered 503 and closed
  int backlog = 1024;                       // connections that the system keeps for us to accept

  std::chrono::milliseconds idle_deadline{75'000};    // between two requests of a connection
  std::chrono::milliseconds header_deadline{10'000};  // from accept or the first byte to the header's end, TLS included
  std::chrono::milliseconds body_deadline{20'000};    // for a body, besides what its bytes may take:
  int64_t body_bytes_per_second = 16 * 1024;          // the slowest sender we wait for
  std::chrono::milliseconds write_deadline{30'000};   // without any progress of a write; also TCP's user timeout
  std::chrono::milliseconds keepalive{30'000};        // TCP probes of a silent connection: a vanished host is noticed

  std::string server_name = "fathom";  // field Server; empty: none

  /// Body of an answer that this room gives by itself: 400 (malformed), 408, 413, 414, 417, 431, 500, 501, 503, 505.
  /// Called on io threads. Default: {"error":{"message":...,"type":...,"param":null,"code":null}}.
  std::function<std::string(int status, std::string_view message)> error_body;
  std::string error_content_type = "application/json";

  /// Called when a request's header is complete and its body not yet read: an answer refuses it (keys, paths, limits
  /// of a body), and a body that is still on its way is not read: the connection closes. Must not block.
  std::function<std::optional<HttpAnswer>(const HttpRequest& header)> admit;

  /// Called on the io thread when an answer that this room gave by itself, or admit's, was queued: for the access log.
  std::function<void(const HttpRequest& header, int status)> refused;
};

/// Since start(), but `connections` and `requests_running`: now.
struct HttpServerCounts {
  int64_t connections = 0;
  int64_t requests_running = 0;  // handed to the handler, answer not yet sent whole
  int64_t connections_accepted = 0;
  int64_t connections_refused = 0;  // over the limit
  int64_t requests = 0;             // handed to the handler
  int64_t requests_refused = 0;     // answered by this room or by admit
  int64_t clients_gone = 0;         // before the end of their answer
  int64_t slow_readers_cut = 0;     // of these: too many bytes queued, or no progress until the deadline
  int64_t deadlines_missed = 0;     // header or body too slow, 408
  int64_t tls_handshakes_failed = 0;
};

/// All functions may be called by any thread, but not by a handler or callback, which would wait for itself.
class HttpServer {
 public:
  HttpServer(HttpServerOptions options, HttpHandler handler);
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;
  ~HttpServer();  // stop()

  /// Listens and starts the io threads. Once.
  /// Errors: failed (port taken, no right to it), bad_input (host unknown; certificate or key unreadable, or they do
  /// not belong together).
  Result<void> start();

  /// The port that it listens on, after start().
  int port() const;

  /// Reads certificate and key again; new connections use them, others keep theirs. Errors: as start(); then the old
  /// ones stay in use.
  Result<void> reload();

  /// Closes the listening socket. Connections go on, and may ask again.
  void stop_accepting();

  /// stop_accepting(), closes connections without a request at once and others after their answer, and waits until none
  /// is left or the time is over. True: none is left. Running requests are not told; stop() cuts what remains.
  bool drain(std::chrono::milliseconds longest);

  /// Cuts all connections (on_gone is called), joins the io threads. May be called again.
  void stop();

  HttpServerCounts counts() const;

 private:
  std::unique_ptr<HttpServerState> state_;
};

}  // namespace fathom::net
