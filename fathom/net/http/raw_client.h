// fathom/net/http/raw_client.h
// A client that sends any bytes and reads one answer at a time: for tests and benchmarks, which want to misbehave.
#pragma once
#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "fathom/net/http_message.h"

namespace fathom::net {

struct RawAnswer {
  int status = 0;
  HttpFields fields;
  std::string body;    // unchunked
  bool whole = false;  // its end came as announced
};

/// One blocking TCP connection. Not for several threads at once.
class RawClient {
 public:
  /// Connects to 127.0.0.1. `receive_buffer` bytes of the system's buffer, 0: the system's choice.
  explicit RawClient(int port, int receive_buffer = 0);
  RawClient(RawClient&& other) noexcept;
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;
  ~RawClient();

  bool connected() const { return socket_ >= 0; }
  int socket() const { return socket_; }

  bool send(std::string_view bytes);
  /// Sends "METHOD path HTTP/1.1", Host, `fields` (each with its \r\n) and the body with its length.
  bool request(std::string_view method, std::string_view path, std::string_view body = {},
               std::string_view fields = {});

  /// The next whole answer (100 Continue included), or what came until the end or the time was over.
  RawAnswer read_answer(std::chrono::milliseconds longest = std::chrono::seconds(10), bool of_head = false);
  /// Bytes until `text` has been seen, the end, or the time is over. They stay for read_answer.
  bool read_until(std::string_view text, std::chrono::milliseconds longest = std::chrono::seconds(10));
  /// True when the server closed within the time; bytes before that are dropped.
  bool closed_by_server(std::chrono::milliseconds longest = std::chrono::seconds(10));

  void end_sending();  // FIN
  void close();        // FIN, and RST for what still comes
  void reset();        // RST
  /// Forgets the connection without telling the server, as a host that lost its power. False: not permitted here.
  bool vanish();

 private:
  bool receive(std::chrono::steady_clock::time_point until);  // more bytes into in_

  int socket_ = -1;
  std::string in_;
};

}  // namespace fathom::net
