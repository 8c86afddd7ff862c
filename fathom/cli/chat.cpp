// fathom/cli/chat.cpp
// `fathom chat`: a conversation in the terminal (design/cli.md 2). Each question sends the whole conversation again;
// the engine's cache makes that cheap once it keeps prefixes.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>

#include "fathom/base/mapped_file.h"
#include "fathom/cli/generate.h"
#include "fathom/cli/interrupt.h"
#include "fathom/cli/option_value.h"
#include "fathom/cli/program.h"
#include "fathom/cli/reasoning_text.h"
#include "fathom/cli/terminal.h"

namespace fathom::cli {
namespace {

struct Settings {
  std::optional<std::string> system;
  std::string effort = "high", tools;
  std::string reasoning;  // empty: show when stderr is a terminal
  SamplingSettings sampling;
  EngineSettings engine;
};

/// Lines of standard input. On a terminal the kernel's own line editing serves.
class LineReader {
 public:
  enum class End { line, closed, interrupted };
  End next(std::string& line) {
    for (;;) {
      if (const size_t at = held_.find('\n'); at != std::string::npos) {
        line = held_.substr(0, at);
        held_.erase(0, at + 1);
        return End::line;
      }
      if (!wait_for_input(STDIN_FILENO)) return End::interrupted;
      std::array<char, 4096> piece;
      const ssize_t count = ::read(STDIN_FILENO, piece.data(), piece.size());
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) {
        line = std::exchange(held_, {});
        return line.empty() ? End::closed : End::line;
      }
      held_.append(piece.data(), size_t(count));
    }
  }

 private:
  std::string held_;
};

constexpr const char* kHelp =
    "  /new               forget the conversation\n"
    "  /system TEXT       instructions in front; without TEXT: none\n"
    "  /effort LEVEL      none, low, high, max or 1 to 100\n"
    "  /tools FILE        functions that the answer may call; without FILE: none\n"
    "  /set NAME VALUE    a sampling option, such as /set temperature 0\n"
    "  /undo              forget the last question and its answer\n"
    "  /retry             ask the last question again\n"
    "  /stats             what the last answer cost\n"
    "  /tokens            how long the conversation is\n"
    "  /save FILE         write the conversation as JSON; /load FILE reads it\n"
    "  /exit              leave, as Ctrl-D does; Ctrl-C stops an answer\n";

/// Conversation as the messages of a chat request, and back.
Json to_json(const Conversation& conversation) {
  Json messages = Json::array();
  for (const Turn& turn : conversation.turns) {
    constexpr std::array<const char*, 4> kRoles = {"system", "user", "assistant", "tool"};
    Json message = Json::object();
    message.set("role", Json::of(kRoles[size_t(turn.role)]));
    message.set("content", Json::of(turn.text));
    if (!turn.reasoning.empty()) message.set("reasoning_content", Json::of(turn.reasoning));
    if (!turn.calls.empty()) {
      Json calls = Json::array();
      for (const ToolCall& call : turn.calls) {
        Json function = Json::object();
        function.set("name", Json::of(call.name));
        function.set("arguments", Json::of(call.arguments));
        Json entry = Json::object();
        entry.set("type", Json::of("function"));
        entry.set("function", std::move(function));
        calls.push(std::move(entry));
      }
      message.set("tool_calls", std::move(calls));
    }
    messages.push(std::move(message));
  }
  Json tree = Json::object();
  tree.set("messages", std::move(messages));
  return tree;
}

Result<std::vector<Turn>> read_turns(const std::string& path) {
  const auto text = read_file(path, int64_t(64) << 20);
  if (!text) return text.error();
  const auto tree = parse_json(*text, path);
  if (!tree) return tree.error();
  const Json* messages = tree->find("messages");
  if (messages == nullptr || !messages->is_array()) {
    return Error{ErrorCode::bad_input, "no \"messages\" list", path, "load a file that /save wrote"};
  }
  std::vector<Turn> turns;
  for (const Json& message : messages->items) {
    const Json* role = message.find("role");
    const Json* content = message.find("content");
    Turn turn;
    const std::string name = role != nullptr ? role->text : "";
    if (name == "system") {
      turn.role = Turn::Role::system;
    } else if (name == "assistant") {
      turn.role = Turn::Role::assistant;
    } else if (name == "tool") {
      turn.role = Turn::Role::tool;
    } else if (name != "user") {
      return Error{ErrorCode::bad_input, "message " + std::to_string(turns.size()) + " has the role \"" + name + "\"",
                   path, "use system, user, assistant or tool"};
    }
    if (content != nullptr && content->is_string()) turn.text = content->text;
    if (const Json* reasoning = message.find("reasoning_content")) turn.reasoning = reasoning->text;
    if (const Json* calls = message.find("tool_calls")) {
      for (const Json& call : calls->items) {
        const Json* function = call.find("function");
        const Json* call_name = function != nullptr ? function->find("name") : nullptr;
        const Json* arguments = function != nullptr ? function->find("arguments") : nullptr;
        if (call_name != nullptr && arguments != nullptr) turn.calls.push_back({call_name->text, arguments->text});
      }
    }
    turns.push_back(std::move(turn));
  }
  return turns;
}

/// The state of one run of `chat`.
class Chat {
 public:
  Chat(Settings settings, const Common& common, const LoadedModel& model, Engine& engine)
      : settings_(std::move(settings)), common_(common), tokenizer_(*model.tokenizer), engine_(engine) {}

  Result<void> begin() {
    if (settings_.system) set_system(*settings_.system);
    if (auto set = set_effort(settings_.effort); !set) return set;
    return settings_.tools.empty() ? Result<void>() : set_tools(settings_.tools);
  }

  /// False: leave. Mistakes in a command are told and the conversation goes on.
  Result<bool> line(const std::string& text) {
    if (text.empty()) return true;
    if (text.starts_with('/')) return command(text);
    conversation_.turns.push_back({Turn::Role::user, text, {}, {}});
    return answer();
  }

 private:
  void set_system(const std::string& text) {
    auto& turns = conversation_.turns;
    if (!turns.empty() && turns[0].role == Turn::Role::system) turns.erase(turns.begin());
    if (!text.empty()) turns.insert(turns.begin(), {Turn::Role::system, text, {}, {}});
  }
  Result<void> set_effort(const std::string& text) {
    const auto effort = parse_effort(text);
    if (!effort) {
      return Error{ErrorCode::usage, "unknown effort \"" + text + "\"", "--effort",
                   "use none, low, high, max or a number from 1 to 100"};
    }
    conversation_.thinking = effort->thinking;
    conversation_.effort = effort->number;
    return {};
  }
  Result<void> set_tools(const std::string& path) {
    GenerateSettings read;
    read.tools = path;
    auto frame = chat_frame(read);
    if (!frame) return frame.error();
    conversation_.tools = std::move(frame->tools);
    return {};
  }

  void tell(const std::string& text) { print_note(text); }
  void tell(const Result<void>& result, const std::string& done) {
    tell(result ? done : error_line(result.error(), common_.json));
  }

  Result<std::vector<int32_t>> ids() const {
    const RenderedPrompt prompt = render(conversation_);
    return tokenizer_.encode(prompt.text, prompt.special);
  }

  /// Drops the last question and what followed it.
  bool undo() {
    auto& turns = conversation_.turns;
    const auto last =
        std::find_if(turns.rbegin(), turns.rend(), [](const Turn& t) { return t.role == Turn::Role::user; });
    if (last == turns.rend()) return false;
    turns.erase(last.base() - 1, turns.end());
    return true;
  }

  Result<bool> command(const std::string& text) {
    const size_t space = std::min(text.find(' '), text.size());
    const std::string name = text.substr(1, space - 1);
    const std::string rest = space < text.size() ? text.substr(space + 1) : "";
    auto& turns = conversation_.turns;
    if (name == "exit" || name == "quit") return false;
    if (name == "help") {
      tell(kHelp);
    } else if (name == "new") {
      std::erase_if(turns, [](const Turn& t) { return t.role != Turn::Role::system; });
      tell("a new conversation\n");
    } else if (name == "system") {
      set_system(rest);
      tell(rest.empty() ? "no instructions\n" : "instructions set\n");
    } else if (name == "effort") {
      tell(set_effort(rest), "effort set\n");
    } else if (name == "tools") {
      if (rest.empty()) {
        conversation_.tools = Json::array();
        tell("no tools\n");
      } else {
        const auto set = set_tools(rest);
        tell(set, std::to_string(conversation_.tools.items.size()) + " tools\n");
      }
    } else if (name == "set") {
      const size_t gap = std::min(rest.find(' '), rest.size());
      tell(set_by_name(settings_.sampling, rest.substr(0, gap), gap < rest.size() ? rest.substr(gap + 1) : ""),
           "set\n");
    } else if (name == "undo") {
      tell(undo() ? "the last question is forgotten\n" : "there is no question yet\n");
    } else if (name == "retry") {
      const auto last =
          std::find_if(turns.rbegin(), turns.rend(), [](const Turn& t) { return t.role == Turn::Role::user; });
      if (last == turns.rend()) {
        tell("there is no question yet\n");
        return true;
      }
      turns.erase(last.base(), turns.end());
      return answer();
    } else if (name == "stats") {
      tell(usage_ ? stats_text(*usage_) : "there is no answer yet\n");
    } else if (name == "tokens") {
      const auto prompt = ids();
      if (!prompt) return prompt.error();
      tell(with_commas(int64_t(prompt->size())) + " of " + with_commas(engine_.options().context) + " tokens\n");
    } else if (name == "save") {
      tell(rest.empty() ? Result<void>(Error{ErrorCode::usage, "no file named", "/save", "pass /save FILE"})
                        : write_file(rest, to_string(to_json(conversation_)) + "\n"),
           "saved\n");
    } else if (name == "load") {
      auto read = read_turns(rest);
      if (read) {
        turns = std::move(*read);
        tell(std::to_string(turns.size()) + " messages\n");
      } else {
        tell(error_line(read.error(), common_.json));
      }
    } else if (name == "image") {
      tell("this build does not read images yet\n");
    } else {
      const std::vector<std::string> names = {"help",  "new",   "system", "effort", "tools", "set", "undo",
                                              "retry", "stats", "tokens", "save",   "load",  "exit"};
      const auto near = closest(name, names);
      tell("unknown command /" + name + (near ? ": did you mean /" + *near + "?" : ": /help lists them") + "\n");
    }
    return true;
  }

  /// Asks with the conversation as it stands, whose last turn is a question.
  Result<bool> answer() {
    const auto sampling = to_sampling(settings_.sampling, engine_.config().vocab_size);
    if (!sampling) {
      tell(error_line(sampling.error(), common_.json));
      return true;
    }
    auto prompt = ids();
    if (!prompt) return prompt.error();
    Question question;
    question.request.ids = std::move(*prompt);
    question.request.sampling = *sampling;
    question.stops = settings_.sampling.stop;
    question.start = conversation_.thinking ? AnswerSplitter::Start::reasoning : AnswerSplitter::Start::text;
    question.tools = !conversation_.tools.items.empty();
    Answering answering(engine_, &tokenizer_);
    if (auto asked = answering.ask(0, std::move(question)); !asked) {
      tell(error_line(for_people(asked.error()), common_.json));
      conversation_.turns.pop_back();
      return true;
    }
    using Channel = AnswerPiece::Channel;
    ReasoningText reasoning(shows_reasoning(settings_.reasoning));
    Result<void> written;
    std::optional<Answer> answer;
    bool ends_line = false, cancelled = false;
    const auto write = [&](const std::string& text) {
      if (text.empty() || !written || common_.json) return;
      written = print(text);
      ends_line = text.ends_with('\n');
    };
    while (answering.running() > 0) {
      if (interrupted() && !std::exchange(cancelled, true)) answering.cancel(0);
      answering.step(
          [&](int64_t, const AnswerPiece& piece) {
            if (piece.channel == Channel::reasoning) {
              if (settings_.reasoning == "only") write(piece.text);
              if (reasoning.wanted()) reasoning.write(piece.text);
            } else if (piece.channel == Channel::text && settings_.reasoning != "only") {
              reasoning.end();
              write(piece.text);
            }
          },
          [&](int64_t, Answer one) { answer = std::move(one); });
    }
    clear_interrupt();
    reasoning.end();
    if (!written) return written.error();
    if (answer->error) return *answer->error;
    if (common_.json) {
      if (auto printed = print(to_string(cli::to_json(*answer, 0, &tokenizer_)) + "\n"); !printed)
        return printed.error();
    } else {
      if (!ends_line && !answer->text.empty()) write("\n");
      for (const ToolCall& call : answer->calls) write(call.name + "(" + call.arguments + ")\n");
      if (answer->text.empty() && answer->calls.empty()) write("\n");
    }
    usage_ = answer->usage;
    conversation_.turns.push_back({Turn::Role::assistant, answer->text, answer->reasoning, answer->calls});
    if (cancelled && ::isatty(STDIN_FILENO) != 1) {
      return interrupted_error("fathom chat", "the answer above is not finished");
    }
    if (cancelled) tell("(stopped)\n");
    if (stderr_is_terminal() && usage_->generated_tokens > 1) {
      const double seconds = usage_->total_seconds - usage_->first_token_seconds;
      tell((colours_on_stderr() ? "\x1b[2m" : "") + with_commas(usage_->generated_tokens) + " tokens, " +
           brief(double(usage_->generated_tokens - 1) / std::max(seconds, 1e-9)) + " tokens/s" +
           (colours_on_stderr() ? "\x1b[0m\n" : "\n"));
    }
    return true;
  }

  Settings settings_;
  const Common& common_;
  const Tokenizer& tokenizer_;
  Engine& engine_;
  Conversation conversation_;
  std::optional<Usage> usage_;
};

Result<int> run_chat(const Settings& s, const Common& common) {
  if (!parse_effort(s.effort)) {
    return Error{ErrorCode::usage, "unknown effort \"" + s.effort + "\"", "--effort",
                 "use none, low, high, max or a number from 1 to 100"};
  }
  const auto model = load_model(common);
  if (!model) return model.error();
  if (!model->tokenizer) {
    return Error{ErrorCode::not_found, "the model has no tokenizer.json, so it cannot read text", model->name,
                 "use fathom generate --ids"};
  }
  EngineSettings engine_settings = s.engine;
  if (!engine_settings.sequences) engine_settings.sequences = 1;
  auto engine = open_engine(*model, engine_settings, common);
  if (!engine) return engine.error();
  Chat chat(s, common, *model, *engine);
  if (auto begun = chat.begin(); !begun) return begun.error();

  const bool terminal = ::isatty(STDIN_FILENO) == 1;
  if (terminal) print_note("fathom chat with " + model->name + "; /help lists the commands, Ctrl-D leaves\n");
  const InterruptScope scope;
  LineReader reader;
  std::string line;
  for (;;) {
    if (terminal) print_note("> ");
    switch (reader.next(line)) {
      case LineReader::End::closed:
        if (terminal) print_note("\n");
        return kDone;
      case LineReader::End::interrupted:
        if (terminal) print_note("\n");
        return kInterrupted;
      case LineReader::End::line: break;
    }
    const auto goes_on = chat.line(line);
    if (!goes_on) return goes_on.error();
    if (!*goes_on) return kDone;
  }
}

}  // namespace

Command chat_command() {
  const auto s = std::make_shared<Settings>();
  const std::string talk = "The conversation";
  std::vector<Option> options = {
      {.name = "effort",
       .value = "LEVEL",
       .help = "none (no thinking), low, high, max or 1 to 100",
       .fallback = "high, which is 75",
       .group = talk,
       .target = &s->effort},
      {.name = "system",
       .value = "TEXT",
       .help = "instructions in front",
       .fallback = "none",
       .group = talk,
       .target = &s->system},
      {.name = "tools",
       .value = "FILE.json",
       .help = "functions that answers may call",
       .fallback = "none",
       .group = talk,
       .target = &s->tools},
      {.name = "reasoning",
       .value = "R",
       .help = "show (on stderr), hide, only",
       .fallback = "show when that is a terminal",
       .group = talk,
       .target = &s->reasoning,
       .choices = {"show", "hide", "only"}},
      {.name = "endpoint", .planned = true},
      {.name = "image", .planned = true},
  };
  const std::vector<Option> sampling = sampling_options(s->sampling), engine = engine_options(s->engine);
  options.insert(options.end(), sampling.begin(), sampling.end());
  options.insert(options.end(), engine.begin(), engine.end());
  return {.name = "chat",
          .summary = "a conversation in the terminal",
          .example = "fathom chat --effort 75",
          .note = "/help lists what it understands",
          .options = std::move(options),
          .run = [s](const Common& common) { return run_chat(*s, common); }};
}

}  // namespace fathom::cli
