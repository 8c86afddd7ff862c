// Whatever the bytes, the reader takes no more than there is, stays within its limits, and reads the same requests
// however they are cut. The first byte is how.
#include <algorithm>
#include <vector>

#include "fathom/base/check.h"
#include "fathom/net/http/request_reader.h"

using namespace fathom;
using namespace fathom::net;

namespace {

constexpr RequestLimits kLimits = {.header_bytes = 2048, .body_bytes = 512};

struct Read {
  std::vector<HttpRequest> requests;
  int status = 0;
};

Read read_all(std::string_view bytes, size_t piece) {
  RequestReader reader(kLimits);
  Read read;
  size_t begin = 0, end = 0;
  while (reader.state() != RequestReader::State::failed) {
    const size_t taken = reader.feed(bytes.substr(begin, end - begin));
    check(taken <= end - begin, "no more is taken than there is");
    begin += taken;
    check(int64_t(reader.request().body.size()) <= kLimits.body_bytes, "a body stays within its limit");
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

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Read whole = read_all(bytes, std::max<size_t>(bytes.size(), 1));
  const Read cut = read_all(bytes, 1 + data[0] % 32);
  check(whole.requests.size() == cut.requests.size(), "cuts do not change the number of requests");
  for (size_t i = 0; i < cut.requests.size(); ++i) {
    const HttpRequest &a = whole.requests[i], &b = cut.requests[i];
    check(a.method == b.method && a.target == b.target && a.fields == b.fields && a.body == b.body,
          "cuts do not change a request");
    check(a.target.starts_with('/') || a.target == "*", "a target is a path");
  }
  return 0;
}
