// fathom/cli/chat_history.h
// The messages of `fathom chat`, as a Chat Completions request has them: a file that /save wrote can be sent to a
// server, asked with `generate --request`, or loaded again.
#pragma once
#include <optional>
#include <string>

#include "fathom/base/json.h"
#include "fathom/base/result.h"
#include "fathom/cli/answering.h"
#include "fathom/cli/chat_request.h"

namespace fathom::cli {

Json assistant_message(const Answer& answer);
Json tool_message(const std::string& call_id, std::string_view result);

/// A call that has no result yet.
struct OpenCall {
  std::string id, name;
};
/// The first of the last answer's calls without a result, if no other message follows.
std::optional<OpenCall> open_call(const Json& messages);

/// The messages with an empty result for every call that has none: as a request wants them.
Json with_all_results(const Json& messages);

/// Whether it is the user's own message, not a tool's result.
bool is_question(const Json& message);

struct LoadedChat {
  Json messages = Json::array();
  ChatFrame frame;  // of the file where it says, else of the conversation
};
/// Reads a request with messages, and perhaps tools and effort. Calls without an id get one, calls inside the history
/// without a result an empty one (files of earlier versions have neither). Errors: those of the file, bad_input with
/// the codec's words; usage for images.
Result<LoadedChat> load_chat(const std::string& path, const ChatFrame& frame);

}  // namespace fathom::cli
