// fathom/recipe/api/chat_completions/answer.h
// Answers as Chat Completions: chunks (`chat.completion.chunk`) and the complete body. Source: spec/recipe.md 8.4, 9.
#pragma once
#include <string>
#include <vector>

#include "fathom/recipe/answer.h"
#include "fathom/tokenizer/tokenizer.h"

namespace fathom::recipe {

struct ChatCompletionsForm {
  AnswerIdentity identity;
  bool thinking = true;  // deltas have reasoning_content
  bool stream = false;
  bool include_usage = false;            // stream_options.include_usage
  const Tokenizer* tokenizer = nullptr;  // names tokens in logprobs; must outlive the writer; needed when there are any
};

class ChatCompletionsWriter {
 public:
  explicit ChatCompletionsWriter(ChatCompletionsForm form);
  void start(const AnswerStart& start, WireEvents& out);
  void write(const Delta& delta, WireEvents& out);
  void finish(const AnswerEnd& end, WireEvents& out);

  static constexpr std::string_view kDone = "[DONE]";  // data of the last SSE frame

 private:
  ChatCompletionsForm form_;
};

class ChatCompletionsBody {
 public:
  explicit ChatCompletionsBody(ChatCompletionsForm form);
  void start(const AnswerStart& start);
  void write(const Delta& delta);
  void finish(const AnswerEnd& end);
  /// Appends the JSON body of all that came so far.
  void append_to(std::string& out) const;

 private:
  ChatCompletionsForm form_;
};

}  // namespace fathom::recipe
