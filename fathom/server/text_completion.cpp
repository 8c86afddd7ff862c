#include "fathom/server/text_completion.h"

#include <utility>

#include "fathom/base/json.h"

namespace fathom {
namespace {

void append_head(std::string& out, const recipe::AnswerIdentity& identity) {
  out += R"({"id":)";
  append_json_string(out, identity.id);
  out.append(R"(,"object":"text_completion","created":)").append(std::to_string(identity.created));
  out += R"(,"model":)";
  append_json_string(out, identity.model);
}

void append_usage(std::string& out, const recipe::Usage& usage) {
  out.append(R"({"prompt_tokens":)").append(std::to_string(usage.prompt_tokens));
  out.append(R"(,"completion_tokens":)").append(std::to_string(usage.completion_tokens));
  out.append(R"(,"total_tokens":)").append(std::to_string(usage.prompt_tokens + usage.completion_tokens));
  out.append(R"(,"prompt_tokens_details":{"cached_tokens":)").append(std::to_string(usage.cached_tokens)).append("}}");
}

const char* reason_of(recipe::FinishReason reason) {
  return reason == recipe::FinishReason::length ? "length" : "stop";
}

/// Four lists side by side, as that API has them. `offset`: characters of the answer before these tokens, in bytes.
void append_logprobs(std::string& out, std::span<const recipe::TokenLogprob> tokens, const Tokenizer* tokenizer,
                     int64_t offset) {
  if (tokens.empty() || tokenizer == nullptr) {
    out += "null";
    return;
  }
  std::string names, values, tops, offsets;
  for (const recipe::TokenLogprob& token : tokens) {
    const char* comma = names.empty() ? "" : ",";
    names += comma, values += comma, tops += comma, offsets += comma;
    append_json_string(names, tokenizer->token_text(token.id));
    append_json_number(values, double(token.logprob));
    tops += '{';
    for (size_t i = 0; i < token.top.size(); ++i) {
      if (i > 0) tops += ',';
      append_json_string(tops, tokenizer->token_text(token.top[i].first));
      tops += ':';
      append_json_number(tops, double(token.top[i].second));
    }
    tops += '}';
    offsets += std::to_string(offset);
    offset += int64_t(tokenizer->bytes_of(token.id).size());
  }
  out.append(R"({"tokens":[)").append(names).append(R"(],"token_logprobs":[)").append(values);
  out.append(R"(],"top_logprobs":[)").append(tops).append(R"(],"text_offset":[)").append(offsets).append("]}");
}

}  // namespace

TextCompletionWriter::TextCompletionWriter(TextCompletionForm form) : form_(std::move(form)) {
  append_head(head_, form_.identity);
  head_ += R"(,"choices":[{"index":0,"text":)";
}

void TextCompletionWriter::write(const recipe::Delta& delta, recipe::WireEvents& out) {
  const size_t begin = out.text.size();
  out.text += head_;
  append_json_string(out.text, delta.text);
  out.text += R"(,"logprobs":)";
  append_logprobs(out.text, delta.logprobs, form_.tokenizer, offset_);
  out.text += R"(,"finish_reason":null}])";
  out.text += form_.include_usage ? R"(,"usage":null})" : "}";
  offset_ += int64_t(delta.text.size());
  out.add("", begin);
}

void TextCompletionWriter::finish(const recipe::AnswerEnd& end, recipe::WireEvents& out) {
  size_t begin = out.text.size();
  out.text.append(head_).append(R"("","logprobs":null,"finish_reason":")").append(reason_of(end.reason));
  out.text += form_.include_usage ? R"("}],"usage":null})" : R"("}]})";
  out.add("", begin);
  if (!form_.include_usage) return;
  begin = out.text.size();
  append_head(out.text, form_.identity);
  out.text += R"(,"choices":[],"usage":)";
  append_usage(out.text, end.usage);
  out.text += '}';
  out.add("", begin);
}

void TextCompletionWriter::fail(const Error& error, recipe::WireEvents& out) {
  const size_t begin = out.text.size();
  const std::string_view type = recipe::failure_type(error.code, recipe::Api::chat_completions);
  out.text += R"({"error":{"message":)";
  append_json_string(out.text, error.message);
  out.text.append(R"(,"type":")").append(type).append(R"(","param":null,"code":")").append(type).append(R"("}})");
  out.add("", begin);
}

void TextCompletionBody::write(const recipe::Delta& delta) {
  text_ += delta.text;
  logprobs_.insert(logprobs_.end(), delta.logprobs.begin(), delta.logprobs.end());
}

void TextCompletionBody::append_to(std::string& out) const {
  append_head(out, form_.identity);
  out += R"(,"choices":[{"index":0,"text":)";
  append_json_string(out, text_);
  out += R"(,"logprobs":)";
  append_logprobs(out, logprobs_, form_.tokenizer, 0);
  out.append(R"(,"finish_reason":")").append(reason_of(end_.reason)).append(R"("}],"usage":)");
  append_usage(out, end_.usage);
  out += '}';
}

}  // namespace fathom
