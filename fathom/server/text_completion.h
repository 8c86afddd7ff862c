// fathom/server/text_completion.h
// POST /v1/completions: a plain continuation of a text or of token ids, without a conversation, in the form that
// OpenAI's older API has. Its writers have the same calls as those of the codec (recipe/answer_writer.h), so the same
// answer.h drives them.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fathom/engine/request.h"
#include "fathom/recipe/answer.h"
#include "fathom/server/question.h"
#include "fathom/tokenizer/tokenizer.h"

namespace fathom {

struct TextCompletionRequest {
  std::string model;
  bool stream = false;
  bool include_usage = false;  // stream_options.include_usage
  bool logprobs = false;
  Question question;
};

/// `prompt`: a text (added tokens are recognised; BOS comes first unless add_special_tokens is false or it begins so),
/// a list of ids, or a list of one such. Besides OpenAI's fields: top_k, min_p, repetition_penalty, stop_token_ids,
/// min_tokens, ignore_eos. max_tokens is 16 when absent, as there. Errors: bad_input and usage with the path of the
/// value; out_of_range when the context is too small.
Result<TextCompletionRequest> read_text_completion(std::string_view body, const Tokenizer& tokenizer,
                                                   const RequestLimits& limits);

struct TextCompletionForm {
  recipe::AnswerIdentity identity;
  bool include_usage = false;
  const Tokenizer* tokenizer = nullptr;  // names tokens in logprobs
};

class TextCompletionWriter {
 public:
  explicit TextCompletionWriter(TextCompletionForm form);
  void start(const recipe::AnswerStart&, recipe::WireEvents&) {}
  void write(const recipe::Delta& delta, recipe::WireEvents& out);
  void finish(const recipe::AnswerEnd& end, recipe::WireEvents& out);
  void fail(const Error& error, recipe::WireEvents& out);
  void keep_alive(recipe::WireEvents& out) { out.add_comment(); }

 private:
  TextCompletionForm form_;
  std::string head_;  // of a chunk, up to the text
  int64_t offset_ = 0;
};

class TextCompletionBody {
 public:
  explicit TextCompletionBody(TextCompletionForm form) : form_(std::move(form)) {}
  void start(const recipe::AnswerStart&) {}
  void write(const recipe::Delta& delta);
  void finish(const recipe::AnswerEnd& end) { end_ = end; }
  void append_to(std::string& out) const;

 private:
  TextCompletionForm form_;
  std::string text_;
  std::vector<recipe::TokenLogprob> logprobs_;
  recipe::AnswerEnd end_;
};

}  // namespace fathom
