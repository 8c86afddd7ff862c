// fathom/cli/generate_batch.cpp
// `fathom generate --input`: many prompts at once (design/cli.md 2). A line that is wrong gets an error line and the
// others go on; at the end the exit code and one message name the lines that failed.
#include <algorithm>

#include "fathom/base/mapped_file.h"
#include "fathom/cli/batch_file.h"
#include "fathom/cli/generate.h"
#include "fathom/cli/interrupt.h"
#include "fathom/cli/log.h"
#include "fathom/cli/program.h"
#include "fathom/cli/terminal.h"
#include "fathom/cli/text_input.h"

namespace fathom::cli {
namespace {

Json error_json(const Error& error) {
  Json tree = Json::object();
  tree.set("code", Json::of(name_of(error.code)));
  tree.set("message", Json::of(error.message));
  tree.set("where", Json::of(error.where));
  tree.set("remedy", Json::of(error.remedy));
  return tree;
}

/// The prompt of a line: "token_ids", or "prompt_ids" as evaluation files have it, or "prompt".
Result<Question> question_of(const Json& line, const GenerateSettings& s, const ChatFrame& frame,
                             const LoadedModel& model, const std::string& where) {
  const auto wrong = [&](std::string what, std::string remedy) {
    return Error{ErrorCode::bad_input, std::move(what), where, std::move(remedy)};
  };
  if (line.find("body") != nullptr || line.find("url") != nullptr) {
    return Error{ErrorCode::unsupported, "this build does not read request bodies yet", where,
                 "give the line \"prompt\" or \"token_ids\" instead of \"url\" and \"body\""};
  }
  SamplingSettings settings = s.sampling;
  if (auto read = read_sampling(line, settings); !read) {
    Error error = read.error();
    error.where = where + ", " + error.where;
    return error;
  }
  const auto sampling = to_sampling(settings, model.opened.config.vocab_size);
  if (!sampling) {
    Error error = sampling.error();
    error.code = ErrorCode::bad_input;
    error.where = where;
    return error;
  }
  const Json* ids = line.find("token_ids");
  if (ids == nullptr) ids = line.find("prompt_ids");
  const Json* prompt = line.find("prompt");
  Question question;
  if (ids != nullptr) {
    if (!ids->is_array() || ids->items.empty()) return wrong("\"token_ids\" is no list of ids", "write [0, 6, 1154]");
    for (const Json& item : ids->items) {
      const auto id = item.as_int64();
      if (!id || *id < 0 || *id >= model.opened.config.vocab_size) {
        return wrong("\"token_ids\" has the item " + to_string(item),
                     "ids go from 0 to " + with_commas(model.opened.config.vocab_size - 1));
      }
      question.request.ids.push_back(int32_t(*id));
    }
  } else if (prompt != nullptr && prompt->is_string()) {
    if (!model.tokenizer) return wrong("the model has no tokenizer.json, so it cannot read text", "give \"token_ids\"");
    if (s.chat) {
      auto made = chat_question(frame, prompt->text, *model.tokenizer);
      if (!made) return made.error();
      question = std::move(*made);
    } else {
      question = plain_question(prompt->text, !s.no_bos, *model.tokenizer);
    }
  } else {
    return wrong("the line has no prompt", "give it \"prompt\" (a text) or \"token_ids\" (a list)");
  }
  question.request.sampling = *sampling;
  question.request.prompt_logprobs = s.prompt_logprobs;
  question.stops = settings.stop;
  return question;
}

std::string list_of(const std::vector<int64_t>& numbers) {
  constexpr size_t kShown = 10;
  std::string text = numbers.size() == 1 ? "line " : "lines ";
  for (size_t i = 0; i < numbers.size() && i < kShown; ++i) text += (i > 0 ? ", " : "") + std::to_string(numbers[i]);
  if (numbers.size() > kShown) text += " and " + with_commas(int64_t(numbers.size() - kShown)) + " more";
  return text;
}

}  // namespace

Result<int> run_batch(const GenerateSettings& s, const Common& common) {
  const auto input = read_text_input(s.input);
  if (!input) return input.error();
  const auto frame = chat_frame(s);
  if (!frame) return frame.error();
  const std::vector<BatchLine> lines = read_batch_lines(*input, s.input);
  auto output = BatchOutput::open(s.output, s.resume);
  if (!output) return output.error();
  if (output->cut_bytes() > 0) {
    log(common, LogLevel::warn,
        "cut a torn last line of " + std::to_string(output->cut_bytes()) + " bytes from " + s.output);
  }
  std::vector<int64_t> failed, todo;  // numbers of lines; indices of lines
  int64_t already = 0;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (!output->answered(lines[i].id)) {
      todo.push_back(int64_t(i));
      continue;
    }
    ++already;
    if (output->failed().contains(lines[i].id)) failed.push_back(lines[i].number);
  }

  const InterruptScope scope;
  const auto model = load_model(common);
  if (!model) return model.error();
  const Tokenizer* tokenizer = model->tokenizer ? &*model->tokenizer : nullptr;
  auto engine = open_engine(*model, s.engine, common);
  if (!engine) return engine.error();
  const int64_t most = s.concurrency.value_or(engine->options().sequences);
  Answering answering(*engine, tokenizer);

  Progress progress("answers", "lines", int64_t(lines.size()));
  int64_t done = already, tokens = 0;
  const auto begin = std::chrono::steady_clock::now();
  const auto show = [&] {
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    std::string extra = seconds > 0.2 ? brief(double(tokens) / seconds) + " tokens/s" : "";
    if (!failed.empty()) extra += (extra.empty() ? "" : ", ") + with_commas(int64_t(failed.size())) + " failed";
    progress.update(done, extra);
  };
  show();
  Usage usage;
  Result<void> written;
  const auto fail = [&](const BatchLine& line, const Error& error) {
    failed.push_back(line.number);
    ++done;
    written = output->append(line.id, "error", error_json(error));
  };
  for (size_t next = 0; written && !interrupted();) {
    while (next < todo.size() && answering.running() < most && written) {
      const int64_t index = todo[next++];
      const BatchLine& line = lines[size_t(index)];
      const std::string where = s.input + ", line " + std::to_string(line.number);
      if (line.error) {
        fail(line, *line.error);
        continue;
      }
      const auto tree = parse_json(line.text, where);
      if (!tree) {
        fail(line, tree.error());
        continue;
      }
      auto question = question_of(*tree, s, *frame, *model, where);
      if (!question) {
        fail(line, question.error());
        continue;
      }
      if (auto asked = answering.ask(index, std::move(*question)); !asked) fail(line, for_people(asked.error()));
    }
    show();
    if (answering.running() == 0) {
      if (next == todo.size()) break;
      continue;
    }
    answering.step([](int64_t, const AnswerPiece&) {},
                   [&](int64_t index, Answer answer) {
                     if (!written) return;
                     const BatchLine& line = lines[size_t(index)];
                     add(usage, answer.usage);
                     tokens += answer.usage.generated_tokens;
                     if (answer.error) {
                       fail(line, *answer.error);
                     } else {
                       ++done;
                       written = output->append(line.id, "response", to_json(answer, 0, tokenizer));
                     }
                   });
  }
  progress.finish();
  if (!written) return written.error();
  if (auto synced = output->sync(); !synced) return synced.error();
  if (interrupted() && done < int64_t(lines.size())) {
    return interrupted_error(s.output.c_str(), "what was answered is there; the same command with --resume goes on");
  }
  if (s.stats) {
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    print_note(stats_text(usage, std::max<int64_t>(done - already, 2)));
    print_note("all            " + with_commas(done - already) + " lines in " + duration_text(seconds) + ", " +
               brief(double(tokens) / std::max(seconds, 1e-9)) + " tokens/s together\n");
  }
  if (failed.empty()) return kDone;
  std::sort(failed.begin(), failed.end());
  return Error{ErrorCode::failed,
               with_commas(int64_t(failed.size())) + " of " + with_commas(int64_t(lines.size())) +
                   " lines failed: " + list_of(failed),
               s.input, "their errors are in " + s.output};
}

}  // namespace fathom::cli
