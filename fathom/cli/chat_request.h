// fathom/cli/chat_request.h
// From what a person gives (options, files, lines) to a request of the codec, and from a request to a question for the
// engine. `generate --chat` and `chat` write their messages as a Chat Completions body and read it with the codec, so
// the rules for tools, schemas and history are those of the API. Source: spec/recipe.md 2, spec/codec-policy.md.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fathom/base/json.h"
#include "fathom/base/result.h"
#include "fathom/cli/answering.h"
#include "fathom/cli/sampling_options.h"
#include "fathom/recipe/codec.h"
#include "fathom/tokenizer/tokenizer.h"

namespace fathom::cli {

/// How this program converts requests: policy `default`, and no model but V4.1.
const recipe::ConversionOptions& conversion();

/// What stands around the messages of a conversation.
struct ChatFrame {
  std::optional<std::string> system;
  Json effort = Json::of("high");  // as `reasoning_effort`: a name or a number
  Json tools = Json::array();      // as `tools`
  Json format;                     // as `response_format`; null: none
};

/// What `--effort` says: none (no thinking), low, high, max, or a number from 1 to 100. Errors: usage.
Result<Json> read_effort(const std::string& text);
/// A list of tools, each {"name", "description", "parameters"} or the same inside {"type":"function","function":…}; in
/// the second form. Errors: those of the file, bad_input naming the entry that is wrong.
Result<Json> read_tools(const std::string& path);
/// The response format of a file with a JSON Schema, or of a regular expression. Errors: those of the file; usage.
Result<Json> read_schema(const std::string& path);
Result<Json> read_regex(const std::string& expression);

/// {"role":ROLE,"content":TEXT}
Json chat_message(std::string_view role, std::string_view text);
/// The body of a request: `{"model","messages","reasoning_effort",["tools"],["response_format"]}`.
Json chat_body(Json messages, const ChatFrame& frame);
/// The same, read. Errors: those of recipe::read_request; paths are those of chat_body.
Result<recipe::CodecRequest> chat_request(Json messages, const ChatFrame& frame);

/// Refuses what this build would have to ignore: images, and constraints that cannot be enforced. Errors: usage,
/// `where` being the path in the request.
Result<void> check_answerable(const recipe::CodecRequest& request);

/// The sampling settings that a request has.
SamplingSettings settings_of(const recipe::Inference& inference);

/// The prompt as tokens, and how its answer is read; stop texts of `sampling` replace those of the request. `rendered`,
/// if given, gets the prompt's text. Errors: those of the tokenizer and of to_sampling.
Result<Question> codec_question(const recipe::CodecRequest& request, const SamplingSettings& sampling,
                                const Tokenizer& tokenizer, int64_t vocabulary, std::string* rendered = nullptr);
/// A plain text to be continued. Errors: those of to_sampling.
Result<Question> plain_question(std::string_view text, bool with_bos, const SamplingSettings& sampling,
                                const Tokenizer& tokenizer, int64_t vocabulary);

/// An error of the codec in the words of the command line: it happened in `where`, at the path that the codec names.
Error told_of(Error error, const std::string& where, ErrorCode code, const std::string& remedy);

}  // namespace fathom::cli
