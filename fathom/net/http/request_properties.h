// fathom/net/http/request_properties.h
// What holds for any bytes that a client sends: the fuzzer and the test over its corpus ask the same.
#pragma once
#include <algorithm>
#include <string_view>
#include <vector>

#include "fathom/base/check.h"
#include "fathom/net/http/request_reader.h"

namespace fathom::net {

constexpr RequestLimits kFuzzLimits = {.header_bytes = 2048, .body_bytes = 512};

struct ReadRequests {
  std::vector<HttpRequest> requests;
  int status = 0;
};

inline ReadRequests read_requests(std::string_view bytes, size_t piece) {
  RequestReader reader(kFuzzLimits);
  ReadRequests read;
  size_t begin = 0, end = 0;
  while (reader.state() != RequestReader::State::failed) {
    const size_t taken = reader.feed(bytes.substr(begin, end - begin));
    check(taken <= end - begin, "no more is taken than there is");
    begin += taken;
    check(int64_t(reader.request().body.size()) <= kFuzzLimits.body_bytes, "a body stays within its limit");
    if (reader.state() == RequestReader::State::body || reader.state() == RequestReader::State::done) {
      (void)reader.keep_alive();
      (void)reader.content_length();
    }
    if (reader.state() == RequestReader::State::done) {
      read.requests.push_back(reader.take());
      continue;
    }
    if (taken > 0) continue;
    if (end == bytes.size()) break;
    end += std::min(piece, bytes.size() - end);
  }
  read.status = reader.status();
  check(read.status == 0 || (read.status >= 400 && read.status <= 505 && !reader.message().empty()),
        "a failure says why");
  return read;
}

/// Whatever the bytes, the reader takes no more than there is, stays within its limits, and reads the same requests
/// however they are cut. The first byte is how. Aborts when that does not hold; returns the requests and the status.
inline ReadRequests check_request_properties(std::string_view input) {
  if (input.empty()) return {};
  const std::string_view bytes = input.substr(1);
  ReadRequests whole = read_requests(bytes, std::max<size_t>(bytes.size(), 1));
  const ReadRequests cut = read_requests(bytes, 1 + static_cast<unsigned char>(input[0]) % 32);
  check(whole.requests.size() == cut.requests.size(), "cuts do not change the number of requests");
  for (size_t i = 0; i < cut.requests.size(); ++i) {
    const HttpRequest &a = whole.requests[i], &b = cut.requests[i];
    check(a.method == b.method && a.target == b.target && a.fields == b.fields && a.body == b.body,
          "cuts do not change a request");
    check(a.target.starts_with('/') || a.target == "*", "a target is a path");
  }
  return whole;
}

}  // namespace fathom::net
