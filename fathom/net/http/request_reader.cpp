#include "fathom/net/http/request_reader.h"

#include <algorithm>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>
#include <limits>

#include "fathom/base/check.h"
#include "fathom/net/http/answer_head.h"

namespace fathom::net {

namespace http = boost::beast::http;
using BeastString = boost::beast::string_view;
using BeastError = boost::beast::error_code;

namespace {

// Methods of RFC 9110, and QUERY, that some resource could have: which has which is the receiver's to say (405). Any
// other is 501. CONNECT is for proxies.
constexpr std::string_view kMethods[] = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "QUERY"};

std::string_view plain(BeastString text) { return {text.data(), text.size()}; }

/// The target without scheme and host ("http://h/p" -> "/p"), nothing when it is none that we serve.
std::optional<std::string_view> origin_form(std::string_view method, std::string_view target) {
  if (target == "*" && method == "OPTIONS") return target;
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!equals_ignoring_case(target.substr(0, scheme.size()), scheme)) continue;
    target.remove_prefix(scheme.size());
    const size_t path = target.find_first_of("/?");
    if (path == 0) return std::nullopt;
    return path == target.npos ? std::string_view("/") : target.substr(path);
  }
  if (!target.starts_with('/')) return std::nullopt;
  return target;
}

/// "HTTP/2.0" and the like: a version that we do not speak, rather than noise.
bool is_other_version(std::string_view bytes) {
  const std::string_view line = bytes.substr(0, bytes.find('\n'));
  const size_t at = line.rfind(" HTTP/");
  if (at == line.npos) return false;
  const std::string_view version = line.substr(at + 6);
  if (version.starts_with("1.1") || version.starts_with("1.0")) return false;
  const auto digit = [&](size_t i) { return i < version.size() && version[i] >= '0' && version[i] <= '9'; };
  return digit(0) && (version.size() == 1 || version[1] == '\r' || (version[1] == '.' && digit(2)));
}

}  // namespace

/// Beast's parser; writes into the reader's request.
struct RequestReader::Parser final : http::basic_parser<true> {
  explicit Parser(RequestReader& reader) : reader(reader) {
    header_limit(std::numeric_limits<uint32_t>::max());  // Beast's depends on how the bytes are cut; ours: feed()
    body_limit(uint64_t(reader.limits_.body_bytes));
  }

  RequestReader& reader;
  bool has_length = false, has_encoding = false, has_host = false;
  int version = 11;
  int64_t line_bytes = 0;   // of the request line
  bool chunk_line = false;  // the last put() read the line of a chunk, or trailers

  /// Sets the answer and makes Beast stop.
  void refuse(BeastError& error, int status, std::string message) {
    reader.fail(status, std::move(message));
    error = http::error::end_of_stream;
  }

  void on_request_impl(http::verb, BeastString method, BeastString target, int http_version,
                       BeastError& error) override {
    HttpRequest& request = reader.request_;
    version = http_version;
    line_bytes = int64_t(method.size() + target.size() + std::string_view("  HTTP/1.1\r\n").size());
    request.minor_version = http_version - 10;
    request.method = plain(method);
    if (std::ranges::find(kMethods, plain(method)) == std::end(kMethods)) {
      return refuse(error, 501, "method " + request.method.substr(0, 40) + " is not supported");
    }
    const auto origin = origin_form(request.method, plain(target));
    if (!origin) return refuse(error, 400, "the request's target is no path");
    request.target = *origin;
    if (!request.target.starts_with('/') && request.target != "*") request.target.insert(0, "/");  // "http://h?q"
    const size_t question = request.target.find('?');
    request.path = request.target.substr(0, question);
    if (question != std::string::npos) request.query = request.target.substr(question + 1);
  }

  void on_response_impl(int, BeastString, int, BeastError&) override {}

  void on_field_impl(http::field name, BeastString text, BeastString value, BeastError& error) override {
    if (reader.header_whole_) return;  // a trailer must not change what was decided by the header
    switch (name) {
      case http::field::transfer_encoding:
        if (has_encoding || has_length) return refuse(error, 400, "the length of the body is given twice");
        if (version < 11) return refuse(error, 400, "HTTP/1.0 has no Transfer-Encoding");
        if (!equals_ignoring_case(plain(value), "chunked")) {
          return refuse(error, 501, "no Transfer-Encoding but chunked is supported");
        }
        has_encoding = true;
        break;
      case http::field::content_length:
        if (has_encoding || has_length || plain(value).find(',') != std::string_view::npos) {
          return refuse(error, 400, "the length of the body is given twice");
        }
        has_length = true;
        break;
      case http::field::host:
        if (has_host) return refuse(error, 400, "the request has two Host fields");
        has_host = true;
        break;
      case http::field::expect:
        if (!equals_ignoring_case(plain(value), "100-continue")) {
          return refuse(error, 417, "no Expect but 100-continue is supported");
        }
        reader.expects_continue_ = version >= 11;
        break;
      default: break;
    }
    reader.request_.fields.add(plain(text), plain(value));
  }

  void on_header_impl(BeastError& error) override {
    if (version >= 11 && !has_host) return refuse(error, 400, "the request has no Host field");
    reader.header_whole_ = true;
  }

  // Memory follows what arrives, not what was announced.
  void on_body_init_impl(boost::optional<uint64_t> const&, BeastError&) override {}
  size_t on_body_impl(BeastString bytes, BeastError&) override {
    reader.request_.body.append(bytes.data(), bytes.size());
    return bytes.size();
  }
  void on_chunk_header_impl(uint64_t, BeastString, BeastError&) override { chunk_line = true; }
  size_t on_chunk_body_impl(uint64_t, BeastString bytes, BeastError&) override {
    reader.request_.body.append(bytes.data(), bytes.size());
    return bytes.size();
  }
  void on_finish_impl(BeastError&) override {}
};

RequestReader::RequestReader(RequestLimits limits) : limits_(limits) {}
RequestReader::~RequestReader() = default;

void RequestReader::fail(int status, std::string message) {
  state_ = State::failed;
  status_ = status;
  message_ = std::move(message);
}

size_t RequestReader::feed(std::string_view bytes) {
  if (state_ == State::done || state_ == State::failed) return 0;
  size_t taken = 0;
  if (state_ == State::nothing) {
    // Some clients send an empty line behind a body; RFC 9112 2.2 asks to skip it.
    while (bytes.substr(taken).starts_with("\r\n")) taken += 2;
    if (taken == bytes.size() || bytes.substr(taken) == "\r") return taken;
    state_ = State::header;
    parser_ = std::make_unique<Parser>(*this);
  }
  while (true) {
    const std::string_view rest = bytes.substr(taken);
    const bool was_header = !header_whole_;
    BeastError error;
    // Beast 1.81 aborts (an assertion on 5 bytes) when a last chunk that is also the first comes in smaller pieces. No
    // chunked body can end in fewer bytes than "0\r\n\r\n" anyway.
    if (header_whole_ && parser_->chunked() && rest.size() < kLastChunk.size()) return taken;
    parser_->chunk_line = false;
    const size_t read = parser_->put(boost::asio::const_buffer(rest.data(), rest.size()), error);
    taken += read;
    if (state_ == State::failed) return taken;
    if (was_header) header_taken_ += int64_t(read);
    const auto waiting = int64_t(bytes.size() - taken);  // when more is needed, all of it belongs to what is read now
    if (was_header && header_taken_ + (header_whole_ ? 0 : waiting) > limits_.header_bytes &&
        (header_whole_ || error == http::error::need_more)) {
      const std::string limit = std::to_string(limits_.header_bytes) + " bytes";
      if (request_.method.empty() || parser_->line_bytes > limits_.header_bytes) {
        fail(414, "the request line is longer than " + limit);
      } else {
        fail(431, "the header is longer than " + limit);
      }
      return taken;
    }
    // The line of a chunk, or trailers: Beast itself has no limit for them.
    if (!was_header && (error == http::error::need_more ? waiting
                        : parser_->chunk_line           ? int64_t(read)
                                                        : 0) > limits_.header_bytes) {
      fail(431, "the line of a chunk or the trailers are too long");
      return taken;
    }
    if (error == http::error::need_more) return taken;
    if (error == http::error::body_limit) {
      fail(413, "the body is longer than " + std::to_string(limits_.body_bytes) + " bytes");
    } else if (error == http::error::bad_version && is_other_version(rest)) {
      fail(505, "only HTTP/1.1 and HTTP/1.0 are spoken here");
    } else if (error) {
      fail(400,
           header_whole_ ? "the chunks of the body are malformed" : "the request is malformed: " + error.message());
    }
    if (state_ == State::failed) return taken;
    if (parser_->is_done()) {
      state_ = State::done;
      return taken;
    }
    if (was_header && header_whole_) {
      state_ = State::body;
      return taken;
    }
    if (taken == bytes.size()) return taken;
  }
}

bool RequestReader::keep_alive() const {
  check(header_whole_, "keep_alive is known once the header is whole");
  return parser_->keep_alive();
}

std::optional<int64_t> RequestReader::content_length() const {
  check(header_whole_, "content_length is known once the header is whole");
  if (parser_->chunked()) return std::nullopt;
  return int64_t(parser_->content_length().value_or(0));
}

HttpRequest RequestReader::take() {
  check(state_ == State::done, "take() a request that is whole");
  state_ = State::nothing;
  parser_.reset();
  header_whole_ = expects_continue_ = false;
  header_taken_ = 0;
  return std::exchange(request_, {});
}

}  // namespace fathom::net
