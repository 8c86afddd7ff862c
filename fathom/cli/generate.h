// fathom/cli/generate.h
// What the two halves of `fathom generate` share: its options, and what stands around the message of --chat.
#pragma once
#include "fathom/cli/answering.h"
#include "fathom/cli/chat_request.h"
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
  std::string tools, schema;
  std::optional<std::string> regex;
  std::string request, api;  // a whole body, and its form: chat when nothing is said
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

/// Reads what --chat needs beside the text. Errors: usage, and what is wrong with a file.
Result<ChatFrame> chat_frame(const GenerateSettings& settings);

/// The request of one user message. Errors: usage; also for a constraint that cannot be enforced, by keyword and path.
Result<recipe::CodecRequest> message_request(std::string_view message, const ChatFrame& frame);

/// `generate --input`: every line of a file, answers appended to another as they finish.
Result<int> run_batch(const GenerateSettings& settings, const Common& common);

}  // namespace fathom::cli
