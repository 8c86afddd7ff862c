// fathom/cli/generate.h
// What the two halves of `fathom generate` share: its options, and how a text becomes a question.
#pragma once
#include <memory>

#include "fathom/cli/answering.h"
#include "fathom/cli/loaded_model.h"
#include "fathom/cli/sampling_options.h"

namespace fathom::cli {

struct GenerateSettings {
  std::vector<std::string> words;  // [PROMPT]
  std::string prompt_file;
  std::vector<int64_t> ids;
  bool no_bos = false;
  bool chat = false;
  std::optional<std::string> system;
  std::string effort = "high";
  std::string tools;
  bool show_prompt = false;
  SamplingSettings sampling;
  int64_t answers = 1;  // --n
  bool prompt_logprobs = false;
  std::string reasoning;  // empty: show when stderr is a terminal
  bool stats = false;
  std::string input, output;
  bool resume = false;
  std::optional<int64_t> concurrency;
  EngineSettings engine;
};

/// What --chat needs beside the text.
struct ChatFrame {
  std::optional<std::string> system;
  Effort effort;
  Json tools = Json::array();
};
/// Reads --effort and --tools. Errors: usage, and what is wrong with the file of tools.
Result<ChatFrame> chat_frame(const GenerateSettings& settings);

/// A question of one user message, or of a plain text to be continued. `rendered`, if given, gets the prompt's text.
/// Errors: those of the tokenizer.
Result<Question> chat_question(const ChatFrame& frame, std::string_view message, const Tokenizer& tokenizer,
                               std::string* rendered = nullptr);
Question plain_question(std::string_view text, bool with_bos, const Tokenizer& tokenizer);

/// `generate --input`: every line of a file, answers appended to another as they finish.
Result<int> run_batch(const GenerateSettings& settings, const Common& common);

}  // namespace fathom::cli
