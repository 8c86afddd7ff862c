// fathom/recipe/api/responses/answer.h
// Answers as Responses: events (`response.created` … `response.completed`) and the complete body. Source:
// spec/recipe.md 8.4, 9.
#pragma once
#include <string>
#include <vector>

#include "fathom/recipe/answer.h"
#include "fathom/recipe/api/responses/echo.h"
#include "fathom/recipe/settings.h"
#include "fathom/tokenizer/tokenizer.h"

namespace fathom::recipe {

struct ResponsesForm {
  AnswerIdentity identity;
  ResponsesEcho echo;                    // settings that the response object repeats
  NamespaceMap namespaces;               // splits function names
  const Tokenizer* tokenizer = nullptr;  // names tokens in logprobs; must outlive the writer; needed when there are any
};

class ResponsesWriter {
 public:
  explicit ResponsesWriter(ResponsesForm form);
  void start(const AnswerStart& start, WireEvents& out);
  void write(const Delta& delta, WireEvents& out);
  void finish(const AnswerEnd& end, WireEvents& out);

 private:
  ResponsesForm form_;
};

class ResponsesBody {
 public:
  explicit ResponsesBody(ResponsesForm form);
  void start(const AnswerStart& start);
  void write(const Delta& delta);
  void finish(const AnswerEnd& end);
  /// Appends the JSON body of all that came so far.
  void append_to(std::string& out) const;

 private:
  ResponsesForm form_;
};

}  // namespace fathom::recipe
