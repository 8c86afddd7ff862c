// fathom/net/http_client.h
// Blocking HTTP clients on libcurl, for what is not on the hot path: fetching images that a stranger's request names,
// and asking an endpoint from a command. Any thread may call; a call blocks its thread, never an io thread's business.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>

#include "fathom/base/result.h"
#include "fathom/net/http_message.h"

namespace fathom::net {

struct FetchLimits {
  int64_t bytes = 32 * 1024 * 1024;          // longest content, also when no length was announced
  std::chrono::milliseconds total{10'000};   // from first name lookup to last byte, redirects included
  std::chrono::milliseconds connect{5'000};  // of one connection
  int redirects = 3;
};

struct FetchedContent {
  std::string bytes;
  std::string content_type;  // as the server says, may be empty
  std::string url;           // after redirects
};

/// Downloads `url` as the public internet sees it. Only https on port 443 to public addresses (public_address.h): the
/// URL is checked before, the address after its name was resolved and before a socket is opened, both again at each
/// redirect; the address that was checked is the address that is called. Certificates are verified. No proxy, cookie,
/// credential or content decoding; nothing of the environment is used.
/// Errors: bad_input (URL refused; status other than 200), out_of_range (longer than the limit; too many redirects),
/// failed (no connection, time over, certificate, and an address of the inner network: whoever sent the URL must not
/// learn from the kind of error which names exist there), interrupted (`stop`). The remedy says what would be accepted.
Result<FetchedContent> fetch_public(const std::string& url, const FetchLimits& limits = {}, std::stop_token stop = {});

/// A request to an endpoint that the user named: no address is refused.
struct EndpointRequest {
  std::string method = "POST";
  std::string url;
  HttpFields fields;  // Content-Type application/json is added when there is a body and none is given
  std::string body;
  std::string ca_file;  // PEM, certificates to trust instead of the system's
  std::chrono::milliseconds connect{10'000};
  std::chrono::milliseconds silence{600'000};  // longest time without a byte, before the answer and within it
  int64_t body_bytes = 1024 * 1024 * 1024;     // longest answer that is collected
};

struct EndpointAnswer {
  int status = 0;
  HttpFields fields;
  std::string body;                          // what no callback took
  std::chrono::nanoseconds until_header{0};  // from send() to the whole header
};

/// Keeps its connection between calls. One thread at a time.
class HttpClient {
 public:
  HttpClient();
  HttpClient(HttpClient&&) noexcept;
  HttpClient& operator=(HttpClient&&) noexcept;
  ~HttpClient();

  /// Takes bytes of an answer as they come; false stops the transfer.
  using OnBytes = std::function<bool(std::string_view bytes)>;

  /// Sends and waits for the answer. An answer with status 200 to 299 goes to `on_bytes` piece by piece, when it is
  /// given; any other is collected in `body`. A status is no error.
  /// Errors: bad_input (the URL), failed (no connection, broken answer, silence), out_of_range (too long),
  /// interrupted (`stop`, or on_bytes said false).
  Result<EndpointAnswer> send(const EndpointRequest& request, const OnBytes& on_bytes = {}, std::stop_token stop = {});

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fathom::net
