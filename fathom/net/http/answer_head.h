// fathom/net/http/answer_head.h
// The header of an answer, and the frame around the pieces of a stream. Pure functions.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "fathom/net/http_message.h"

namespace fathom::net {

/// How the end of an answer is found.
enum class Framing {
  length,  // Content-Length
  chunks,  // Transfer-Encoding: chunked
  close,   // the connection's end (HTTP/1.0)
  none,    // a status that has no body
};

struct AnswerHead {
  int status = 200;
  const HttpFields* fields = nullptr;
  Framing framing = Framing::length;
  int64_t content_length = 0;
  bool keep_alive = true;
  int minor_version = 1;  // of the request
  std::string_view server_name = {};
};

/// Whether an answer of this status may have a body.
bool may_have_body(int status);

/// Appends status line and fields, with Date, Server, Connection and the framing's own; what `fields` has of those
/// names is left out. A control character in a value becomes a space, a field without a proper name is left out: what
/// a client sent and is echoed cannot become another field.
void append_head(std::string& out, const AnswerHead& head);

/// Appends one chunk; an empty one would be the end and appends nothing.
void append_chunk(std::string& out, std::string_view bytes);
constexpr std::string_view kLastChunk = "0\r\n\r\n";

/// "Mon, 30 Nov 2026 07:10:00 GMT", written anew once a second. Any thread; valid until this thread's next call.
std::string_view http_date();

}  // namespace fathom::net
