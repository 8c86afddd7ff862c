#include "fathom/base/log.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <ctime>
#include <mutex>
#include <thread>
#include <vector>

#include "fathom/base/json.h"

namespace fathom {
namespace {

constexpr std::array<const char*, 5> kLevels = {"error", "warn", "info", "debug", "trace"};

void append_number(std::string& out, double value) {
  if (!std::isfinite(value)) {
    out += std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
    return;
  }
  char text[32];
  const auto [end, error] = std::to_chars(text, text + sizeof text, value, std::chars_format::general, 6);
  out.append(text, end);
}

bool plain(std::string_view text) {
  const auto fits = [](char c) { return c > ' ' && c != '"' && c != '\\' && c != '=' && c != 0x7f; };
  return !text.empty() && std::all_of(text.begin(), text.end(), [&](char c) { return fits(c) || (c & 0x80) != 0; });
}

// A sentence stays as it is, but for what would end its line.
void append_sentence(std::string& out, std::string_view text) {
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte != 0x7f) {
      out += c;
    } else {
      std::string quoted;
      append_json_string(quoted, std::string_view(&c, 1));
      out += byte == 0x7f ? std::string("\\u007f") : quoted.substr(1, quoted.size() - 2);
    }
  }
}

void append_human(std::string& out, const LogField& field) {
  out += ' ';
  out += field.key;
  out += '=';
  if (const auto* whole = std::get_if<int64_t>(&field.value)) {
    out += std::to_string(*whole);
  } else if (const auto* real = std::get_if<double>(&field.value)) {
    append_number(out, *real);
  } else if (const auto* yes = std::get_if<bool>(&field.value)) {
    out += *yes ? "true" : "false";
  } else if (const auto text = std::get<std::string_view>(field.value); plain(text)) {
    out += text;
  } else {
    append_json_string(out, text);
  }
}

void append_json_field(std::string& out, const LogField& field) {
  out += out.size() > 1 ? "," : "";
  append_json_string(out, field.key);
  out += ':';
  if (const auto* whole = std::get_if<int64_t>(&field.value)) {
    out += std::to_string(*whole);
  } else if (const auto* real = std::get_if<double>(&field.value)) {
    std::isfinite(*real) ? append_number(out, *real) : void(out += "null");
  } else if (const auto* yes = std::get_if<bool>(&field.value)) {
    out += *yes ? "true" : "false";
  } else {
    append_json_string(out, std::get<std::string_view>(field.value));
  }
}

std::string time_now() {
  const auto now = std::chrono::system_clock::now();
  const std::time_t whole = std::chrono::system_clock::to_time_t(now);
  const auto part = std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000;
  std::tm utc{};
  gmtime_r(&whole, &utc);
  char text[40];
  const size_t length = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc);
  const int more = std::snprintf(text + length, sizeof text - length, ".%03dZ", int(part));
  return {text, length + size_t(more)};
}

}  // namespace

const char* name_of(LogLevel level) { return kLevels[size_t(level)]; }

std::optional<LogLevel> log_level_of(std::string_view name) {
  const auto at = std::find(kLevels.begin(), kLevels.end(), name);
  if (at == kLevels.end()) return {};
  return LogLevel(at - kLevels.begin());
}

std::string log_line(LogFormat format, std::string_view time, LogLevel level, std::string_view text,
                     std::span<const LogField> fields) {
  std::string out;
  if (format == LogFormat::json) {
    out += '{';
    if (!time.empty()) append_json_field(out, {"time", time});
    append_json_field(out, {"level", name_of(level)});
    if (!text.empty()) append_json_field(out, {"message", text});
    for (const LogField& field : fields) append_json_field(out, field);
    return out += '}';
  }
  if (!time.empty()) out.append("time=").append(time) += ' ';
  out.append("level=") += name_of(level);
  if (!text.empty()) append_sentence(out += ' ', text);
  for (const LogField& field : fields) append_human(out, field);
  return out;
}

struct Log::State {
  LogOptions options;
  std::mutex mutex;
  std::condition_variable arrived, written;
  std::vector<std::string> lines;  // a ring; strings keep their memory
  size_t first = 0, waiting = 0;
  int64_t put = 0, done = 0, dropped = 0, told = 0;  // lines; `done` are written or dropped
  bool stop = false;
  std::thread thread;

  explicit State(LogOptions given) : options(std::move(given)), lines(size_t(std::max(1, options.queue_lines))) {
    if (!options.write) {
      options.write = [](std::string_view line) { std::fwrite(line.data(), 1, line.size(), stderr); };
    }
    thread = std::thread([this] { run(); });
  }
  ~State() {
    {
      const std::lock_guard lock(mutex);
      stop = true;
    }
    arrived.notify_one();
    thread.join();
  }

  void push(std::string& line) {
    {
      const std::lock_guard lock(mutex);
      ++put;
      if (waiting == lines.size()) {  // the oldest goes
        first = (first + 1) % lines.size();
        --waiting, ++dropped, ++done;
      }
      lines[(first + waiting) % lines.size()].swap(line);
      ++waiting;
    }
    arrived.notify_one();
  }

  void run() {
    std::string line;
    std::unique_lock lock(mutex);
    for (;;) {
      arrived.wait(lock, [&] { return waiting > 0 || stop; });
      if (waiting == 0) return;
      line.swap(lines[first]);
      first = (first + 1) % lines.size();
      --waiting;
      const int64_t lost = dropped - told;
      told = dropped;
      lock.unlock();
      if (lost > 0) {
        const LogField count[] = {{"dropped_lines", lost}};
        options.write(log_line(options.format, options.times ? time_now() : "", LogLevel::warn, "", count) + "\n");
      }
      options.write(line);
      lock.lock();
      ++done;
      written.notify_all();
    }
  }

  void flush() {
    std::unique_lock lock(mutex);
    const int64_t until = put;
    written.wait(lock, [&] { return done >= until; });
  }
};

Log::Log(LogOptions options) : level_(std::make_unique<std::atomic<LogLevel>>(options.level)) {
  state_ = std::make_unique<State>(std::move(options));
}
Log::Log(Log&&) noexcept = default;
Log& Log::operator=(Log&&) noexcept = default;
Log::~Log() = default;

void Log::put(LogLevel level, std::string_view text, std::span<const LogField> fields) {
  const LogOptions& options = state_->options;
  std::string line = log_line(options.format, options.times ? time_now() : "", level, text, fields);
  line += '\n';
  state_->push(line);
}

int64_t Log::dropped() const {
  const std::lock_guard lock(state_->mutex);
  return state_->dropped;
}

void Log::flush() { state_->flush(); }

}  // namespace fathom
