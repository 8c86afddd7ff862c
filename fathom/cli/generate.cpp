// fathom/cli/generate.cpp
// `fathom generate`: one prompt, answered on stdout as it comes (design/cli.md 2). Files of prompts:
// generate_batch.cpp.
#include "fathom/cli/generate.h"

#include <unistd.h>

#include <algorithm>

#include "fathom/base/mapped_file.h"
#include "fathom/cli/interrupt.h"
#include "fathom/cli/option_value.h"
#include "fathom/cli/program.h"
#include "fathom/cli/reasoning_text.h"
#include "fathom/cli/terminal.h"
#include "fathom/cli/text_input.h"

namespace fathom::cli {
namespace {

Error excluded(const std::string& what, const std::string& where, const std::string& remedy) {
  return Error{ErrorCode::usage, what, where, remedy};
}

/// Options that make no sense together, found before anything is loaded.
Result<void> check_settings(const GenerateSettings& s) {
  const int prompts = int(!s.words.empty()) + int(!s.prompt_file.empty()) + int(!s.ids.empty()) + int(!s.input.empty());
  if (s.words.size() > 1) return excluded("more than one prompt", "fathom generate", "put it in quotes");
  if (prompts > 1) {
    return excluded("more than one source of the prompt", "fathom generate",
                    "pass one of: a prompt, --prompt-file, --ids, --input");
  }
  if (!s.chat) {
    if (s.system) return excluded("--system needs --chat", "--system", "add --chat");
    if (!s.tools.empty()) return excluded("--tools needs --chat", "--tools", "add --chat");
    if (s.effort != "high") return excluded("--effort needs --chat", "--effort", "add --chat");
  }
  if (s.chat && !s.ids.empty()) return excluded("--ids and --chat exclude each other", "--ids", "pass one of them");
  if (s.chat && s.no_bos) return excluded("--no-bos and --chat exclude each other", "--no-bos", "pass one of them");
  if (s.input.empty()) {
    if (!s.output.empty()) return excluded("--output needs --input", "--output", "add --input FILE");
    if (s.resume) return excluded("--resume needs --input", "--resume", "add --input and --output");
    if (s.concurrency) return excluded("--concurrency needs --input", "--concurrency", "add --input FILE");
    return {};
  }
  if (s.output.empty()) return excluded("--input needs --output", "--input", "add --output FILE");
  if (s.answers > 1) return excluded("--n and --input exclude each other", "--n", "repeat the line in the input");
  if (s.show_prompt) return excluded("--show-prompt and --input exclude each other", "--show-prompt", "leave it out");
  return {};
}

/// The text that was asked; reads files and stdin. Not called with --ids.
Result<std::string> prompt_text(const GenerateSettings& s) {
  std::string text;
  if (!s.prompt_file.empty()) {
    auto read = read_text_input(s.prompt_file);
    if (!read) return read.error();
    text = std::move(*read);
  } else if (!s.words.empty() && s.words[0] != "-") {
    text = s.words[0];
  } else {
    if (s.words.empty() && ::isatty(STDIN_FILENO) == 1) {
      return excluded("no prompt", "fathom generate", "pass it in quotes, with --prompt-file FILE, or on stdin");
    }
    text = read_standard_input();
  }
  // The line break that an editor or `echo` puts at the end is not part of a message.
  if (s.chat && text.ends_with('\n')) text.pop_back();
  if (s.chat && text.empty()) return excluded("the message is empty", "fathom generate", "pass a text");
  const size_t valid = valid_utf8_prefix(text);
  if (valid < text.size()) {
    return Error{ErrorCode::bad_input, "the prompt is not valid UTF-8 at byte " + with_commas(int64_t(valid)),
                 s.prompt_file.empty() ? "fathom generate" : s.prompt_file, "convert it to UTF-8"};
  }
  return text;
}

/// Four decimals; a certain token is 0, not -0.
std::string logprob_text(float logprob) { return logprob > -5e-5f ? "0.0000" : fixed(double(logprob), 4); }

std::string logprob_table(const std::vector<TokenLogprob>& tokens, const Tokenizer* tokenizer) {
  const auto named = [&](int32_t id) {
    std::string text;
    append_json_string(text, tokenizer != nullptr ? tokenizer->token_text(id) : "");
    return text;
  };
  Table table({{"id", Table::Side::right}, {"token"}, {"logprob", Table::Side::right}, {"best"}});
  for (const TokenLogprob& token : tokens) {
    std::string best;
    for (const auto& [id, logprob] : token.top) {
      best += (best.empty() ? "" : ", ") + named(id) + " " + logprob_text(logprob);
    }
    table.add({std::to_string(token.id), named(token.id), logprob_text(token.logprob), best});
  }
  return table.text();
}

/// Writes an answer as it comes: text to stdout, reasoning dimmed to stderr when that is a terminal. A terminal sees
/// each piece at once; so does a pipe.
class Stream {
 public:
  explicit Stream(std::string reasoning) : mode_(std::move(reasoning)), dim_(shows_reasoning(mode_)) {}

  void piece(const AnswerPiece& piece) {
    using Channel = AnswerPiece::Channel;
    if (piece.channel == Channel::reasoning) {
      if (mode_ == "only") write(piece.text);
      if (dim_.wanted()) dim_.write(piece.text);
    } else if (piece.channel == Channel::text && mode_ != "only") {
      dim_.end();
      write(piece.text);
    }
  }
  void end(const Answer& answer) {
    dim_.end();
    if (mode_ != "only") {
      for (const ToolCall& call : answer.calls) {
        if (!ends_line_) write("\n");
        write(call.name + "(" + call.arguments + ")");
      }
    }
    if (!ends_line_) write("\n");
  }
  const Result<void>& state() const { return state_; }

 private:
  void write(const std::string& text) {
    if (text.empty() || !state_) return;
    state_ = print(text);
    ends_line_ = text.ends_with('\n');
  }
  std::string mode_;
  ReasoningText dim_;
  bool ends_line_ = false;
  Result<void> state_;
};

Result<int> run_one(const GenerateSettings& s, const Common& common) {
  std::string text;
  if (s.ids.empty()) {
    auto read = prompt_text(s);
    if (!read) return read.error();
    text = std::move(*read);
  }
  const auto frame = chat_frame(s);
  if (!frame) return frame.error();

  const InterruptScope scope;
  const auto model = load_model(common);
  if (!model) return model.error();
  const Tokenizer* tokenizer = model->tokenizer ? &*model->tokenizer : nullptr;
  const auto sampling = to_sampling(s.sampling, model->opened.config.vocab_size);
  if (!sampling) return sampling.error();
  Question question;
  if (!s.ids.empty()) {
    question.request.ids.assign(s.ids.begin(), s.ids.end());
    for (int64_t id : s.ids) {
      if (id >= model->opened.config.vocab_size) {
        return excluded("no token has the id " + with_commas(id), "--ids",
                        "ids go from 0 to " + with_commas(model->opened.config.vocab_size - 1));
      }
    }
  } else if (tokenizer == nullptr) {
    return Error{ErrorCode::not_found, "the model has no tokenizer.json, so it cannot read text", model->name,
                 "pass token ids with --ids"};
  } else if (s.chat) {
    std::string rendered;
    auto made = chat_question(*frame, text, *tokenizer, &rendered);
    if (!made) return made.error();
    question = std::move(*made);
    if (s.show_prompt) print_note(rendered + "\n");
  } else {
    question = plain_question(text, !s.no_bos, *tokenizer);
    if (s.show_prompt) print_note(tokenizer->decode(question.request.ids) + "\n");
  }
  if (question.request.ids.empty()) {
    return excluded("the prompt is empty", "--no-bos", "pass a text, or leave --no-bos out");
  }
  question.request.sampling = *sampling;
  question.request.prompt_logprobs = s.prompt_logprobs;
  question.stops = s.sampling.stop;

  EngineSettings settings = s.engine;
  if (!settings.sequences) settings.sequences = std::min<int64_t>(s.answers, 16);
  auto engine = open_engine(*model, settings, common);
  if (!engine) return engine.error();
  Answering answering(*engine, tokenizer);
  for (int64_t i = 0; i < s.answers; ++i) {
    Question one = question;
    // Different answers of one run must differ; the same run again must not.
    if (one.request.sampling.seed) *one.request.sampling.seed += uint64_t(i);
    if (auto asked = answering.ask(i, std::move(one)); !asked) return for_people(asked.error());
  }

  // One answer streams; several would be mixed, so they are printed whole, in order.
  const bool streams = s.answers == 1 && !common.json && tokenizer != nullptr;
  Stream stream(s.reasoning);
  Usage usage;
  std::vector<std::optional<Answer>> answers(static_cast<size_t>(s.answers));
  Result<void> written;
  while (answering.running() > 0 && !interrupted() && stream.state() && written) {
    answering.step(
        [&](int64_t, const AnswerPiece& piece) {
          if (streams) stream.piece(piece);
        },
        [&](int64_t index, Answer answer) {
          add(usage, answer.usage);
          if (streams) stream.end(answer);
          if (common.json && !answer.error) written = print(to_string(to_json(answer, index, tokenizer)) + "\n");
          answers[size_t(index)] = std::move(answer);
        });
  }
  if (!stream.state()) return stream.state().error();
  if (!written) return written.error();
  if (interrupted()) {
    if (streams) (void)print("\n").ok();
    return interrupted_error("fathom generate", "the answer above is not finished");
  }
  for (int64_t i = 0; i < s.answers; ++i) {
    const Answer& answer = *answers[size_t(i)];
    if (answer.error) return *answer.error;
    if (common.json) continue;
    std::string out;
    if (!streams) {
      if (s.answers > 1) out += "--- answer " + std::to_string(i + 1) + " of " + std::to_string(s.answers) + "\n";
      if (tokenizer == nullptr) {
        for (size_t k = 0; k < answer.ids.size(); ++k) out += (k > 0 ? " " : "") + std::to_string(answer.ids[k]);
      } else {
        out += s.reasoning == "only" ? answer.reasoning : answer.text;
        for (const ToolCall& call : answer.calls) out += "\n" + call.name + "(" + call.arguments + ")";
      }
      out += "\n";
    }
    if (!answer.prompt_logprobs.empty()) out += "\nprompt\n" + logprob_table(answer.prompt_logprobs, tokenizer);
    if (!answer.logprobs.empty()) out += "\nanswer\n" + logprob_table(answer.logprobs, tokenizer);
    if (auto printed = print(out); !printed) return printed.error();
  }
  if (s.stats) print_note(stats_text(usage, s.answers));
  return kDone;
}

std::vector<Option> options_of(GenerateSettings& s) {
  const std::string ask = "What to ask", show = "What to show", many = "Many prompts";
  std::vector<Option> options = {
      {.name = "chat",
       .help = "the prompt is a message; without it, a text to continue",
       .group = ask,
       .target = &s.chat},
      {.name = "prompt-file",
       .value = "FILE",
       .help = "read the prompt from a file, - is stdin",
       .group = ask,
       .target = &s.prompt_file},
      {.name = "ids",
       .value = "ID,ID,...",
       .help = "the prompt as token ids, taken as they are",
       .group = ask,
       .target = &s.ids,
       .least = 0,
       .most = 2147483647},
      {.name = "no-bos", .help = "do not put the begin token in front", .group = ask, .target = &s.no_bos},
      {.name = "system",
       .value = "TEXT",
       .help = "with --chat: instructions in front",
       .group = ask,
       .target = &s.system},
      {.name = "effort",
       .value = "LEVEL",
       .help = "with --chat: none (no thinking), low, high, max or 1 to 100",
       .fallback = "high, which is 75",
       .group = ask,
       .target = &s.effort},
      {.name = "tools",
       .value = "FILE.json",
       .help = "with --chat: functions that the answer may call",
       .group = ask,
       .target = &s.tools},
      {.name = "show-prompt",
       .help = "the prompt as the model reads it, on stderr",
       .group = ask,
       .target = &s.show_prompt},
  };
  for (const char* later : {"image", "schema", "regex", "request", "api"}) {
    options.push_back({.name = later, .planned = true});
  }
  std::vector<Option> sampling = sampling_options(s.sampling);
  options.insert(options.end(), sampling.begin(), sampling.end());
  const std::vector<Option> rest = {
      {.name = "reasoning",
       .value = "R",
       .help = "show (on stderr), hide, only",
       .fallback = "show when that is a terminal",
       .group = show,
       .target = &s.reasoning,
       .choices = {"show", "hide", "only"}},
      {.name = "n",
       .value = "N",
       .help = "answers to the same prompt",
       .fallback = "1",
       .group = show,
       .target = &s.answers,
       .least = 1,
       .most = 10000},
      {.name = "prompt-logprobs",
       .help = "log-probability of each prompt token; forces --replay off",
       .group = show,
       .target = &s.prompt_logprobs},
      {.name = "stats", .help = "tokens, times, drafts and peak memory, on stderr", .group = show, .target = &s.stats},
      {.name = "input",
       .value = "FILE.jsonl",
       .help = "one prompt a line: {\"id\", \"prompt\" or \"token_ids\", ...}",
       .group = many,
       .target = &s.input},
      {.name = "output",
       .value = "FILE.jsonl",
       .help = "answers, appended as they finish",
       .group = many,
       .target = &s.output},
      {.name = "resume",
       .help = "go on where an earlier run with this --output stopped",
       .group = many,
       .target = &s.resume},
      {.name = "concurrency",
       .value = "N",
       .help = "lines that are answered at the same time",
       .fallback = "--sequences",
       .group = many,
       .target = &s.concurrency,
       .least = 1,
       .most = 65536},
  };
  options.insert(options.end(), rest.begin(), rest.end());
  std::vector<Option> engine = engine_options(s.engine);
  options.insert(options.end(), engine.begin(), engine.end());
  return options;
}

}  // namespace

Result<ChatFrame> chat_frame(const GenerateSettings& s) {
  ChatFrame frame;
  frame.system = s.system;
  const auto effort = parse_effort(s.effort);
  if (!effort) {
    return Error{ErrorCode::usage, "unknown effort \"" + s.effort + "\"", "--effort",
                 "use none, low, high, max or a number from 1 to 100"};
  }
  frame.effort = *effort;
  if (s.tools.empty()) return frame;
  const auto text = read_file(s.tools, int64_t(64) << 20);
  if (!text) return text.error();
  const auto tree = parse_json(*text, s.tools);
  if (!tree) return tree.error();
  auto tools = read_tools(*tree, s.tools);
  if (!tools) return tools.error();
  frame.tools = std::move(*tools);
  return frame;
}

Result<Question> chat_question(const ChatFrame& frame, std::string_view message, const Tokenizer& tokenizer,
                               std::string* rendered) {
  Conversation conversation;
  if (frame.system) conversation.turns.push_back({Turn::Role::system, *frame.system, {}, {}});
  conversation.turns.push_back({Turn::Role::user, std::string(message), {}, {}});
  conversation.thinking = frame.effort.thinking;
  conversation.effort = frame.effort.number;
  conversation.tools = frame.tools;
  const RenderedPrompt prompt = render(conversation);
  if (rendered != nullptr) *rendered = prompt.text;
  auto ids = tokenizer.encode(prompt.text, prompt.special);
  if (!ids) return ids.error();
  Question question;
  question.request.ids = std::move(*ids);
  question.start = frame.effort.thinking ? AnswerSplitter::Start::reasoning : AnswerSplitter::Start::text;
  question.tools = !frame.tools.items.empty();
  return question;
}

Question plain_question(std::string_view text, bool with_bos, const Tokenizer& tokenizer) {
  Question question;
  question.request.ids = tokenizer.encode(text);
  auto& ids = question.request.ids;
  if (with_bos && (ids.empty() || ids[0] != Tokenizer::kBegin)) ids.insert(ids.begin(), Tokenizer::kBegin);
  return question;
}

Command generate_command() {
  const auto s = std::make_shared<GenerateSettings>();
  return {.name = "generate",
          .summary = "answer a prompt, or a file of them",
          .example = "fathom generate --chat \"What is 7 + 5?\" --effort 50 --stats",
          .note = "",
          .arguments = "[PROMPT]",
          .options = options_of(*s),
          .positional = &s->words,
          .run = [s](const Common& common) -> Result<int> {
            if (auto checked = check_settings(*s); !checked) return checked.error();
            return s->input.empty() ? run_one(*s, common) : run_batch(*s, common);
          }};
}

}  // namespace fathom::cli
