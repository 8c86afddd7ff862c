// fathom/net/server_sent_events.h
// Server-sent events (HTML standard, 9.2): how a stream of messages is written into one HTTP answer, and read from it.
// Pure functions and values: no socket.
#pragma once
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include "fathom/base/result.h"
#include "fathom/net/http_message.h"

namespace fathom::net {

/// Appends "data: <data>\n\n". Each line of `data` (ended by \n, \r\n or \r) becomes a line of its own, as the format
/// wants. One append when there is no line break: JSON has none.
void append_sse_data(std::string& out, std::string_view data);

/// Appends "event: <event>\ndata: <data>\n\n". `event` must have no line break (checked).
void append_sse_event(std::string& out, std::string_view event, std::string_view data);

/// Appends ": <text>\n\n": a sign of life that clients skip. Line breaks become spaces.
void append_sse_comment(std::string& out, std::string_view text);

/// The header fields of an answer of events: Content-Type text/event-stream, Cache-Control no-cache, X-Accel-Buffering
/// no (nginx would hold the events back).
HttpFields event_stream_fields();

struct ServerSentEvent {
  std::string event;  // "message" when the stream named none
  std::string data;   // its lines joined with \n
  std::string id;     // the last id that the stream gave
  friend bool operator==(const ServerSentEvent&, const ServerSentEvent&) = default;
};

/// Reads a stream in pieces of any size; how it is cut makes no difference. Not for several threads.
class SseParser {
 public:
  /// `most_bytes`: longest line, and longest data of one event.
  explicit SseParser(int64_t most_bytes = 64 * 1024 * 1024) : most_bytes_(most_bytes) {}

  /// Reads a piece. Errors: out_of_range when a line or an event is longer than the limit; then the parser is done.
  Result<void> feed(std::string_view bytes);

  /// The next whole event, or nothing. An event that the stream's end cut is never given.
  std::optional<ServerSentEvent> next();

  int64_t comments() const { return comments_; }                                     // lines that begin with ':'
  std::optional<int64_t> retry_milliseconds() const { return retry_milliseconds_; }  // the last `retry:`, if any

 private:
  void take_line(std::string_view line);

  int64_t most_bytes_;
  std::string line_;           // an unfinished line
  bool after_return_ = false;  // the last byte was \r: a \n belongs to it
  bool at_start_ = true;       // a byte order mark may follow
  bool failed_ = false;
  std::string event_, data_, id_;
  bool has_data_ = false;
  int64_t comments_ = 0;
  std::optional<int64_t> retry_milliseconds_;
  std::deque<ServerSentEvent> events_;
};

}  // namespace fathom::net
