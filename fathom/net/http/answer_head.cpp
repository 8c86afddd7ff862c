#include "fathom/net/http/answer_head.h"

#include <time.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <ctime>

namespace fathom::net {

namespace {

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
}

bool is_ours(std::string_view name) {
  return std::ranges::any_of(
      std::array<std::string_view, 5>{"Content-Length", "Transfer-Encoding", "Connection", "Date", "Server"},
      [name](std::string_view ours) { return equals_ignoring_case(name, ours); });
}

void append_number(std::string& out, int64_t number, int base = 10) {
  std::array<char, 24> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number, base).ptr;
  out.append(digits.data(), end);
}

}  // namespace

bool may_have_body(int status) { return status >= 200 && status != 204 && status != 304; }

std::string_view http_date() {
  struct Written {
    std::time_t second = -1;
    std::array<char, 32> text{};
    size_t length = 0;
  };
  thread_local Written written;
  const std::time_t now = std::time(nullptr);
  if (now != written.second) {
    // By hand: strftime writes the names in the locale's language.
    static constexpr std::string_view days = "SunMonTueWedThuFriSat", months = "JanFebMarAprMayJunJulAugSepOctNovDec";
    std::tm utc{};
    gmtime_r(&now, &utc);
    std::string text;
    const auto two = [&text](int number) {
      if (number < 10) text += '0';
      append_number(text, number);
    };
    text.append(days.substr(size_t(utc.tm_wday) * 3, 3)).append(", ");
    two(utc.tm_mday);
    text.append(" ").append(months.substr(size_t(utc.tm_mon) * 3, 3)).append(" ");
    append_number(text, utc.tm_year + 1900);
    text += ' ';
    two(utc.tm_hour);
    text += ':';
    two(utc.tm_min);
    text += ':';
    two(utc.tm_sec);
    text += " GMT";
    written.second = now;
    written.length = std::min(text.size(), written.text.size());
    std::copy_n(text.data(), written.length, written.text.data());
  }
  return {written.text.data(), written.length};
}

void append_head(std::string& out, const AnswerHead& head) {
  out += "HTTP/1.1 ";
  append_number(out, head.status);
  out.append(" ").append(reason_phrase(head.status)).append("\r\n");
  if (!head.server_name.empty()) out.append("Server: ").append(head.server_name).append("\r\n");
  out.append("Date: ").append(http_date()).append("\r\n");
  if (head.framing == Framing::length) {
    out += "Content-Length: ";
    append_number(out, head.content_length);
    out += "\r\n";
  } else if (head.framing == Framing::chunks) {
    out += "Transfer-Encoding: chunked\r\n";
  }
  if (!head.keep_alive) {
    out += "Connection: close\r\n";
  } else if (head.minor_version == 0) {
    out += "Connection: keep-alive\r\n";
  }
  if (head.fields) {
    for (const auto& [name, value] : head.fields->fields) {
      if (name.empty() || !std::ranges::all_of(name, is_name_character) || is_ours(name)) continue;
      out.append(name).append(": ");
      for (const char c : value) out += (static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7f ? ' ' : c;
      out += "\r\n";
    }
  }
  out += "\r\n";
}

void append_chunk(std::string& out, std::string_view bytes) {
  if (bytes.empty()) return;
  append_number(out, int64_t(bytes.size()), 16);
  out.append("\r\n").append(bytes).append("\r\n");
}

}  // namespace fathom::net
