// fathom/recipe/api/chat_completions/answer.h
// Answers as Chat Completions: chunks (`chat.completion.chunk`) and the complete body. The end of a call has no form
// here; a dropped call (D-12) is left out of the body. Source: spec/recipe.md 8.4, 9; spec/codec-policy.md 3, 5.
#pragma once
#include <string>
#include <vector>

#include "fathom/recipe/answer.h"
#include "fathom/tokenizer/tokenizer.h"

namespace fathom::recipe {

struct ChatCompletionsForm {
  AnswerIdentity identity;
  bool thinking = true;            // deltas have reasoning_content
  bool starts_in_content = false;  // with thinking: the answer continues content (a prefix), the first chunk says so
  bool stream = false;
  bool include_usage = false;            // stream_options.include_usage
  const Tokenizer* tokenizer = nullptr;  // names tokens in logprobs; must outlive the writer; needed when there are any
};

/// One event a delta: what all chunks share is made once, by start.
class ChatCompletionsWriter {
 public:
  explicit ChatCompletionsWriter(ChatCompletionsForm form) : form_(std::move(form)) {}
  void start(const AnswerStart& start, WireEvents& out);
  void write(const Delta& delta, WireEvents& out);
  void finish(const AnswerEnd& end, WireEvents& out);
  /// Instead of finish, when generation failed: `{"error":{…}}`. The caller closes the connection without kDone.
  void fail(const Error& error, WireEvents& out);
  /// A sign of life: an SSE comment.
  void keep_alive(WireEvents& out);

  static constexpr std::string_view kDone = "[DONE]";  // data of the last SSE frame

 private:
  void write_text(const Delta& delta, const std::string& head, std::string_view tail, std::string_view logprobs_key,
                  WireEvents& out);

  ChatCompletionsForm form_;
  bool started_ = false, ended_ = false;
  std::string head_;            // of a chunk, up to the members of `delta`
  std::string content_head_;    // … up to the text
  std::string reasoning_head_;  //
  std::string end_;             // of a chunk that is not the last, from `finish_reason`
  std::string content_tail_;    // from the text to the end, without logprobs
  std::string reasoning_tail_;  //
  std::string arguments_head_;  // up to the text, of call `arguments_call_`
  int arguments_call_ = -1;
};

class ChatCompletionsBody {
 public:
  explicit ChatCompletionsBody(ChatCompletionsForm form) : form_(std::move(form)) {}
  void start(const AnswerStart& start);
  void write(const Delta& delta);
  void finish(const AnswerEnd& end);
  /// Appends the JSON body of all that came so far.
  void append_to(std::string& out) const;

 private:
  struct Call {
    int index;
    std::string id, name, arguments;
  };
  ChatCompletionsForm form_;
  std::optional<std::string> fingerprint_;
  std::string content_, reasoning_;
  std::string content_logprobs_, reasoning_logprobs_;  // JSON, joined by commas
  std::vector<Call> calls_;
  std::optional<FinishReason> reason_;
  Usage usage_;
};

}  // namespace fathom::recipe
