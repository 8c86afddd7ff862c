#include "fathom/recipe/conformance/agent_workload.h"

#include <array>

#include "fathom/recipe/conformance/dice.h"

namespace fathom::recipe {
namespace {

constexpr std::array kProse = {
    "the",     "a",       "of",      "to",      "and",     "in",      "is",        "that",     "it",        "this",
    "for",     "with",    "not",     "when",    "file",    "test",    "value",     "before",   "after",     "which",
    "request", "server",  "client",  "should",  "must",    "would",   "because",   "instead",  "function",  "change",
    "error",   "returns", "reads",   "writes",  "called",  "first",   "last",      "only",     "every",     "several",
    "default", "cache",   "process", "signal",  "thread",  "timeout", "directory", "existing", "behaviour", "unless",
    "careful", "explain", "without", "running", "failing", "command", "option",    "folder",   "therefore", "between"};
constexpr std::array kNames = {"config", "index",  "buffer", "parser", "node",  "session", "queue",  "path",
                               "result", "client", "header", "token",  "batch", "worker",  "record", "entry",
                               "state",  "limit",  "offset", "total",  "items", "handler", "source", "target"};
constexpr std::array kTools = {"read_file",   "write_file",   "edit_file",     "list_directory", "search_text",
                               "find_symbol", "run_command",  "run_tests",     "git_status",     "git_diff",
                               "git_commit",  "open_browser", "fetch_page",    "query_database", "create_task",
                               "update_task", "ask_person",   "finish_session"};

Json object(std::initializer_list<std::pair<const char*, Json>> members) {
  Json out = Json::object();
  for (const auto& [key, value] : members) out.set(key, value);
  return out;
}

/// Texts and parts of the conversation; each API arranges them in its own way.
class Maker {
 public:
  explicit Maker(uint64_t seed, uint32_t stream) : dice_(seed, stream) {}

  std::string prose(size_t bytes) {
    std::string out;
    while (out.size() < bytes) {
      std::string sentence(kProse[dice_.below(kProse.size())]);
      sentence[0] = char(sentence[0] - 'a' + 'A');
      for (uint32_t words = 5 + dice_.below(14); words > 0; --words) {
        sentence += dice_.one_in(11) ? ", " : " ";
        sentence += dice_.one_in(9) ? "`" + name() + "`" : std::string(kProse[dice_.below(kProse.size())]);
      }
      out += sentence + (dice_.one_in(6) ? ".\n\n" : ". ");
    }
    return out;
  }

  std::string name() {
    std::string out(kNames[dice_.below(kNames.size())]);
    if (dice_.one_in(2)) out += std::string("_") + kNames[dice_.below(kNames.size())];
    return out;
  }
  std::string path() { return "src/" + name() + "/" + name() + dice_.pick({".py", ".cpp", ".ts", ".md"}); }
  std::string number(uint32_t below) { return std::to_string(dice_.below(below)); }

  std::string code(size_t bytes) {
    std::string out;
    while (out.size() < bytes) {
      out += "def " + name() + "(" + name() + ", " + name() + "=" + number(100) + "):\n";
      out += "    \"\"\"" + prose(30) + "\"\"\"\n";
      for (uint32_t lines = 2 + dice_.below(5); lines > 0; --lines) {
        switch (dice_.below(4)) {
          case 0:
            out += "    if " + name() + " is None or len(" + name() + ") > " + number(4096) +
                   ":\n        "
                   "raise ValueError(f\"bad " +
                   name() + ": {" + name() + "!r}\")\n";
            break;
          case 1:
            out += "    " + name() + " = self." + name() + "[\"" + name() + "\"].get(" + name() + ", {})\n";
            break;
          case 2:
            out += "    for i, " + name() + " in enumerate(" + name() + "):\n        total += " + name() + "[i]\n";
            break;
          default: out += "    # " + prose(20) + "\n"; break;
        }
      }
      out += "    return " + name() + "\n\n";
    }
    return out;
  }

  std::string log(size_t bytes) {
    std::string out;
    while (out.size() < bytes) {
      out += "2026-08-" + std::to_string(10 + dice_.below(20)) + " 12:" + std::to_string(10 + dice_.below(50)) + ":" +
             std::to_string(10 + dice_.below(50)) + "." + number(1000) + dice_.pick({" INFO ", " WARN ", " ERROR "}) +
             path() + ":" + number(900) + " " + name() + "=" + number(100000) + " id=" + hexadecimal() + "\n";
    }
    return out;
  }

  std::string hexadecimal() {
    std::string out;
    for (int i = 0; i < 12; ++i) out += "0123456789abcdef"[dice_.below(16)];
    return out;
  }

  std::string result() {
    const size_t bytes = 250 + dice_.below(400);
    return dice_.one_in(3) ? log(bytes) : code(bytes);
  }

  Json property(int depth) {
    Json out = object({{"description", Json::of(prose(20))}});
    switch (dice_.below(depth > 0 ? 6 : 4)) {
      case 0: out.set("type", Json::of("string")); break;
      case 1:
        out.set("type", Json::of("integer"));
        out.set("minimum", Json::of(0));
        out.set("maximum", Json::of(int64_t(dice_.below(10000))));
        break;
      case 2: out.set("type", Json::of("boolean")); break;
      case 3: {
        Json words = Json::array();
        for (int i = 0; i < 4; ++i) words.push(Json::of(name()));
        out.set("type", Json::of("string"));
        out.set("enum", std::move(words));
        break;
      }
      case 4:
        out.set("type", Json::of("array"));
        out.set("items", property(depth - 1));
        break;
      default:
        for (auto& [key, value] : schema(depth - 1).fields) out.set(key, std::move(value));
        break;
    }
    return out;
  }

  Json schema(int depth) {
    Json properties = Json::object(), required = Json::array();
    for (uint32_t i = 2 + dice_.below(3); i > 0; --i) {
      const std::string key = name();
      properties.set(key, property(depth));
      if (dice_.one_in(2)) required.push(Json::of(key));
    }
    Json out = object({{"type", Json::of("object")}, {"properties", properties}});
    std::vector<Json> unique;
    for (Json& key : required.items) {
      bool seen = false;
      for (const Json& other : unique) seen = seen || other == key;
      if (!seen) unique.push_back(std::move(key));
    }
    required.items = std::move(unique);
    out.set("required", std::move(required));
    out.set("additionalProperties", Json::of(false));
    return out;
  }

  Json arguments() {
    Json out = object({{"path", Json::of(path())}, {"limit", Json::of(int64_t(dice_.below(500)))}});
    if (dice_.one_in(3)) out.set("text", Json::of(code(200)));
    return out;
  }

  const char* tool() { return kTools[dice_.below(kTools.size())]; }

 private:
  Dice dice_;
};

/// How one API writes the parts of a conversation.
class Request {
 public:
  Request(Api api, uint64_t seed) : api_(api), make_(seed, 200) {}

  Json write() {
    Json body = object({{"model", Json::of("DeepSeek-V4.1-Flash")}, {"stream", Json::of(true)}});
    const std::string system = make_.prose(2500);
    Json tools = Json::array();
    for (const char* name : kTools) tools.push(tool(name));
    switch (api_) {
      case Api::chat_completions:
        turns_.push(object({{"role", Json::of("system")}, {"content", Json::of(system)}}));
        break;
      case Api::responses: body.set("instructions", Json::of(system)); break;
      case Api::messages:
        body.set("system", Json::of(system));
        body.set("max_tokens", Json::of(32000));
        body.set("thinking", object({{"type", Json::of("enabled")}}));
        break;
    }
    for (int i = 0; i < kTurns; ++i) turn(i);
    say("user", make_.prose(200));
    body.set(api_ == Api::responses ? "input" : "messages", std::move(turns_));
    body.set("tools", std::move(tools));
    if (api_ == Api::chat_completions) body.set("stream_options", object({{"include_usage", Json::of(true)}}));
    return body;
  }

 private:
  static constexpr int kTurns = 12;

  Json tool(const char* name) {
    Json function = object({{"name", Json::of(name)}, {"description", Json::of(make_.prose(100))}});
    function.set(api_ == Api::messages ? "input_schema" : "parameters", make_.schema(2));
    if (api_ == Api::responses) function.set("type", Json::of("function"));
    if (api_ != Api::chat_completions) return function;
    return object({{"type", Json::of("function")}, {"function", std::move(function)}});
  }

  void say(const char* role, const std::string& text) {
    turns_.push(object({{"role", Json::of(role)}, {"content", Json::of(text)}}));
  }

  /// A question, then thinking and a call, then its result; every third time also words between.
  void turn(int i) {
    if (i % 3 == 0) say("user", make_.prose(150));
    const std::string id = "call_0" + std::to_string(i) + "_" + make_.hexadecimal(), reasoning = make_.prose(150);
    const std::string text = i % 3 == 0 ? make_.prose(100) : "";
    const char* name = make_.tool();
    const Json arguments = make_.arguments();
    const std::string result = make_.result();
    switch (api_) {
      case Api::chat_completions: {
        Json calls = Json::array();
        calls.push(
            object({{"id", Json::of(id)},
                    {"type", Json::of("function")},
                    {"function", object({{"name", Json::of(name)}, {"arguments", Json::of(to_string(arguments))}})}}));
        turns_.push(object({{"role", Json::of("assistant")},
                            {"content", Json::of(text)},
                            {"reasoning_content", Json::of(reasoning)},
                            {"tool_calls", std::move(calls)}}));
        turns_.push(
            object({{"role", Json::of("tool")}, {"tool_call_id", Json::of(id)}, {"content", Json::of(result)}}));
        break;
      }
      case Api::responses: {
        Json parts = Json::array();
        parts.push(object({{"type", Json::of("reasoning_text")}, {"text", Json::of(reasoning)}}));
        turns_.push(
            object({{"type", Json::of("reasoning")}, {"summary", Json::array()}, {"content", std::move(parts)}}));
        if (!text.empty()) say("assistant", text);
        turns_.push(object({{"type", Json::of("function_call")},
                            {"call_id", Json::of(id)},
                            {"name", Json::of(name)},
                            {"arguments", Json::of(to_string(arguments))}}));
        turns_.push(object(
            {{"type", Json::of("function_call_output")}, {"call_id", Json::of(id)}, {"output", Json::of(result)}}));
        break;
      }
      case Api::messages: {
        Json blocks = Json::array(), results = Json::array();
        blocks.push(object(
            {{"type", Json::of("thinking")}, {"thinking", Json::of(reasoning)}, {"signature", Json::of("none")}}));
        if (!text.empty()) blocks.push(object({{"type", Json::of("text")}, {"text", Json::of(text)}}));
        blocks.push(object(
            {{"type", Json::of("tool_use")}, {"id", Json::of(id)}, {"name", Json::of(name)}, {"input", arguments}}));
        turns_.push(object({{"role", Json::of("assistant")}, {"content", std::move(blocks)}}));
        results.push(
            object({{"type", Json::of("tool_result")}, {"tool_use_id", Json::of(id)}, {"content", Json::of(result)}}));
        turns_.push(object({{"role", Json::of("user")}, {"content", std::move(results)}}));
        break;
      }
    }
  }

  Api api_;
  Maker make_;
  Json turns_ = Json::array();
};

std::string parameter(const char* key, bool text, const std::string& value) {
  return "<｜DSML｜ parameter name=\"" + std::string(key) + "\" string=\"" + (text ? "true" : "false") + "\">" + value +
         "</｜DSML｜ parameter>\n";
}

}  // namespace

Json agent_request(Api api, uint64_t seed) { return Request(api, seed).write(); }

AgentAnswer agent_answer(uint64_t seed) {
  Maker make(seed, 201);
  AgentAnswer answer;
  answer.reasoning = make.prose(1500) + "</think>";
  answer.content = make.prose(900) + "\n```python\n" + make.code(600) + "```";
  answer.calls = "\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"edit_file\">\n" + parameter("path", true, make.path()) +
                 parameter("text", true, make.code(1200)) +
                 "</｜DSML｜ invoke>\n<｜DSML｜ invoke name=\"run_tests\">\n" +
                 parameter("limit", false, make.number(1000)) +
                 parameter("options", false, to_string(make.arguments())) + "</｜DSML｜ invoke>\n</｜DSML｜ calls>";
  return answer;
}

}  // namespace fathom::recipe
