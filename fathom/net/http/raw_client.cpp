#include "fathom/net/http/raw_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

namespace fathom::net {

namespace {

std::optional<int64_t> number_in(std::string_view text, int base) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return number;
}

}  // namespace

RawClient::RawClient(int port, int receive_buffer) {
  socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (receive_buffer > 0) setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
  const int one = 1;
  setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(uint16_t(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) close();
}

RawClient::RawClient(RawClient&& other) noexcept
    : socket_(std::exchange(other.socket_, -1)), in_(std::move(other.in_)) {}

RawClient::~RawClient() { close(); }

bool RawClient::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(size_t(sent));
  }
  return true;
}

bool RawClient::request(std::string_view method, std::string_view path, std::string_view body,
                        std::string_view fields) {
  std::string text;
  text.append(method).append(" ").append(path).append(" HTTP/1.1\r\nHost: test\r\n").append(fields);
  if (!body.empty()) text.append("Content-Length: ").append(std::to_string(body.size())).append("\r\n");
  return send(text.append("\r\n").append(body));
}

bool RawClient::receive(std::chrono::steady_clock::time_point until) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now()).count();
  pollfd one{socket_, POLLIN, 0};
  if (socket_ < 0 || left < 0 || poll(&one, 1, int(left)) <= 0) return false;
  std::array<char, 65536> bytes;
  const ssize_t got = ::recv(socket_, bytes.data(), bytes.size(), 0);
  if (got <= 0) return false;
  in_.append(bytes.data(), size_t(got));
  return true;
}

bool RawClient::read_until(std::string_view text, std::chrono::milliseconds longest) {
  const auto until = std::chrono::steady_clock::now() + longest;
  while (in_.find(text) == in_.npos) {
    if (!receive(until)) return false;
  }
  return true;
}

RawAnswer RawClient::read_answer(std::chrono::milliseconds longest, bool of_head) {
  const auto until = std::chrono::steady_clock::now() + longest;
  RawAnswer answer;
  if (!read_until("\r\n\r\n", longest)) {
    answer.body = std::exchange(in_, {});
    return answer;
  }
  const size_t end = in_.find("\r\n\r\n");
  const std::string head = in_.substr(0, end + 2);
  in_.erase(0, end + 4);
  answer.status = int(number_in(std::string_view(head).substr(std::min<size_t>(9, head.size())), 10).value_or(0));
  for (size_t at = head.find("\r\n") + 2; at < head.size();) {
    const size_t line_end = head.find("\r\n", at), colon = head.find(": ", at);
    answer.fields.add(head.substr(at, colon - at), head.substr(colon + 2, line_end - colon - 2));
    at = line_end + 2;
  }
  if (of_head || answer.status < 200 || answer.status == 204 || answer.status == 304) {
    answer.whole = true;
    return answer;
  }
  if (const std::string* length = answer.fields.find("Content-Length")) {
    const auto bytes = size_t(number_in(*length, 10).value_or(0));
    while (in_.size() < bytes && receive(until)) {
    }
    answer.whole = in_.size() >= bytes;
    answer.body = in_.substr(0, bytes);
    in_.erase(0, bytes);
    return answer;
  }
  if (!answer.fields.find("Transfer-Encoding")) {  // the connection's end
    while (receive(until)) {
    }
    answer.body = std::exchange(in_, {});
    answer.whole = true;
    return answer;
  }
  while (true) {
    size_t line = in_.npos;
    while ((line = in_.find("\r\n")) == in_.npos) {
      if (!receive(until)) return answer;
    }
    const auto bytes = size_t(number_in(in_, 16).value_or(0));
    while (in_.size() < line + bytes + 4) {
      if (!receive(until)) {
        answer.body += in_.substr(std::min(in_.size(), line + 2));
        in_.clear();
        return answer;
      }
    }
    answer.body += in_.substr(line + 2, bytes);
    in_.erase(0, line + bytes + 4);
    if (bytes == 0) {
      answer.whole = true;
      return answer;
    }
  }
}

bool RawClient::closed_by_server(std::chrono::milliseconds longest) {
  const auto until = std::chrono::steady_clock::now() + longest;
  while (receive(until)) in_.clear();
  return std::chrono::steady_clock::now() < until;
}

void RawClient::end_sending() { ::shutdown(socket_, SHUT_WR); }

void RawClient::close() {
  if (socket_ >= 0) ::close(std::exchange(socket_, -1));
}

void RawClient::reset() {
  const linger reset{.l_onoff = 1, .l_linger = 0};
  setsockopt(socket_, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  close();
}

bool RawClient::vanish() {
  const int repair = 1;  // a socket in repair mode closes without a word
  if (setsockopt(socket_, IPPROTO_TCP, TCP_REPAIR, &repair, sizeof repair) != 0) return false;
  close();
  return true;
}

}  // namespace fathom::net
