// fathom/cli/plain_prompt.h
// The prompt format of the family, as far as the miniature was trained on it: system, user, assistant and tool turns,
// thinking on and off, effort, tools. It serves `generate --chat` and `chat` until the codec (room `recipe`) lands,
// which then replaces this file: no API body, no images, no response schemas here. Source: spec/recipe.md 6, 8.1.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fathom/base/json.h"
#include "fathom/base/result.h"
#include "fathom/tokenizer/tokenizer.h"

namespace fathom::cli {

struct ToolCall {
  std::string name;
  std::string arguments;  // text of a JSON object; unfinished when the answer was cut
};

struct Turn {
  enum class Role { system, user, assistant, tool } role = Role::user;
  std::string text;
  std::string reasoning;        // assistant
  std::vector<ToolCall> calls;  // assistant
};

struct Conversation {
  std::vector<Turn> turns;
  bool thinking = true;
  int effort = 75;             // 1 to 100
  Json tools = Json::array();  // {"name","description","parameters"} each
};

/// What `--effort` says: none (thinking off), low 50, high 75, max 100, or a number from 1 to 100. Nothing: no such
/// level.
struct Effort {
  bool thinking = true;
  int number = 75;
};
std::optional<Effort> parse_effort(std::string_view text);

/// A list of tools, each {"name", "description", "parameters"} or the same inside {"type":"function","function":…}.
/// Errors: bad_input naming the entry that has no name.
Result<Json> read_tools(const Json& file, std::string_view where);

struct RenderedPrompt {
  std::string text;
  std::vector<SpecialRange> special;  // the tokens that the renderer itself placed; nothing a user typed
};
/// Ends with the header of the next assistant turn.
RenderedPrompt render(const Conversation& conversation);

/// One part of an answer, ready to show.
struct AnswerPiece {
  enum class Channel { reasoning, text, calls } channel = Channel::text;  // calls: markup, not for reading
  std::string text;
};

/// Splits an answer into reasoning, text and the block of tool calls while it arrives. What may yet become a marker is
/// held back. Plain answers (no chat) have one channel.
class AnswerSplitter {
 public:
  enum class Start { plain, text, reasoning };
  explicit AnswerSplitter(Start start, bool tools);
  std::vector<AnswerPiece> push(std::string_view text);
  /// Gives what is still held.
  std::vector<AnswerPiece> finish();

 private:
  enum class State { plain, reasoning, text, calls };
  void step(std::vector<AnswerPiece>& out, bool last);
  void emit(std::vector<AnswerPiece>& out, size_t count);

  State state_;
  bool tools_;
  bool leading_ = true;  // at the very start of reasoning or text: a line break there is dropped
  std::string held_;
};

/// The calls inside the markup of channel `calls`. A name that was cut yields none.
std::vector<ToolCall> parse_calls(std::string_view markup);

}  // namespace fathom::cli
