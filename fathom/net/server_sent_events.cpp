#include "fathom/net/server_sent_events.h"

#include <charconv>

namespace fathom::net {

namespace {

bool has_line_break(std::string_view text) { return text.find_first_of("\r\n") != text.npos; }

void append_data_lines(std::string& out, std::string_view data) {
  while (true) {
    const size_t end = data.find_first_of("\r\n");
    out.append("data: ").append(data.substr(0, end)) += '\n';
    if (end == data.npos) return;
    data.remove_prefix(data.substr(end, 2) == "\r\n" ? end + 2 : end + 1);
  }
}

}  // namespace

void append_sse_data(std::string& out, std::string_view data) {
  append_data_lines(out, data);
  out += '\n';
}

void append_sse_event(std::string& out, std::string_view event, std::string_view data) {
  check(!has_line_break(event), "the name of an event has no line break");
  out.append("event: ").append(event) += '\n';
  append_sse_data(out, data);
}

void append_sse_comment(std::string& out, std::string_view text) {
  out += ": ";
  for (const char c : text) out += c == '\r' || c == '\n' ? ' ' : c;
  out += "\n\n";
}

HttpFields event_stream_fields() {
  return {{"Content-Type", "text/event-stream"}, {"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
}

Result<void> SseParser::feed(std::string_view bytes) {
  const Error too_long{ErrorCode::out_of_range,
                       "an event of the stream is longer than " + std::to_string(most_bytes_) + " bytes",
                       "server-sent events", "ask for less at once, or raise the limit"};
  if (failed_) return too_long;
  while (!bytes.empty()) {
    if (after_return_) {
      after_return_ = false;
      if (bytes.front() == '\n') {
        bytes.remove_prefix(1);
        continue;
      }
    }
    const size_t end = bytes.find_first_of("\r\n");
    const std::string_view piece = bytes.substr(0, end);
    if (int64_t(line_.size() + piece.size()) > most_bytes_) {
      failed_ = true;
      return too_long;
    }
    if (end == bytes.npos) {
      line_ += piece;
      return {};
    }
    after_return_ = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
    if (line_.empty()) {
      take_line(piece);
    } else {
      line_ += piece;
      take_line(line_);
      line_.clear();
    }
    if (failed_) return too_long;
  }
  return {};
}

void SseParser::take_line(std::string_view line) {
  constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";
  if (at_start_ && line.starts_with(byte_order_mark)) line.remove_prefix(byte_order_mark.size());
  at_start_ = false;

  if (line.empty()) {  // the end of an event; one without data says nothing
    if (has_data_) {
      data_.pop_back();  // the last line's \n
      events_.push_back({event_.empty() ? "message" : std::move(event_), std::move(data_), id_});
    }
    event_.clear();
    data_.clear();
    has_data_ = false;
    return;
  }
  if (line.front() == ':') {
    ++comments_;
    return;
  }
  const size_t colon = line.find(':');
  const std::string_view name = line.substr(0, colon);
  std::string_view value = colon == line.npos ? std::string_view() : line.substr(colon + 1);
  if (value.starts_with(' ')) value.remove_prefix(1);
  if (name == "data") {
    if (int64_t(data_.size() + value.size()) > most_bytes_) {
      failed_ = true;
      return;
    }
    data_.append(value) += '\n';
    has_data_ = true;
  } else if (name == "event") {
    event_ = value;
  } else if (name == "id") {
    if (value.find('\0') == value.npos) id_ = value;
  } else if (name == "retry") {
    int64_t number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    const bool digits = !value.empty() && value.find_first_not_of("0123456789") == value.npos;
    if (digits && error == std::errc() && end == value.data() + value.size()) retry_milliseconds_ = number;
  }
}

std::optional<ServerSentEvent> SseParser::next() {
  if (events_.empty()) return std::nullopt;
  std::optional<ServerSentEvent> event = std::move(events_.front());
  events_.pop_front();
  return event;
}

}  // namespace fathom::net
