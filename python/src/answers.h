// python/src/answers.h
// What a chunk generator, its processor, its events and the response that gathers them share.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "fathom/recipe/answer_writer.h"
#include "fathom/tokenizer/tokenizer.h"
#include "python/src/errors.h"

namespace fathom::python {

/// How an answer is written. The processor adds policy and tokenizer.
struct AnswerForm {
  recipe::Api api = recipe::Api::chat_completions;
  recipe::AnswerIdentity identity;
  bool thinking = true;
  bool starts_in_content = false;   // Chat
  bool stream = false;              // Chat
  bool include_usage = false;       // Chat
  std::string signature;            // Messages
  recipe::ResponsesEcho echo;       // Responses
  recipe::NamespaceMap namespaces;  // Responses
  bool found_patch = false;         // Responses
  recipe::Policy policy = recipe::Policy::lenient;
  std::shared_ptr<const Tokenizer> tokenizer;  // of log-probabilities; outlives writers and bodies with the form
};

recipe::AnswerWriter make_writer(const AnswerForm& form);
recipe::AnswerBody make_body(const AnswerForm& form, recipe::AnswerIdentity identity);

/// …ChunkGenerator: a form until it is used.
template <recipe::Api kApi>
struct Generator {
  std::optional<AnswerForm> form;

  AnswerForm take() {
    if (!form) raise_consumed("chunk generator");
    AnswerForm out = std::move(*form);
    form.reset();
    return out;
  }
};

void bind_generators(nb::module_& module);

}  // namespace fathom::python
