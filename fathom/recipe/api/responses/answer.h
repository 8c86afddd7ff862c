// fathom/recipe/api/responses/answer.h
// Answers as Responses: events (`response.created` … `response.completed`) and the complete body. Source:
// spec/recipe.md 8.4, 9; spec/codec-policy.md 3, 5.
#pragma once
#include <memory>
#include <string>

#include "fathom/recipe/answer.h"
#include "fathom/recipe/api/responses/echo.h"
#include "fathom/recipe/settings.h"
#include "fathom/tokenizer/tokenizer.h"

namespace fathom::recipe {

struct ResponsesForm {
  AnswerIdentity identity;
  ResponsesEcho echo;                    // settings that the response object repeats; of no request: the defaults
  NamespaceMap namespaces;               // splits function names
  bool found_patch = false;              // apply_patch is a custom tool although the echo does not have it
  const Tokenizer* tokenizer = nullptr;  // names tokens in logprobs; must outlive the writer; needed when there are any
  Policy policy = Policy::lenient;  // how numbers in echoed schemas and tool_search arguments are spelt; keep_alive
};

class ResponsesOutput;

/// `completed_at` is the system clock's second at finish, but not before `created`.
class ResponsesWriter {
 public:
  explicit ResponsesWriter(ResponsesForm form);
  ResponsesWriter(ResponsesWriter&&) noexcept;
  ResponsesWriter& operator=(ResponsesWriter&&) noexcept;
  ~ResponsesWriter();

  void start(const AnswerStart& start, WireEvents& out);
  void write(const Delta& delta, WireEvents& out);
  void finish(const AnswerEnd& end, WireEvents& out);
  /// Instead of finish, when generation failed: `response.failed`, with the output so far.
  void fail(const Error& error, WireEvents& out);
  /// A sign of life: `response.in_progress` once more; an SSE comment before start and under strict.
  void keep_alive(WireEvents& out);

 private:
  std::unique_ptr<ResponsesOutput> output_;
};

class ResponsesBody {
 public:
  explicit ResponsesBody(ResponsesForm form);
  ResponsesBody(ResponsesBody&&) noexcept;
  ResponsesBody& operator=(ResponsesBody&&) noexcept;
  ~ResponsesBody();

  void start(const AnswerStart& start);
  void write(const Delta& delta);
  void finish(const AnswerEnd& end);
  /// Appends the JSON body of all that came so far.
  void append_to(std::string& out) const;

 private:
  std::unique_ptr<ResponsesOutput> output_;
};

}  // namespace fathom::recipe
