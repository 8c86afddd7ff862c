#include "fathom/cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace fathom::cli {
namespace {

using Clock = std::chrono::steady_clock;

Result<void> write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return Error{ErrorCode::failed, std::string("cannot write: ") + std::strerror(errno), "standard output",
                   "check where it goes"};
    }
    text.remove_prefix(size_t(written));
  }
  return {};
}

/// Two columns: Hangul, CJK and full-width forms, emoji. Coarse ranges; a wrong guess only shifts a table.
bool is_wide(uint32_t c) {
  return (c >= 0x1100 && c <= 0x115f) || (c >= 0x2e80 && c <= 0xa4cf) || (c >= 0xac00 && c <= 0xd7a3) ||
         (c >= 0xf900 && c <= 0xfaff) || (c >= 0xfe30 && c <= 0xfe6f) || (c >= 0xff00 && c <= 0xff60) ||
         (c >= 0xffe0 && c <= 0xffe6) || (c >= 0x1f300 && c <= 0x1faff) || (c >= 0x20000 && c <= 0x3fffd);
}

bool is_zero_width(uint32_t c) {
  return (c >= 0x300 && c <= 0x36f) || (c >= 0x200b && c <= 0x200f) || (c >= 0xfe00 && c <= 0xfe0f);
}

}  // namespace

std::string fixed(double value, int decimals) {
  std::array<char, 400> text;
  const int length = std::snprintf(text.data(), text.size(), "%.*f", decimals, value);
  return std::string(text.data(), size_t(std::clamp(length, 0, int(text.size()) - 1)));
}

std::string brief(double value) {
  if (value == 0 || !std::isfinite(value)) return value == 0 ? "0" : std::to_string(value);
  const double size = std::fabs(value);
  if (size >= 1000) return with_commas(int64_t(std::llround(value)));
  if (size >= 100) return fixed(value, 0);
  if (size >= 10) return fixed(value, 1);
  if (size >= 1) return fixed(value, 2);
  std::array<char, 40> text;
  std::snprintf(text.data(), text.size(), "%.3g", value);
  return text.data();
}

std::string size_text(int64_t bytes) {
  struct Unit {
    double factor;
    const char* name;
  };
  for (const Unit unit : {Unit{1e12, " TB"}, Unit{1e9, " GB"}, Unit{1e6, " MB"}, Unit{1e3, " kB"}}) {
    if (double(bytes) >= unit.factor) {
      const double value = double(bytes) / unit.factor;
      return fixed(value, value < 100 ? 2 : 1) + unit.name;
    }
  }
  return std::to_string(bytes) + " B";
}

std::string duration_text(double seconds) {
  if (seconds > 0 && seconds < 0.1) return brief(seconds * 1000) + " ms";  // 0.00 s would say nothing
  if (seconds < 10) return fixed(seconds, 2) + " s";
  const int64_t whole = std::llround(seconds);
  if (whole < 60) return std::to_string(whole) + " s";
  std::array<char, 64> text;
  if (whole < 3600) {
    std::snprintf(text.data(), text.size(), "%d min %02d s", int(whole / 60), int(whole % 60));
  } else {
    std::snprintf(text.data(), text.size(), "%lld h %02d min", (long long)(whole / 3600), int(whole / 60 % 60));
  }
  return text.data();
}

bool stdout_is_terminal() { return ::isatty(STDOUT_FILENO) == 1; }
bool stderr_is_terminal() { return ::isatty(STDERR_FILENO) == 1; }
namespace {
bool colours_wanted() {
  const char* no_colour = std::getenv("NO_COLOR");
  return no_colour == nullptr || *no_colour == '\0';
}
}  // namespace

bool colours_on_stderr() { return stderr_is_terminal() && colours_wanted(); }
bool colours_on_stdout() { return stdout_is_terminal() && colours_wanted(); }

int terminal_columns(int descriptor) {
  winsize size = {};
  if (::ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

int display_width(std::string_view text) {
  int columns = 0;
  for (size_t i = 0; i < text.size();) {
    const auto lead = uint8_t(text[i]);
    const size_t length = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    uint32_t code = length == 1 ? lead : lead & (0x7fu >> length);
    for (size_t k = 1; k < length && i + k < text.size(); ++k) code = code << 6 | (uint8_t(text[i + k]) & 0x3f);
    columns += is_zero_width(code) ? 0 : is_wide(code) ? 2 : 1;
    i += length;
  }
  return columns;
}

std::string Table::text() const {
  std::vector<int> width;
  for (const Column& column : columns_) width.push_back(display_width(column.title));
  for (const auto& row : rows_) {
    for (size_t c = 0; c < row.size(); ++c) width[c] = std::max(width[c], display_width(row[c]));
  }
  std::string out;
  const auto line = [&](auto cell) {
    std::string one;
    for (size_t c = 0; c < columns_.size(); ++c) {
      const std::string& content = cell(c);
      const std::string pad(size_t(width[c] - display_width(content)), ' ');
      if (c > 0) one += "  ";
      one += columns_[c].side == Side::right ? pad + content : content + pad;
    }
    one.erase(one.find_last_not_of(' ') + 1);
    out += one + "\n";
  };
  line([&](size_t c) -> const std::string& { return columns_[c].title; });
  const std::string none;
  for (const auto& row : rows_) line([&](size_t c) -> const std::string& { return c < row.size() ? row[c] : none; });
  return out;
}

Result<void> print(std::string_view text) { return write_all(STDOUT_FILENO, text); }
void print_note(std::string_view text) { (void)write_all(STDERR_FILENO, text).ok(); }

Progress::Progress(std::string what, std::string unit, int64_t total)
    : what_(std::move(what)), unit_(std::move(unit)), total_(total), on_(stderr_is_terminal()), begin_(Clock::now()) {}

std::string Progress::line(std::string_view what, std::string_view unit, int64_t done, int64_t total, int64_t fresh,
                           double seconds, std::string_view extra, int columns) {
  std::string text = std::string(what) + " " + with_commas(done);
  if (total > 0) {
    text += "/" + with_commas(total) + " " + std::string(unit) + ", " + std::to_string(100 * done / total) + " %";
  } else {
    text += " " + std::string(unit);
  }
  if (seconds > 0.2 && fresh > 0) {
    const double rate = double(fresh) / seconds;
    text += ", " + brief(rate) + "/s";
    if (total > done) text += ", " + duration_text(double(total - done) / rate) + " left";
  }
  if (!extra.empty()) text += ", " + std::string(extra);
  if (int(text.size()) >= columns) text.resize(size_t(std::max(columns - 1, 0)));
  return text;
}

void Progress::update(int64_t done, std::string_view extra) {
  if (!on_) return;
  const auto now = Clock::now();
  if (first_ < 0) first_ = done;
  if (shown_ && done < total_ && now - last_ < std::chrono::milliseconds(100)) return;
  last_ = now;
  shown_ = true;
  const double seconds = std::chrono::duration<double>(now - begin_).count();
  const int columns = terminal_columns(STDERR_FILENO);
  print_note("\r\x1b[K" + line(what_, unit_, done, total_, done - first_, seconds, extra, columns));
}

void Progress::finish() {
  if (shown_) print_note("\r\x1b[K");
  shown_ = false;
}

}  // namespace fathom::cli
