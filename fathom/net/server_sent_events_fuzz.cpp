// Whatever the stream, how it is cut makes no difference, and an event that was read survives writing and reading.
#include <algorithm>
#include <vector>

#include "fathom/base/check.h"
#include "fathom/net/server_sent_events.h"

using namespace fathom;
using namespace fathom::net;

namespace {

std::vector<ServerSentEvent> events_of(std::string_view stream, size_t piece) {
  SseParser parser(1000);
  std::vector<ServerSentEvent> events;
  while (!stream.empty()) {
    const bool ok = parser.feed(stream.substr(0, piece)).ok();
    stream.remove_prefix(std::min(piece, stream.size()));
    while (auto event = parser.next()) events.push_back(std::move(*event));
    if (!ok) break;
  }
  return events;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const size_t piece = 1 + data[0] % 16;
  const std::string_view stream(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto whole = events_of(stream, std::max<size_t>(stream.size(), 1));
  check(events_of(stream, piece) == whole, "cuts do not matter");
  for (const ServerSentEvent& event : whole) {
    std::string out;
    append_sse_event(out, event.event, event.data);
    const auto again = events_of(out, 5);
    // A line of 1,000 bytes grows by its "data: ".
    if (out.size() > 900) continue;
    check(again.size() == 1 && again[0].event == event.event && again[0].data == event.data, "events survive");
  }
  return 0;
}
