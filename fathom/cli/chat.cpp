// fathom/cli/chat.cpp
// `fathom chat`: a conversation in the terminal (design/cli.md 2). Each question sends the whole conversation again;
// the engine's cache makes that cheap once it keeps prefixes. When an answer calls tools, the next lines are the
// results of its calls, in their order; behind the last one the model goes on.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>

#include "fathom/base/mapped_file.h"
#include "fathom/cli/answer_text.h"
#include "fathom/cli/chat_history.h"
#include "fathom/cli/chat_request.h"
#include "fathom/cli/interrupt.h"
#include "fathom/cli/loaded_model.h"
#include "fathom/cli/option_value.h"
#include "fathom/cli/program.h"
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
    "  /save FILE         write the conversation as a Chat Completions request;\n"
    "                     /load FILE reads it\n"
    "  /exit              leave, as Ctrl-D does; Ctrl-C stops an answer\n"
    "When an answer calls a tool, the next line is the call's result (an empty line:\n"
    "an empty result); with several calls one line each, in their order.\n";

/// The last two are understood but not listed.
constexpr std::array<const char*, 15> kCommands = {"help", "new",  "system", "effort", "tools",
                                                   "set",  "undo", "retry",  "stats",  "tokens",
                                                   "save", "load", "exit",   "quit",   "image"};

/// The state of one run of `chat`.
class Chat {
 public:
  Chat(Settings settings, const Common& common, const LoadedModel& model, Engine& engine)
      : settings_(std::move(settings)), common_(common), tokenizer_(*model.tokenizer), engine_(engine) {}

  Result<void> begin() {
    frame_.system = settings_.system;
    if (auto set = set_effort(settings_.effort); !set) return set;
    return settings_.tools.empty() ? Result<void>() : set_tools(settings_.tools);
  }

  /// What is asked for on a terminal: a message, or the result of a call.
  std::string prompt() const {
    const auto call = open_call(messages_);
    return call ? "result of " + call->name + "> " : "> ";
  }

  /// False: leave. Mistakes in a command are told and the conversation goes on.
  Result<bool> line(const std::string& text) {
    if (const size_t valid = valid_utf8_prefix(text); valid < text.size()) {
      tell("this line is not valid UTF-8 at byte " + with_commas(int64_t(valid)) + ": it is left out\n");
      return true;
    }
    if (const auto call = open_call(messages_); call && !is_command(text)) {
      messages_.push(tool_message(call->id, text));
      return open_call(messages_) ? Result<bool>(true) : answer();
    }
    if (text.empty()) return true;
    if (text.starts_with('/')) return command(text);
    messages_.push(chat_message("user", text));
    return answer();
  }

 private:
  /// A result may begin with a slash, as paths do.
  static bool is_command(const std::string& text) {
    if (!text.starts_with('/')) return false;
    const std::string name = text.substr(1, text.find(' ') - 1);
    return std::count(kCommands.begin(), kCommands.end(), name) > 0;
  }

  Result<void> set_effort(const std::string& text) {
    auto effort = read_effort(text);
    if (!effort) return effort.error();
    frame_.effort = std::move(*effort);
    return {};
  }
  Result<void> set_tools(const std::string& path) {
    auto tools = read_tools(path);
    if (!tools) return tools.error();
    ChatFrame frame = frame_;
    frame.tools = std::move(*tools);
    Json messages = Json::array();
    messages.push(chat_message("user", ""));
    const auto request = chat_request(std::move(messages), frame);
    if (!request) return request.error();
    if (auto answerable = check_answerable(*request); !answerable) return answerable;
    frame_ = std::move(frame);
    return {};
  }

  void tell(const std::string& text) { print_note(text); }
  void tell(const Result<void>& result, const std::string& done) {
    tell(result ? done : error_line(result.error(), common_.json));
  }

  Result<Question> question(const Json& messages) const {
    const auto request = chat_request(messages, frame_);
    if (!request)
      return told_of(request.error(), "fathom chat", ErrorCode::usage, "/undo takes the last question back");
    return codec_question(*request, settings_.sampling, tokenizer_, engine_.config().vocab_size);
  }

  /// The last message of the user; none yet: the number of messages.
  size_t last_question() const {
    const auto& all = messages_.items;
    const auto last = std::find_if(all.rbegin(), all.rend(), is_question);
    return last == all.rend() ? all.size() : size_t(all.rend() - last) - 1;
  }

  Result<bool> command(const std::string& text) {
    const size_t space = std::min(text.find(' '), text.size());
    const std::string name = text.substr(1, space - 1);
    const std::string rest = space < text.size() ? text.substr(space + 1) : "";
    auto& all = messages_.items;
    if (name == "exit" || name == "quit") return false;
    if (name == "help") {
      tell(kHelp);
    } else if (name == "new") {
      all.clear();
      tell("a new conversation\n");
    } else if (name == "system") {
      frame_.system = rest.empty() ? std::optional<std::string>() : rest;
      tell(rest.empty() ? "no instructions\n" : "instructions set\n");
    } else if (name == "effort") {
      tell(set_effort(rest), "effort set\n");
    } else if (name == "tools") {
      if (rest.empty()) {
        frame_.tools = Json::array();
        tell("no tools\n");
      } else {
        const auto set = set_tools(rest);
        tell(set, std::to_string(frame_.tools.items.size()) + " tools\n");
      }
    } else if (name == "set") {
      const size_t gap = std::min(rest.find(' '), rest.size());
      tell(set_by_name(settings_.sampling, rest.substr(0, gap), gap < rest.size() ? rest.substr(gap + 1) : ""),
           "set\n");
    } else if (name == "undo" || name == "retry") {
      const size_t last = last_question();
      if (last == all.size()) {
        tell("there is no question yet\n");
        return true;
      }
      all.resize(name == "undo" ? last : last + 1);
      if (name == "retry") return answer();
      tell("the last question is forgotten\n");
    } else if (name == "stats") {
      tell(usage_ ? stats_text(*usage_) : "there is no answer yet\n");
    } else if (name == "tokens") {
      tell_tokens();
    } else if (name == "save") {
      tell(rest.empty() ? Result<void>(Error{ErrorCode::usage, "no file named", "/save", "pass /save FILE"})
                        : write_file(rest, to_string(chat_body(messages_, frame_)) + "\n"),
           "saved\n");
    } else if (name == "load") {
      auto read = load_chat(rest, frame_);
      if (read) {
        messages_ = std::move(read->messages);
        frame_ = std::move(read->frame);
        tell(std::to_string(all.size() + (frame_.system ? 1 : 0)) + " messages\n");
      } else {
        tell(error_line(read.error(), common_.json));
      }
    } else if (name == "image") {
      tell("this build does not read images yet\n");
    } else {
      const std::vector<std::string> names(kCommands.begin(), kCommands.end() - 2);
      const auto near = closest(name, names);
      tell("unknown command /" + name + (near ? ": did you mean /" + *near + "?" : ": /help lists them") + "\n");
    }
    return true;
  }

  void tell_tokens() {
    size_t tokens = 0;
    if (!messages_.items.empty()) {
      const auto asked = question(with_all_results(messages_));
      if (!asked) return tell(error_line(asked.error(), common_.json));
      tokens = asked->request.ids.size();
    }
    tell(with_commas(int64_t(tokens)) + " of " + with_commas(engine_.options().context) + " tokens\n");
  }

  /// Asks with the conversation as it stands, whose last message is a question or the result of a call. What cannot be
  /// asked is told, and that message is taken back.
  Result<bool> answer() {
    auto asked = question(messages_);
    Answering answering(engine_, &tokenizer_);
    Result<void> queued = asked ? answering.ask(0, std::move(*asked)) : Result<void>(asked.error());
    if (!queued) {
      tell(error_line(for_people(queued.error()), common_.json));
      messages_.items.pop_back();
      return true;
    }
    AnswerText text(settings_.reasoning);
    std::optional<Answer> answer;
    bool cancelled = false;
    while (answering.running() > 0) {
      if (interrupted() && !std::exchange(cancelled, true)) answering.cancel(0);
      answering.step(
          [&](int64_t, const recipe::Delta& delta) {
            if (!common_.json) text.show(delta);
          },
          [&](int64_t, Answer one) { answer = std::move(one); });
    }
    clear_interrupt();
    if (answer->error) return *answer->error;
    if (common_.json) {
      if (auto printed = print(to_string(to_json(*answer, 0, &tokenizer_)) + "\n"); !printed) return printed.error();
    } else {
      text.end();
      if (!text.state()) return text.state().error();
    }
    usage_ = answer->usage;
    if (cancelled) answer->calls.clear();  // who stops an answer does not want its calls made
    messages_.push(assistant_message(*answer));
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
  ChatFrame frame_;
  Json messages_ = Json::array();
  std::optional<Usage> usage_;
};

Result<int> run_chat(const Settings& s, const Common& common) {
  if (auto effort = read_effort(s.effort); !effort) return effort.error();
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
    if (terminal) print_note(chat.prompt());
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
