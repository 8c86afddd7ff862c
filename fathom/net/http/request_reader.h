// fathom/net/http/request_reader.h
// The bytes of a connection -> one request. Boost.Beast parses inside; here stands what it leaves open: which answer a
// mistake gets, and the ways in which two servers could disagree about where a request ends (request smuggling,
// RFC 9112 11.2), which are all refused. No socket, so it is fuzzed as it is.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "fathom/net/http_message.h"

namespace fathom::net {

struct RequestLimits {
  int64_t header_bytes = 64 * 1024;
  int64_t body_bytes = 128 * 1024 * 1024;
};

/// Reads one request after another. Not for several threads.
class RequestReader {
 public:
  enum class State {
    nothing,  // no byte of the request yet
    header,   // part of it
    body,     // the header is whole, request() shows it; the body is not
    done,     // take() it
    failed,   // status() and message() say why; the connection must close
  };

  explicit RequestReader(RequestLimits limits);
  RequestReader(const RequestReader&) = delete;
  RequestReader& operator=(const RequestReader&) = delete;
  ~RequestReader();

  /// Reads from `bytes` and returns how many it took; the caller brings the others again, with more behind them. Stops
  /// once when the header is whole (state body, or done without a body) and at the end of the request. Takes nothing
  /// when done or failed. A header is not taken before it is whole: `bytes` may grow to header_bytes.
  size_t feed(std::string_view bytes);

  State state() const { return state_; }

  /// What is known: method, target and fields once the header is whole; after a failure, what was read before it.
  HttpRequest& request() { return request_; }
  /// The whole request, out of state done. Then the reader begins a new one.
  HttpRequest take();

  bool keep_alive() const;  // header whole: the client does not ask to close
  bool expects_continue() const { return expects_continue_; }
  std::optional<int64_t> content_length() const;  // header whole: nothing when it comes in chunks

  int status() const { return status_; }  // of the answer to a failure: 400, 413, 414, 417, 431, 501, 505
  const std::string& message() const { return message_; }

 private:
  struct Parser;
  void fail(int status, std::string message);

  RequestLimits limits_;
  State state_ = State::nothing;
  HttpRequest request_;
  std::unique_ptr<Parser> parser_;  // there from the first byte to the end
  int64_t header_taken_ = 0;        // bytes of the header so far
  bool header_whole_ = false;
  bool expects_continue_ = false;
  int status_ = 0;
  std::string message_;
};

}  // namespace fathom::net
