// fathom/cli/generate_batch.cpp
// `fathom generate --input`: many prompts at once (design/cli.md 2). A line that is wrong gets an error line and the
// others go on; at the end the exit code and one message name the lines that failed.
#include <algorithm>
#include <chrono>
#include <random>

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

/// What lines are asked with.
struct Asking {
  const GenerateSettings& settings;
  const ChatFrame& frame;
  const LoadedModel& model;
  int64_t context;
};

Result<recipe::Api> api_of_url(const Json* url, const std::string& where) {
  if (url != nullptr) {
    if (url->text == "/v1/chat/completions") return recipe::Api::chat_completions;
    if (url->text == "/v1/responses") return recipe::Api::responses;
    if (url->text == "/v1/messages") return recipe::Api::messages;
  }
  return Error{ErrorCode::bad_input, url == nullptr ? "\"body\" without \"url\"" : "unknown url " + to_string(*url),
               where, "use /v1/chat/completions, /v1/responses or /v1/messages"};
}

/// Such as an answer of a server has: "chatcmpl-", "resp_", "msg_" and 32 random digits.
std::string answer_id(recipe::Api api) {
  std::random_device random;
  std::string id = api == recipe::Api::responses ? "resp_" : api == recipe::Api::messages ? "msg_" : "chatcmpl-";
  for (int word = 0; word < 4; ++word) {
    uint32_t bits = random();
    for (int digit = 0; digit < 8; ++digit, bits >>= 4) id += "0123456789abcdef"[bits & 15];
  }
  return id;
}

/// A failure as an API has it: the error object inside its body.
Json api_error(const Error& error, recipe::Api api) {
  if (recipe::status_of(error) == 400) {
    const auto body = parse_json(recipe::error_body(error, api, conversion().policy), "error");
    if (const Json* inner = body ? body->find("error") : nullptr) return *inner;
  }
  const Json type = Json::of(recipe::failure_type(error.code, api));
  Json tree = Json::object();
  if (api == recipe::Api::messages) tree.set("type", type);
  tree.set("message", Json::of(error.message));
  if (api == recipe::Api::messages) return tree;
  tree.set("type", type);
  tree.set("param", Json());
  tree.set("code", type);
  return tree;
}

/// The question of a request body. Errors are those of the API.
Result<Question> body_question(const Json& body, recipe::Api api, const Asking& asking) {
  const auto request = recipe::read_request(api, body, conversion());
  if (!request) return request.error();
  if (auto answerable = check_answerable(*request); !answerable) return answerable.error();
  const auto& inference = request->converted.inference;
  const SamplingSettings sampling = overlaid(settings_of(inference), asking.settings.sampling);
  const Tokenizer& tokenizer = *asking.model.tokenizer;
  auto question = codec_question(*request, sampling, tokenizer, asking.model.opened.config.vocab_size);
  if (!question) return question;
  if (!sampling.max_tokens) {
    const auto most =
        recipe::resolve_max_tokens(request->converted, int64_t(question->request.ids.size()), asking.context);
    if (!most) return most.error();
    question->request.sampling.max_tokens = *most;
  }
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const recipe::AnswerIdentity identity{answer_id(api), request->model,
                                        std::chrono::duration_cast<std::chrono::seconds>(now).count()};
  question->body = recipe::make_body(*request, identity, &tokenizer);
  return question;
}

/// The prompt of a line: "token_ids", or "prompt_ids" as evaluation files have it, or "prompt".
Result<Question> prompt_question(const Json& line, const Asking& asking, const std::string& where) {
  const GenerateSettings& s = asking.settings;
  const LoadedModel& model = asking.model;
  const int64_t vocabulary = model.opened.config.vocab_size;
  const auto wrong = [&](std::string what, std::string remedy) {
    return Error{ErrorCode::bad_input, std::move(what), where, std::move(remedy)};
  };
  SamplingSettings settings = s.sampling;
  if (auto read = read_sampling(line, settings); !read) {
    Error error = read.error();
    error.where = where + ", " + error.where;
    return error;
  }
  auto sampling = to_sampling(settings, vocabulary);
  if (!sampling) {
    Error error = sampling.error();
    error.code = ErrorCode::bad_input;
    error.where = where;
    return error;
  }
  const Json* ids = line.find("token_ids");
  if (ids == nullptr) ids = line.find("prompt_ids");
  const Json* prompt = line.find("prompt");
  if (ids != nullptr) {
    Question question;
    question.request.sampling = std::move(*sampling);
    question.parsing = plain_parsing(settings.stop);
    if (!ids->is_array() || ids->items.empty()) return wrong("\"token_ids\" is no list of ids", "write [0, 6, 1154]");
    for (const Json& item : ids->items) {
      const auto id = item.as_int64();
      if (!id || *id < 0 || *id >= vocabulary) {
        return wrong("\"token_ids\" has the item " + to_string(item),
                     "ids go from 0 to " + with_commas(vocabulary - 1));
      }
      question.request.ids.push_back(int32_t(*id));
    }
    return question;
  }
  if (prompt == nullptr || !prompt->is_string()) {
    return wrong("the line has no prompt",
                 "give it \"prompt\" (a text), \"token_ids\" (a list), or \"url\" and \"body\"");
  }
  if (!model.tokenizer) return wrong("the model has no tokenizer.json, so it cannot read text", "give \"token_ids\"");
  if (!s.chat) return plain_question(prompt->text, !s.no_bos, settings, *model.tokenizer, vocabulary);
  const auto request = message_request(prompt->text, asking.frame);
  if (!request) return request.error();
  return codec_question(*request, settings, *model.tokenizer, vocabulary);
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
  if (auto possible = message_request("", *frame); !possible) return possible.error();
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
  EngineSettings settings = s.engine;
  settings.schedule_drafts = true;
  auto engine = open_engine(*model, settings, common);
  if (!engine) return engine.error();
  const int64_t most = s.concurrency.value_or(engine->options().sequences);
  Answering answering(*engine, tokenizer);
  const Asking asking{s, *frame, *model, engine->options().context};
  std::map<int64_t, recipe::Api> apis;  // of lines that are requests and are being answered

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
  const auto fail_as = [&](const BatchLine& line, const Json& error) {
    failed.push_back(line.number);
    ++done;
    written = output->append(line.id, "error", to_string(error));
  };
  const auto fail = [&](const BatchLine& line, const Error& error) { fail_as(line, error_json(error)); };
  const auto ask = [&](int64_t index, const BatchLine& line, const Json& tree, const std::string& where) {
    const Json* body = tree.find("body");
    const Json* url = tree.find("url");
    if (body == nullptr && url == nullptr) {
      auto question = prompt_question(tree, asking, where);
      if (!question) return fail(line, question.error());
      question->request.prompt_logprobs = s.prompt_logprobs;
      if (auto asked = answering.ask(index, std::move(*question)); !asked) fail(line, for_people(asked.error()));
      return;
    }
    const auto api = api_of_url(url, where);
    if (!api) return fail(line, api.error());
    if (body == nullptr)
      return fail(line, {ErrorCode::bad_input, "\"url\" without \"body\"", where, "give the request"});
    if (tokenizer == nullptr) {
      return fail(line, {ErrorCode::not_found, "the model has no tokenizer.json, so it cannot read text", where,
                         "give \"token_ids\""});
    }
    auto question = body_question(*body, *api, asking);
    if (!question) return fail_as(line, api_error(question.error(), *api));
    if (auto asked = answering.ask(index, std::move(*question)); !asked) {
      return fail_as(line, api_error(for_people(asked.error()), *api));
    }
    apis.emplace(index, *api);
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
      ask(index, line, *tree, where);
    }
    show();
    if (answering.running() == 0) {
      if (next == todo.size()) break;
      continue;
    }
    answering.step([](int64_t, const recipe::Delta&) {},
                   [&](int64_t index, Answer answer) {
                     if (!written) return;
                     const BatchLine& line = lines[size_t(index)];
                     add(usage, answer.usage);
                     tokens += answer.usage.generated_tokens;
                     const auto api = apis.extract(index);
                     if (answer.error) {
                       fail_as(line, api ? api_error(*answer.error, api.mapped()) : error_json(*answer.error));
                     } else {
                       ++done;
                       written = output->append(line.id, "response",
                                                api ? answer.body : to_string(to_json(answer, 0, tokenizer)));
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
    if (const auto stream = engine->stream_statistics()) print_note(stats_text(*stream));
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
