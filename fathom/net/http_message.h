// fathom/net/http_message.h
// What an HTTP/1.1 message is to the rest of the program: plain values, no socket, no library type.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fathom::net {

struct HttpField {
  std::string name;   // as it was sent; compared without regard to case
  std::string value;  // without the white space around it
  friend bool operator==(const HttpField&, const HttpField&) = default;
};

/// Header fields in order of appearance. A name may be there several times.
struct HttpFields {
  std::vector<HttpField> fields;

  HttpFields() = default;
  HttpFields(std::initializer_list<HttpField> list) : fields(list) {}

  /// The value of the first field of this name (any case), or nullptr. Valid until the fields change.
  const std::string* find(std::string_view name) const;
  HttpFields& add(std::string_view name, std::string_view value);
  friend bool operator==(const HttpFields&, const HttpFields&) = default;
};

/// One request, whole: the body is there, unchunked, as it was sent (a Content-Encoding is the receiver's matter:
/// content_encoding.h).
struct HttpRequest {
  std::string method;  // GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS, TRACE or QUERY; others were answered 501
  std::string target;  // "/v1/models?after=x", as it was sent; an absolute target lost its scheme and host
  std::string path;    // the target before '?', as it was sent (percent signs are not decoded)
  std::string query;   // the target after '?', as it was sent
  HttpFields fields;   // of the header; trailers are dropped
  std::string body;
  std::shared_ptr<void> body_share;  // of HttpServerOptions::bodies_bytes; counts until it goes
  std::string peer;                  // the other side's address without its port: "127.0.0.1", "::1"
  int peer_port = 0;
  int minor_version = 1;  // of HTTP/1: 0 or 1
  bool secure = false;    // came over TLS

  const std::string* find(std::string_view field) const { return fields.find(field); }
  /// For whoever keeps the request longer than its body.
  void drop_body() {
    body = {};
    body_share.reset();
  }
  /// The first value of a query parameter, decoded (percent signs, '+'); nothing when it is not there.
  std::optional<std::string> query_value(std::string_view name) const;
};

/// One answer, whole.
struct HttpAnswer {
  int status = 200;
  HttpFields fields;
  std::string body;
};

/// "Not Found" for 404; "Unknown" for a number without a name.
std::string_view reason_phrase(int status);

/// Whether two names of fields, or two words of their values, are the same (ASCII without case).
bool equals_ignoring_case(std::string_view a, std::string_view b);

/// Whether a comma-separated value ("keep-alive, Upgrade") has this word, without regard to case.
bool has_token(std::string_view value, std::string_view token);

/// "%41+b" -> "A b" with `plus_is_space`, "A+b" without. A percent sign that begins no byte stays.
std::string percent_decoded(std::string_view text, bool plus_is_space);

}  // namespace fathom::net
