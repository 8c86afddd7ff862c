// The three chunk generators, and the writers that they stand for.
#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include <chrono>

#include "python/src/answers.h"

namespace fathom::python {
namespace {

using recipe::Api;

recipe::ChatCompletionsForm chat_form(const AnswerForm& form, recipe::AnswerIdentity identity) {
  recipe::ChatCompletionsForm out;
  out.identity = std::move(identity);
  out.thinking = form.thinking;
  out.starts_in_content = form.starts_in_content;
  out.stream = form.stream;
  out.include_usage = form.include_usage;
  out.tokenizer = form.tokenizer.get();
  return out;
}

recipe::ResponsesForm responses_form(const AnswerForm& form, recipe::AnswerIdentity identity) {
  recipe::ResponsesForm out;
  out.identity = std::move(identity);
  out.echo = form.echo;
  out.namespaces = form.namespaces;
  out.found_patch = form.found_patch;
  out.tokenizer = form.tokenizer.get();
  out.policy = form.policy;
  return out;
}

recipe::MessagesForm messages_form(const AnswerForm& form, recipe::AnswerIdentity identity) {
  recipe::MessagesForm out;
  out.identity = std::move(identity);
  out.thinking = form.thinking;
  out.signature = form.signature;
  out.policy = form.policy;
  return out;
}

/// A generator like this one, which is used up by it, with one thing changed.
template <Api kApi, class Change>
Generator<kApi> changed(Generator<kApi>& self, Change change) {
  AnswerForm form = self.take();
  change(form);
  return {std::move(form)};
}

}  // namespace

recipe::AnswerWriter make_writer(const AnswerForm& form) {
  switch (form.api) {
    case Api::responses: return recipe::ResponsesWriter(responses_form(form, form.identity));
    case Api::messages: return recipe::MessagesWriter(messages_form(form, form.identity));
    case Api::chat_completions: break;
  }
  return recipe::ChatCompletionsWriter(chat_form(form, form.identity));
}

recipe::AnswerBody make_body(const AnswerForm& form, recipe::AnswerIdentity identity) {
  switch (form.api) {
    case Api::responses: return recipe::ResponsesBody(responses_form(form, std::move(identity)));
    case Api::messages: return recipe::MessagesBody(messages_form(form, std::move(identity)));
    case Api::chat_completions: break;
  }
  return recipe::ChatCompletionsBody(chat_form(form, std::move(identity)));
}

void bind_generators(nb::module_& module) {
  nb::class_<Generator<Api::chat_completions>>(module, "ChatCompletionChunkGenerator");

  using Responses = Generator<Api::responses>;
  nb::class_<Responses>(module, "ResponsesChunkGenerator")
      .def(
          "with_namespace_tool_map",
          [](Responses& self, recipe::NamespaceMap map) {
            return changed(self, [&](AnswerForm& form) { form.namespaces = std::move(map); });
          },
          "namespace_tool_map"_a)
      .def(
          "with_echo",
          [](Responses& self, const recipe::ResponsesEcho& echo) {
            return changed(self, [&](AnswerForm& form) { form.echo = echo; });
          },
          "echo"_a);

  using Messages = Generator<Api::messages>;
  nb::class_<Messages>(module, "MessagesChunkGenerator")
      .def(
          "__init__",
          [](Messages* self, std::string id, std::string model, bool thinking) {
            AnswerForm form;
            form.api = Api::messages;
            form.identity = {std::move(id), std::move(model), 0};  // this API shows no time
            form.thinking = thinking;
            new (self) Messages{std::move(form)};
          },
          "id"_a, "model"_a, "thinking_mode"_a)
      .def(
          "with_signature",
          [](Messages& self, std::string signature) {
            return changed(self, [&](AnswerForm& form) { form.signature = std::move(signature); });
          },
          "signature"_a);
}

}  // namespace fathom::python
