#include "fathom/engine/trace.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "fathom/base/json.h"
#include "fathom/base/philox.h"

namespace fathom {
namespace {

constexpr uint64_t kOwnSeeds = uint64_t(1) << 62;  // of requests that give none; people write smaller ones
constexpr uint64_t kMostSeed = (uint64_t(1) << 63) - 1;
constexpr double kMostSeconds = 1e9;
constexpr int64_t kMostLineBytes = int64_t(16) << 20;
constexpr const char* kKeys =
    "arrival, prompt_tokens, output_tokens, max_tokens, answers, prefix, seed, output_seed, tenant, priority, "
    "first_token_seconds, between_tokens_seconds, session, pause_seconds, cancel_seconds and acceptance";

/// Reads the fields of one line; the first thing that is wrong is kept.
class LineReader {
 public:
  LineReader(const Json& line, std::string where) : line_(line), where_(std::move(where)) {}

  void fail(const std::string& what, const std::string& remedy) {
    if (!error_) error_ = Error{ErrorCode::bad_input, what, where_, remedy};
  }
  const std::optional<Error>& error() const { return error_; }

  bool has(const char* key) const { return line_.find(key) != nullptr; }
  int64_t integer(const char* key, int64_t least, int64_t most, std::optional<int64_t> fallback) {
    const Json* value = line_.find(key);
    if (value == nullptr && fallback) return *fallback;
    const std::string range = "from " + std::to_string(least) + " to " + std::to_string(most);
    if (value == nullptr) return fail(missing(key), "give an integer " + range), least;
    const auto number = value->as_int64();
    if (!number || *number < least || *number > most)
      return fail(found(key, *value), "give an integer " + range), least;
    return *number;
  }
  std::optional<double> seconds(const char* key) {
    const Json* value = line_.find(key);
    if (value == nullptr) return {};
    const auto number = value->as_double();
    if (!number || !(*number >= 0) || *number > kMostSeconds) {
      fail(found(key, *value), "give seconds from 0 to 1e9");
      return {};
    }
    return *number;
  }
  std::string text(const char* key) {
    const Json* value = line_.find(key);
    if (value == nullptr) return {};
    if (!value->is_string() || value->text.size() > 256) fail(found(key, *value), "give a text of at most 256 bytes");
    return value->text;
  }
  uint64_t seed(const Json& value, const char* key) {
    const auto number = value.as_int64();
    if (!number || *number < 0) return fail(found(key, value), "a seed is an integer from 0 to 2^63 - 1"), 0;
    return uint64_t(*number);
  }
  std::vector<TextPart> parts(const char* key) {
    const Json* value = line_.find(key);
    std::vector<TextPart> out;
    if (value == nullptr) return out;
    for (const Json& part : value->items) {
      const auto tokens = part.items.size() == 2 ? part.items[1].as_int64() : std::nullopt;
      if (!tokens || *tokens < 1 || *tokens > kMostTraceTokens) break;
      out.push_back({seed(part.items[0], key), *tokens});
    }
    if (!value->is_array() || out.size() != value->items.size()) {
      fail(found(key, *value), "give a list of pairs [seed, tokens], such as [[7, 2048], [11, 300]]");
    }
    return out;
  }
  std::vector<double> shares(const char* key, size_t most) {
    const Json* value = line_.find(key);
    std::vector<double> out;
    if (value == nullptr) return out;
    for (const Json& item : value->items) {
      const auto share = item.as_double();
      if (!share || !(*share >= 0 && *share <= 1)) break;
      out.push_back(*share);
    }
    if (!value->is_array() || out.size() != value->items.size() || out.size() > most) {
      fail(found(key, *value),
           "give a list of at most " + std::to_string(most) + " numbers from 0 to 1, such as [0.8, 0.7, 0.6]");
    }
    return out;
  }
  void known(std::initializer_list<const char*> keys) {
    for (const auto& [key, value] : line_.fields) {
      if (std::none_of(keys.begin(), keys.end(), [&](const char* one) { return key == one; })) {
        return fail("unknown key " + shortened(to_string(Json::of(key))), std::string("the keys are ") + kKeys);
      }
    }
  }

 private:
  static std::string missing(const char* key) { return std::string("\"") + key + "\" is missing"; }
  static std::string shortened(std::string text) {
    if (text.size() <= 60) return text;
    size_t end = 57;  // not inside a character
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
    return text.substr(0, end) + "...";
  }
  static std::string found(const char* key, const Json& value) {
    return std::string("\"") + key + "\" is " + shortened(to_string(value));
  }

  const Json& line_;
  std::string where_;
  std::optional<Error> error_;
};

Result<TraceRequest> parse_line(std::string_view text, const std::string& where, uint64_t number) {
  const auto json = parse_json(text, where, {.bytes = kMostLineBytes, .depth = 8});
  if (!json) return json.error();
  if (!json->is_object()) {
    return Error{ErrorCode::bad_input, "the line is no object", where,
                 "write {\"arrival\": 0, \"prompt_tokens\": 300, \"output_tokens\": 50}"};
  }
  LineReader read(*json, where);
  read.known({"arrival", "prompt_tokens", "output_tokens", "max_tokens", "answers", "prefix", "seed", "output_seed",
              "tenant", "priority", "first_token_seconds", "between_tokens_seconds", "session", "pause_seconds",
              "cancel_seconds", "acceptance"});
  TraceRequest request;
  if (!read.has("arrival")) read.fail("\"arrival\" is missing", "give seconds since the start of the trace");
  request.arrival = read.seconds("arrival").value_or(0);
  request.prompt_tokens = read.integer("prompt_tokens", 1, kMostTraceTokens, {});
  request.output_tokens = read.integer("output_tokens", 1, kMostTraceTokens, {});
  request.max_tokens = read.integer("max_tokens", 0, kMostTraceTokens, 0);
  if (request.max_tokens != 0 && request.max_tokens < request.output_tokens) {
    read.fail("\"max_tokens\" is " + std::to_string(request.max_tokens) + ", \"output_tokens\" " +
                  std::to_string(request.output_tokens),
              "an answer cannot be longer than it may be; leave max_tokens out");
  }
  request.answers = int(read.integer("answers", 1, kMostTraceAnswers, 1));
  request.prefix = read.parts("prefix");
  int64_t shared = 0;
  for (const TextPart& part : request.prefix) shared += part.tokens;
  if (shared > request.prompt_tokens) {
    read.fail(
        "\"prefix\" has " + std::to_string(shared) + " tokens, the prompt " + std::to_string(request.prompt_tokens),
        "the prefix is part of the prompt");
  }
  const Json* seed = json->find("seed");
  const Json* output_seed = json->find("output_seed");
  request.seed = seed != nullptr ? read.seed(*seed, "seed") : kOwnSeeds + 2 * number;
  request.output_seed = output_seed != nullptr ? read.seed(*output_seed, "output_seed") : kOwnSeeds + 2 * number + 1;
  request.tenant = read.text("tenant");
  request.priority = int(read.integer("priority", -1000, 1000, 0));
  request.first_token_seconds = read.seconds("first_token_seconds");
  request.between_tokens_seconds = read.seconds("between_tokens_seconds");
  request.session = read.text("session");
  request.pause_seconds = read.seconds("pause_seconds");
  if (request.pause_seconds && request.session.empty()) {
    read.fail("\"pause_seconds\" without \"session\"", "name the session whose request before it waits for");
  }
  request.cancel_seconds = read.seconds("cancel_seconds");
  request.acceptance = read.shares("acceptance", 8);
  if (read.error()) return *read.error();
  return request;
}

void set_seconds(Json& line, const char* key, const std::optional<double>& value) {
  if (value) line.set(key, Json::of(*value));
}

}  // namespace

TraceFile parse_trace(std::string_view text, const std::string& where) {
  TraceFile file;
  uint64_t number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ' || line.back() == '\t')) line.remove_suffix(1);
    if (line.empty()) continue;
    auto request = parse_line(line, where + ", line " + std::to_string(number), number);
    if (request) {
      file.requests.push_back(std::move(*request));
    } else {
      file.errors.push_back(request.error());
    }
  }
  return file;
}

Result<std::vector<TraceRequest>> read_trace(std::string_view text, const std::string& where) {
  TraceFile file = parse_trace(text, where);
  if (!file.errors.empty()) {
    Error error = file.errors[0];
    const size_t more = file.errors.size() - 1;
    if (more > 0) error.message += ", and " + std::to_string(more) + " further bad lines";
    return error;
  }
  if (file.requests.empty()) {
    return Error{ErrorCode::bad_input, "the trace has no request", where, "write one JSON object a line"};
  }
  return std::move(file.requests);
}

std::string write_trace(const std::vector<TraceRequest>& requests) {
  std::string out;
  for (const TraceRequest& request : requests) {
    Json line = Json::object();
    line.set("arrival", Json::of(request.arrival));
    line.set("prompt_tokens", Json::of(request.prompt_tokens));
    line.set("output_tokens", Json::of(request.output_tokens));
    if (request.max_tokens != 0) line.set("max_tokens", Json::of(request.max_tokens));
    if (request.answers != 1) line.set("answers", Json::of(request.answers));
    if (!request.prefix.empty()) {
      Json parts = Json::array();
      for (const TextPart& part : request.prefix) {
        parts.push(Json::array().push(Json::of(int64_t(part.seed))).push(Json::of(part.tokens)));
      }
      line.set("prefix", std::move(parts));
    }
    check(request.seed <= kMostSeed && request.output_seed <= kMostSeed, "seeds are below 2^63");
    line.set("seed", Json::of(int64_t(request.seed)));
    line.set("output_seed", Json::of(int64_t(request.output_seed)));
    if (!request.tenant.empty()) line.set("tenant", Json::of(request.tenant));
    if (request.priority != 0) line.set("priority", Json::of(request.priority));
    set_seconds(line, "first_token_seconds", request.first_token_seconds);
    set_seconds(line, "between_tokens_seconds", request.between_tokens_seconds);
    if (!request.session.empty()) line.set("session", Json::of(request.session));
    set_seconds(line, "pause_seconds", request.pause_seconds);
    set_seconds(line, "cancel_seconds", request.cancel_seconds);
    if (!request.acceptance.empty()) {
      Json rates = Json::array();
      for (const double rate : request.acceptance) rates.push(Json::of(rate));
      line.set("acceptance", std::move(rates));
    }
    append_json(out, line);
    out += '\n';
  }
  return out;
}

int32_t stream_token(uint64_t seed, int64_t index, int32_t vocabulary) {
  check(vocabulary > 2, "a vocabulary has tokens besides the special ones");
  const auto words = philox(seed, {uint32_t(uint64_t(index) >> 2), uint32_t(uint64_t(index) >> 34), 0x7472, 0});
  return int32_t(2 + words[size_t(index) & 3] % uint32_t(vocabulary - 2));
}

void append_stream(uint64_t seed, int64_t count, int32_t vocabulary, std::vector<int32_t>& out) {
  for (int64_t i = 0; i < count; i += 4) {
    const auto words = philox(seed, {uint32_t(uint64_t(i) >> 2), uint32_t(uint64_t(i) >> 34), 0x7472, 0});
    for (int64_t j = i; j < std::min(i + 4, count); ++j) {
      out.push_back(int32_t(2 + words[size_t(j) & 3] % uint32_t(vocabulary - 2)));
    }
  }
}

std::vector<int32_t> trace_prompt(const TraceRequest& request, int32_t vocabulary) {
  std::vector<int32_t> out;
  out.reserve(size_t(request.prompt_tokens));
  for (const TextPart& part : request.prefix) append_stream(part.seed, part.tokens, vocabulary, out);
  append_stream(request.seed, request.prompt_tokens - int64_t(out.size()), vocabulary, out);
  return out;
}

uint64_t output_seed_of(const TraceRequest& request, int answer) {
  if (answer == 0) return request.output_seed;
  const auto words = philox(request.output_seed, {uint32_t(answer), 0, 0x616e, 0});
  return (words[0] | uint64_t(words[1]) << 32) & kMostSeed;
}

}  // namespace fathom
