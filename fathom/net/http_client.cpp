#include "fathom/net/http_client.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <sys/socket.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <mutex>

#include "fathom/net/http/fetch.h"
#include "fathom/net/public_address.h"

namespace fathom::net {

namespace {

/// Once in the process, before any handle; curl cleans up at exit by itself.
void open_curl() {
  static std::once_flag once;
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
}

struct FreeHandle {
  void operator()(CURL* handle) const { curl_easy_cleanup(handle); }
};
using Handle = std::unique_ptr<CURL, FreeHandle>;

struct FreeList {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};
using List = std::unique_ptr<curl_slist, FreeList>;

void add_field_line(HttpFields& fields, std::string_view line) {
  if (line.starts_with("HTTP/")) fields.fields.clear();  // 100 Continue came before: only the last header counts
  const size_t colon = line.find(':');
  if (colon == line.npos) return;
  std::string_view value = line.substr(colon + 1);
  while (!value.empty() && (value.front() == ' ' || value.front() == '\t')) value.remove_prefix(1);
  while (!value.empty() && (value.back() == '\r' || value.back() == '\n' || value.back() == ' '))
    value.remove_suffix(1);
  fields.add(line.substr(0, colon), value);
}

std::string shown(const std::string& url) { return url.size() > 200 ? url.substr(0, 200) + "..." : url; }

/// One transfer; what its callbacks need.
struct Transfer {
  CURL* handle = nullptr;
  HttpFields fields;
  std::string body;
  int64_t most_bytes = 0;
  const HttpClient::OnBytes* on_bytes = nullptr;
  std::stop_token stop;
  std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
  std::chrono::nanoseconds until_header{0};
  bool too_long = false, stopped = false, refused_address = false;
  const FetchPolicy* policy = nullptr;
  char error[CURL_ERROR_SIZE] = {};

  int status() const {
    long status = 0;
    curl_easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &status);
    return int(status);
  }
};

size_t on_header(char* bytes, size_t size, size_t count, void* user) {
  auto& transfer = *static_cast<Transfer*>(user);
  const std::string_view line(bytes, size * count);
  add_field_line(transfer.fields, line);
  if (line == "\r\n") transfer.until_header = std::chrono::steady_clock::now() - transfer.begin;
  return size * count;
}

size_t on_body(char* bytes, size_t size, size_t count, void* user) {
  auto& transfer = *static_cast<Transfer*>(user);
  const std::string_view piece(bytes, size * count);
  if (transfer.on_bytes && *transfer.on_bytes && transfer.status() >= 200 && transfer.status() < 300) {
    if ((*transfer.on_bytes)(piece)) return piece.size();
    transfer.stopped = true;
    return 0;
  }
  if (int64_t(transfer.body.size() + piece.size()) > transfer.most_bytes) {
    transfer.too_long = true;
    return 0;
  }
  transfer.body += piece;
  return piece.size();
}

int on_progress(void* user, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return static_cast<Transfer*>(user)->stop.stop_requested() ? 1 : 0;
}

/// Between name lookup and connection: the last word on the address that will really be called.
curl_socket_t open_allowed_socket(void* user, curlsocktype, curl_sockaddr* address) {
  auto& transfer = *static_cast<Transfer*>(user);
  char text[INET6_ADDRSTRLEN] = {};
  // curl_sockaddr has room for any address behind its declared member.
  sockaddr_storage storage{};
  std::memcpy(&storage, &address->addr, std::min<size_t>(sizeof storage, address->addrlen));
  if (address->family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in&>(storage).sin_addr, text, sizeof text);
  } else if (address->family == AF_INET6) {
    inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6&>(storage).sin6_addr, text, sizeof text);
  }
  if (text[0] == '\0' || !transfer.policy->allows(text)) {
    transfer.refused_address = true;
    return CURL_SOCKET_BAD;
  }
  return ::socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

void set_common(CURL* handle, Transfer& transfer) {
  transfer.handle = handle;
  curl_easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(handle, CURLOPT_ERRORBUFFER, transfer.error);
  curl_easy_setopt(handle, CURLOPT_HEADERFUNCTION, &on_header);
  curl_easy_setopt(handle, CURLOPT_HEADERDATA, &transfer);
  curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, &on_body);
  curl_easy_setopt(handle, CURLOPT_WRITEDATA, &transfer);
  curl_easy_setopt(handle, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(handle, CURLOPT_XFERINFOFUNCTION, &on_progress);
  curl_easy_setopt(handle, CURLOPT_XFERINFODATA, &transfer);
  curl_easy_setopt(handle, CURLOPT_USERAGENT, "fathom");
  curl_easy_setopt(handle, CURLOPT_HTTP_VERSION, long(CURL_HTTP_VERSION_1_1));
}

/// What the policy's resolver says of the URL's host, in the form that curl takes in place of an answer of the DNS.
List resolved_names(const std::string& url, const FetchPolicy& policy) {
  const std::string host = host_of(url);
  std::string line = host + ":443:";
  for (const std::string& address : policy.resolve(host)) line += (line.ends_with(':') ? "" : ",") + address;
  return List(line.ends_with(':') ? nullptr : curl_slist_append(nullptr, line.c_str()));
}

std::string reason_of(const Transfer& transfer, CURLcode code) {
  return transfer.error[0] != '\0' ? transfer.error : curl_easy_strerror(code);
}

}  // namespace

bool FetchPolicy::allows(std::string_view address) const {
  return address_allowed ? address_allowed(address) : is_public_address(address);
}

Result<FetchedContent> fetch(const std::string& first_url, const FetchLimits& limits, const FetchPolicy& policy,
                             std::stop_token stop) {
  open_curl();
  const auto deadline = std::chrono::steady_clock::now() + limits.total;
  std::string url = first_url;
  for (int redirect = 0;; ++redirect) {
    if (const auto allowed = policy.url_allowed ? policy.url_allowed(url) : check_public_url(url); !allowed)
      return allowed.error();
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    const Error late{ErrorCode::failed, "the download took longer than " + std::to_string(limits.total.count()) + " ms",
                     shown(first_url), "try again, or send the content as a data URL"};
    if (left.count() <= 0) return late;

    const Handle handle(curl_easy_init());
    if (!handle) return Error{ErrorCode::out_of_memory, "no memory for a download", "", ""};
    Transfer transfer;
    transfer.most_bytes = limits.bytes;
    transfer.stop = stop;
    transfer.policy = &policy;
    set_common(handle.get(), transfer);
    curl_easy_setopt(handle.get(), CURLOPT_URL, url.c_str());
    curl_easy_setopt(handle.get(), CURLOPT_PROTOCOLS_STR, "https");
    curl_easy_setopt(handle.get(), CURLOPT_FOLLOWLOCATION, 0L);  // each step is checked above
    curl_easy_setopt(handle.get(), CURLOPT_PROXY, "");           // a proxy would call addresses that we do not see
    curl_easy_setopt(handle.get(), CURLOPT_NETRC, long(CURL_NETRC_IGNORED));
    curl_easy_setopt(handle.get(), CURLOPT_OPENSOCKETFUNCTION, &open_allowed_socket);
    curl_easy_setopt(handle.get(), CURLOPT_OPENSOCKETDATA, &transfer);
    curl_easy_setopt(handle.get(), CURLOPT_CONNECTTIMEOUT_MS, long(std::min(left, limits.connect).count()));
    curl_easy_setopt(handle.get(), CURLOPT_TIMEOUT_MS, long(left.count()));
    curl_easy_setopt(handle.get(), CURLOPT_MAXFILESIZE_LARGE, curl_off_t(limits.bytes));
    if (!policy.ca_file.empty()) curl_easy_setopt(handle.get(), CURLOPT_CAINFO, policy.ca_file.c_str());
    const auto names = policy.resolve ? resolved_names(url, policy) : nullptr;
    if (names) curl_easy_setopt(handle.get(), CURLOPT_RESOLVE, names.get());

    const CURLcode code = curl_easy_perform(handle.get());
    if (transfer.too_long || code == CURLE_FILESIZE_EXCEEDED) {
      return Error{ErrorCode::out_of_range, "the content is longer than " + std::to_string(limits.bytes) + " bytes",
                   shown(url), "use a smaller one"};
    }
    if (stop.stop_requested()) return Error{ErrorCode::interrupted, "the download was stopped", shown(url), ""};
    if (code == CURLE_OPERATION_TIMEDOUT) return late;
    if (code != CURLE_OK && transfer.refused_address) {
      return Error{ErrorCode::failed, "the host's address is not a public one", shown(url),
                   "pass an https URL of a public host, or the image itself as a data URL"};
    }
    if (code != CURLE_OK) {
      return Error{ErrorCode::failed, "the download failed: " + reason_of(transfer, code), shown(url),
                   "check the URL, or send the content as a data URL"};
    }
    const int status = transfer.status();
    if (status == 301 || status == 302 || status == 303 || status == 307 || status == 308) {
      char* next = nullptr;
      curl_easy_getinfo(handle.get(), CURLINFO_REDIRECT_URL, &next);
      if (next == nullptr)
        return Error{ErrorCode::bad_input, "the host redirects without saying where", shown(url), "pass the final URL"};
      if (redirect >= limits.redirects) {
        return Error{ErrorCode::out_of_range,
                     "the URL redirects more than " + std::to_string(limits.redirects) + " times", shown(first_url),
                     "pass the final URL"};
      }
      url = next;
      continue;
    }
    if (status != 200)
      return Error{ErrorCode::bad_input, "the host answers with status " + std::to_string(status), shown(url),
                   "check the URL"};
    const std::string* type = transfer.fields.find("Content-Type");
    return FetchedContent{std::move(transfer.body), type ? *type : std::string(), url};
  }
}

Result<FetchedContent> fetch_public(const std::string& url, const FetchLimits& limits, std::stop_token stop) {
  return fetch(url, limits, {}, std::move(stop));
}

struct HttpClient::State {
  Handle handle;
};

HttpClient::HttpClient() : state_(std::make_unique<State>()) {
  open_curl();
  state_->handle.reset(curl_easy_init());
}
HttpClient::HttpClient(HttpClient&&) noexcept = default;
HttpClient& HttpClient::operator=(HttpClient&&) noexcept = default;
HttpClient::~HttpClient() = default;

Result<EndpointAnswer> HttpClient::send(const EndpointRequest& request, const OnBytes& on_bytes, std::stop_token stop) {
  CURL* handle = state_->handle.get();
  if (!handle) return Error{ErrorCode::out_of_memory, "no memory for a request", "", ""};
  curl_easy_reset(handle);  // options only: the connection stays
  Transfer transfer;
  transfer.most_bytes = request.body_bytes;
  transfer.on_bytes = &on_bytes;
  transfer.stop = stop;
  set_common(handle, transfer);
  curl_easy_setopt(handle, CURLOPT_URL, request.url.c_str());
  curl_easy_setopt(handle, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(handle, CURLOPT_CONNECTTIMEOUT_MS, long(request.connect.count()));
  curl_easy_setopt(handle, CURLOPT_TCP_KEEPALIVE, 1L);
  // Less than a byte a second for so long is silence.
  curl_easy_setopt(handle, CURLOPT_LOW_SPEED_LIMIT, 1L);
  curl_easy_setopt(handle, CURLOPT_LOW_SPEED_TIME, long(std::max<int64_t>(1, request.silence.count() / 1000)));
  if (!request.ca_file.empty()) curl_easy_setopt(handle, CURLOPT_CAINFO, request.ca_file.c_str());
  if (request.method == "HEAD") {
    curl_easy_setopt(handle, CURLOPT_NOBODY, 1L);
  } else if (!request.body.empty() || request.method == "POST") {
    curl_easy_setopt(handle, CURLOPT_POSTFIELDS, request.body.data());
    curl_easy_setopt(handle, CURLOPT_POSTFIELDSIZE_LARGE, curl_off_t(request.body.size()));
  }
  curl_easy_setopt(handle, CURLOPT_CUSTOMREQUEST, request.method.c_str());

  List fields;
  const auto add = [&fields](const std::string& line) {
    fields.reset(curl_slist_append(fields.release(), line.c_str()));
  };
  for (const auto& [name, value] : request.fields.fields) {
    if ((name + value).find_first_of("\r\n") == std::string::npos)
      add(value.empty() ? name + ";" : name + ": " + value);
  }
  if (!request.body.empty() && !request.fields.find("Content-Type")) add("Content-Type: application/json");
  add("Expect:");  // curl would wait a second for 100 Continue where a server does not know it
  curl_easy_setopt(handle, CURLOPT_HTTPHEADER, fields.get());

  const CURLcode code = curl_easy_perform(handle);
  if (transfer.too_long) {
    return Error{ErrorCode::out_of_range, "the answer is longer than " + std::to_string(request.body_bytes) + " bytes",
                 shown(request.url), "ask for less"};
  }
  if (transfer.stopped || stop.stop_requested())
    return Error{ErrorCode::interrupted, "the request was stopped", shown(request.url), ""};
  if (code == CURLE_URL_MALFORMAT || code == CURLE_UNSUPPORTED_PROTOCOL) {
    return Error{ErrorCode::bad_input, "the URL cannot be used: " + reason_of(transfer, code), shown(request.url),
                 "pass http://HOST:PORT/PATH"};
  }
  if (code == CURLE_OPERATION_TIMEDOUT && transfer.until_header.count() + int64_t(transfer.body.size()) > 0) {
    return Error{ErrorCode::failed, "no byte came for " + std::to_string(request.silence.count() / 1000) + " s",
                 shown(request.url), "see whether the server still works"};
  }
  if (code != CURLE_OK) {
    return Error{ErrorCode::failed, "the request failed: " + reason_of(transfer, code), shown(request.url),
                 "see whether the server runs and listens there"};
  }
  return EndpointAnswer{transfer.status(), std::move(transfer.fields), std::move(transfer.body), transfer.until_header};
}

}  // namespace fathom::net
