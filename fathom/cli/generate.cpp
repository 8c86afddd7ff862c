// fathom/cli/generate.cpp
// `fathom generate`: one prompt, answered on stdout as it comes (design/cli.md 2). Files of prompts:
// generate_batch.cpp.
#include "fathom/cli/generate.h"

#include <unistd.h>

#include <algorithm>
#include <memory>

#include "fathom/cli/answer_text.h"
#include "fathom/cli/interrupt.h"
#include "fathom/cli/option_value.h"
#include "fathom/cli/program.h"
#include "fathom/cli/terminal.h"
#include "fathom/cli/text_input.h"
#include "fathom/engine/constraint_check.h"
#include "fathom/engine/stream_series.h"
#include "fathom/recipe/answerable.h"

namespace fathom::cli {
namespace {

Error excluded(const std::string& what, const std::string& where, const std::string& remedy) {
  return Error{ErrorCode::usage, what, where, remedy};
}

/// Options that make no sense together, found before anything is loaded.
Result<void> check_settings(const GenerateSettings& s) {
  const int prompts = int(!s.words.empty()) + int(!s.prompt_file.empty()) + int(!s.ids.empty()) +
                      int(!s.input.empty()) + int(!s.request.empty());
  if (s.words.size() > 1) return excluded("more than one prompt", "fathom generate", "put it in quotes");
  if (prompts > 1) {
    return excluded("more than one source of the prompt", "fathom generate",
                    "pass one of: a prompt, --prompt-file, --ids, --request, --input");
  }
  if (!s.chat) {
    if (s.system) return excluded("--system needs --chat", "--system", "add --chat");
    if (!s.tools.empty()) return excluded("--tools needs --chat", "--tools", "add --chat");
    if (s.effort != "high") return excluded("--effort needs --chat", "--effort", "add --chat");
    if (!s.schema.empty()) return excluded("--schema needs --chat", "--schema", "add --chat");
    if (s.regex) return excluded("--regex needs --chat", "--regex", "add --chat");
  }
  if (!s.schema.empty() && s.regex) {
    return excluded("--schema and --regex exclude each other", "--regex", "pass one of them");
  }
  if (!s.tools.empty() && (!s.schema.empty() || s.regex)) {
    return excluded("--tools excludes --schema and --regex", "--tools", "an answer has calls or a form: pass one");
  }
  if (!s.api.empty() && s.request.empty()) return excluded("--api needs --request", "--api", "add --request FILE");
  if (!s.request.empty() && s.chat) {
    return excluded("--request and --chat exclude each other", "--request", "the request has its messages inside");
  }
  if (!s.request.empty() && s.no_bos) {
    return excluded("--no-bos and --request exclude each other", "--no-bos", "pass one of them");
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

/// The request in --request. Errors: those of the file; bad_input in the codec's words, usage for what this build has
/// to refuse.
Result<recipe::CodecRequest> body_request(const GenerateSettings& s) {
  const auto body = read_text_input(s.request);
  if (!body) return body.error();
  const recipe::Api api = s.api.empty() ? recipe::Api::chat_completions : *recipe::api_of(s.api);
  auto request = recipe::read_request(api, std::string_view(*body), conversion());
  if (!request) {
    return told_of(request.error(), s.request, ErrorCode::bad_input,
                   std::string("correct the body, or name its form with --api (now ") + recipe::name_of(api) + ")");
  }
  if (auto answerable = check_answerable(*request); !answerable) {
    Error error = answerable.error();
    error.where = s.request + ", " + error.where;
    return error;
  }
  return request;
}

/// What was asked, before a model is there: ids, a plain text, or a request of the codec.
struct Asked {
  std::string text;
  std::optional<recipe::CodecRequest> request;
};

Result<Asked> read_asked(const GenerateSettings& s) {
  Asked asked;
  if (!s.request.empty()) {
    auto request = body_request(s);
    if (!request) return request.error();
    asked.request = std::move(*request);
    return asked;
  }
  if (!s.ids.empty()) return asked;
  auto text = prompt_text(s);
  if (!text) return text.error();
  asked.text = std::move(*text);
  if (!s.chat) return asked;
  const auto frame = chat_frame(s);
  if (!frame) return frame.error();
  auto request = message_request(asked.text, *frame);
  if (!request) return request.error();
  asked.request = std::move(*request);
  return asked;
}

Result<Question> question_of(const GenerateSettings& s, const Asked& asked, const LoadedModel& model) {
  const int64_t vocabulary = model.opened.config.vocab_size;
  if (!s.ids.empty()) {
    Question question;
    auto sampling = to_sampling(s.sampling, vocabulary);
    if (!sampling) return sampling.error();
    question.request.sampling = std::move(*sampling);
    question.request.ids.assign(s.ids.begin(), s.ids.end());
    question.parsing = plain_parsing(s.sampling.stop);
    for (int64_t id : s.ids) {
      if (id >= vocabulary) {
        return excluded("no token has the id " + with_commas(id), "--ids",
                        "ids go from 0 to " + with_commas(vocabulary - 1));
      }
    }
    return question;
  }
  if (!model.tokenizer) {
    return Error{ErrorCode::not_found, "the model has no tokenizer.json, so it cannot read text", model.name,
                 "pass token ids with --ids"};
  }
  std::string rendered;
  auto question = Result<Question>(Question());
  if (asked.request) {
    const bool whole_body = !s.request.empty();
    const SamplingSettings sampling =
        whole_body ? overlaid(settings_of(asked.request->converted.inference), s.sampling) : s.sampling;
    question = codec_question(*asked.request, sampling, *model.tokenizer, vocabulary, &rendered);
  } else {
    question = plain_question(asked.text, !s.no_bos, s.sampling, *model.tokenizer, vocabulary);
    if (question && s.show_prompt) rendered = model.tokenizer->decode(question->request.ids);
  }
  if (!question) return question;
  if (s.show_prompt) print_note(rendered + "\n");
  if (question->request.ids.empty()) {
    return excluded("the prompt is empty", "--no-bos", "pass a text, or leave --no-bos out");
  }
  return question;
}

Result<int> run_one(const GenerateSettings& s, const Common& common) {
  const auto asked = read_asked(s);
  if (!asked) return asked.error();

  const InterruptScope scope;
  const auto model = load_model(common);
  if (!model) return model.error();
  const Tokenizer* tokenizer = model->tokenizer ? &*model->tokenizer : nullptr;
  auto question = question_of(s, *asked, *model);
  if (!question) return question.error();
  question->request.prompt_logprobs = s.prompt_logprobs;

  EngineSettings settings = s.engine;
  if (!settings.sequences) settings.sequences = std::min<int64_t>(s.answers, 16);
  auto engine = open_engine(*model, settings, common);
  if (!engine) return engine.error();
  if (!s.request.empty() && !s.sampling.max_tokens) {
    const auto most = recipe::resolve_max_tokens(asked->request->converted, int64_t(question->request.ids.size()),
                                                 engine->options().context);
    if (!most) return told_of(most.error(), s.request, ErrorCode::out_of_range, "pass a larger --context");
    question->request.sampling.max_tokens = *most;
  }
  Answering answering(*engine, tokenizer);
  // The prompt is computed once for as many as the engine takes together; its log-probabilities belong to one answer.
  const int64_t most = s.prompt_logprobs ? 1 : kMaxAnswers;
  for (int64_t i = 0; i < s.answers; i += most) {
    Question one{question->request, question->parsing, {}};
    one.request.answers = int(std::min(most, s.answers - i));
    // Different answers of one run must differ; the same run again must not.
    if (one.request.sampling.seed) *one.request.sampling.seed += uint64_t(i);
    if (auto queued = answering.ask(i, std::move(one)); !queued) return for_people(queued.error());
  }

  // One answer streams; several would be mixed, so they are printed whole, in order.
  const bool streams = s.answers == 1 && !common.json && tokenizer != nullptr;
  AnswerText stream(s.reasoning);
  Usage usage;
  std::vector<std::optional<Answer>> answers(static_cast<size_t>(s.answers));
  Result<void> written;
  while (answering.running() > 0 && !interrupted() && stream.state() && written) {
    answering.step(
        [&](int64_t, const recipe::Delta& delta) {
          if (streams) stream.show(delta);
        },
        [&](int64_t index, Answer answer) {
          add(usage, answer.usage);
          if (streams) stream.end();
          if (common.json && !answer.error) {
            Json tree = to_json(answer, index, tokenizer);
            if (const auto stream = engine->stream_statistics()) tree.set("expert_stream", to_json(*stream));
            written = print(to_string(tree) + "\n");
          }
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
        if (s.reasoning != "only") {
          for (const recipe::ToolCall& call : answer.calls) out += (out.ends_with('\n') ? "" : "\n") + call_block(call);
        }
      }
      if (!out.ends_with('\n')) out += "\n";
    }
    if (!answer.prompt_logprobs.empty()) out += "\nprompt\n" + logprob_table(answer.prompt_logprobs, tokenizer);
    if (!answer.logprobs.empty()) out += "\nanswer\n" + logprob_table(answer.logprobs, tokenizer);
    if (auto printed = print(out); !printed) return printed.error();
  }
  if (s.stats) {
    print_note(stats_text(usage, s.answers));
    if (const auto stream = engine->stream_statistics()) print_note(stats_text(*stream));
  }
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
      {.name = "schema",
       .value = "FILE.json",
       .help = "with --chat: the answer is JSON of this JSON Schema",
       .group = ask,
       .target = &s.schema},
      {.name = "regex",
       .value = "R",
       .help = "with --chat: the answer matches this expression, from its beginning to its end",
       .group = ask,
       .target = &s.regex},
      {.name = "request",
       .value = "FILE.json",
       .help = "a whole request body; its sampling settings hold where no option says otherwise",
       .group = ask,
       .target = &s.request},
      {.name = "api",
       .value = "API",
       .help = "form of --request",
       .fallback = "chat",
       .group = ask,
       .target = &s.api,
       .choices = {"chat", "responses", "messages"}},
      {.name = "show-prompt",
       .help = "the prompt as the model reads it, on stderr",
       .group = ask,
       .target = &s.show_prompt},
  };
  options.push_back({.name = "image", .planned = true});
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
       .help =
           "one prompt a line: {\"id\", \"prompt\" or \"token_ids\", ...}, or a request: {\"id\", \"url\", \"body\"}",
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
  auto effort = read_effort(s.effort);
  if (!effort) return effort.error();
  frame.effort = std::move(*effort);
  if (!s.tools.empty()) {
    auto tools = read_tools(s.tools);
    if (!tools) return tools.error();
    frame.tools = std::move(*tools);
  }
  if (!s.schema.empty() || s.regex) {
    auto format = s.regex ? read_regex(*s.regex) : read_schema(s.schema);
    if (!format) return format.error();
    frame.format = std::move(*format);
  }
  return frame;
}

Result<recipe::CodecRequest> message_request(std::string_view message, const ChatFrame& frame) {
  Json messages = Json::array();
  messages.push(chat_message("user", message));
  auto request = chat_request(std::move(messages), frame);
  if (!request) return told_of(request.error(), "--chat", ErrorCode::usage, "see fathom generate --help");
  if (auto possible = recipe::check_promise(*request, check_constraint); !possible) {
    Error error = possible.error();
    const auto kind = request->converted.inference.constraint->kind;
    const std::string option = kind == grammar::Constraint::Kind::json    ? "--schema"
                               : kind == grammar::Constraint::Kind::regex ? "--regex"
                                                                          : "--tools";
    error.where = error.where.empty() || option == "--regex" ? option : option + ", " + error.where;
    return error;
  }
  return request;
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
