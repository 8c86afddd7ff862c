// The three requests and ConversationRequest.
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <chrono>
#include <optional>
#include <string>

#include "fathom/recipe/api/chat_completions/request.h"
#include "fathom/recipe/api/messages/request.h"
#include "fathom/recipe/api/responses/request.h"
#include "python/src/answers.h"
#include "python/src/converted.h"
#include "python/src/errors.h"
#include "python/src/json_object.h"
#include "python/src/words.h"

namespace fathom::python {
namespace {

using recipe::Api;
using recipe::ConversionOptions;
using recipe::Policy;

/// A request until it is converted.
template <class Request>
struct PyRequest {
  std::optional<Request> request;
  Policy policy;

  Request& get() {
    if (!request) raise_consumed("protocol request");
    return *request;
  }
};

/// Python's other threads go on while text is parsed.
template <class Request>
Result<Request> parse(nb::handle body, Policy policy) {
  std::string_view text;
  if (PyBytes_Check(body.ptr())) {
    text = {PyBytes_AsString(body.ptr()), size_t(PyBytes_Size(body.ptr()))};
  } else if (PyUnicode_Check(body.ptr())) {
    text = utf8_of(body);
  } else {
    return Request::parse(json_of(body), policy);
  }
  nb::gil_scoped_release others;
  return Request::parse(text, policy);
}

/// Parsing has read under a policy, so that converting must go on under the same.
void check_policy(Policy parsed, Policy options) {
  if (parsed == options) return;
  raise_value_error(std::string("the request was parsed under policy \"") + name_of(parsed) + "\", the options say \"" +
                    name_of(options) + "\": give both the same");
}

template <class Request>
PyConverted convert(PyRequest<Request>& self, const ConversionOptions& options, Api api) {
  Request& request = self.get();
  check_policy(self.policy, options.policy);
  PyConverted out;
  out.api = api;
  if constexpr (std::is_same_v<Request, recipe::ChatCompletionsRequest>) out.include_usage = request.include_usage();
  Request taken = std::move(request);
  self.request.reset();
  auto converted = [&] {
    nb::gil_scoped_release others;
    return std::move(taken).convert(options);
  }();
  out.request = accepted(std::move(converted), api, options.policy);
  return out;
}

int64_t now() {
  const auto since_epoch = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(since_epoch).count();
}

template <Api kApi>
Generator<kApi> generator(const PyConverted& request, std::string id, std::string model) {
  AnswerForm form;
  form.api = kApi;
  form.identity = {std::move(id), std::move(model), now()};
  form.thinking = request.request.conversation.thinking;
  form.found_patch = request.request.found_patch;
  form.starts_in_content = request.request.parsing.stage == recipe::ThinkingStage::content_continuation;
  form.stream = request.request.stream;
  form.include_usage = request.include_usage;
  return {std::move(form)};
}

template <class Request, Api kApi>
nb::class_<PyRequest<Request>> bind_request(nb::module_& module, const char* name) {
  using Self = PyRequest<Request>;
  return nb::class_<Self>(module, name)
      .def(
          "__init__",
          [](Self* self, nb::handle body, std::string_view policy_name) {
            const Policy policy = read_policy(policy_name);
            new (self) Self{accepted(parse<Request>(body, policy), kApi, policy), policy};
          },
          nb::arg("body").none(), nb::kw_only(), "policy"_a = "default")
      .def_prop_ro("model", [](Self& self) { return self.get().model(); })
      .def_prop_ro("policy", [](const Self& self) { return name_of(self.policy); })
      .def(
          "convert", [](Self& self, const ConversionOptions& options) { return convert(self, options, kApi); },
          "options"_a)
      .def_static("chunk_generator", &generator<kApi>, "request"_a, "id"_a, "model"_a);
}

void bind_converted(nb::module_& module) {
  nb::class_<PyConverted>(module, "ConversationRequest")
      .def(
          "__init__",
          [](PyConverted* self, const recipe::Conversation& conversation, recipe::ModelVersion version,
             std::string_view policy) {
            PyConverted made;
            made.direct = true;
            made.request.conversation = conversation;
            made.request.version = version;
            made.request.parsing.policy = read_policy(policy);
            new (self) PyConverted(std::move(made));
          },
          "conversation"_a, "model_version"_a, nb::kw_only(), "policy"_a = "default")
      // Nothing in Python can change a conversation, so that it need not be copied.
      .def_prop_ro(
          "conversation",
          [](const PyConverted& self) -> const recipe::Conversation& { return self.request.conversation; },
          nb::rv_policy::reference_internal)
      .def_prop_ro("inference_options",
                   [](const PyConverted& self) {
                     return PyInference{self.request.inference, self.direct};
                   })
      .def_prop_ro(
          "parsing_options", [](const PyConverted& self) { return recipe::Parsing(self.request.parsing); },
          nb::rv_policy::move)
      .def_prop_ro("model_version", [](const PyConverted& self) { return self.request.version; })
      .def_prop_ro("stream", [](const PyConverted& self) { return self.request.stream; })
      .def(
          "resolve_max_tokens",
          [](const PyConverted& self, uint32_t prompt_tokens, uint32_t context_limit) {
            return accepted(resolve_max_tokens(self.request, prompt_tokens, context_limit), self.api,
                            self.request.parsing.policy);
          },
          "prompt_tokens"_a, "context_limit"_a);
}

void bind_echo(nb::module_& module) {
  using recipe::ResponsesEcho;
  nb::class_<ResponsesEcho>(module, "ResponsesEcho")
      .def(nb::init<>())
      .def_ro("instructions", &ResponsesEcho::instructions)
      .def_ro("max_output_tokens", &ResponsesEcho::max_output_tokens)
      .def_ro("temperature", &ResponsesEcho::temperature)
      .def_ro("top_p", &ResponsesEcho::top_p)
      .def_ro("top_logprobs", &ResponsesEcho::top_logprobs)
      .def_ro("user", &ResponsesEcho::user);
}

}  // namespace

void bind_requests(nb::module_& module) {
  bind_converted(module);
  bind_echo(module);
  bind_generators(module);
  bind_request<recipe::ChatCompletionsRequest, Api::chat_completions>(module, "ChatCompletionRequest");
  bind_request<recipe::MessagesRequest, Api::messages>(module, "MessagesRequest");
  using Responses = PyRequest<recipe::ResponsesRequest>;
  bind_request<recipe::ResponsesRequest, Api::responses>(module, "ResponsesRequest")
      .def("echo", [](Responses& self) { return self.get().echo(); })
      .def(
          "namespace_tool_map",
          [](Responses& self, const ConversionOptions& options) {
            const recipe::ResponsesRequest& request = self.get();
            check_policy(self.policy, options.policy);
            return accepted(request.namespaces(options), Api::responses, options.policy);
          },
          "options"_a);
}

}  // namespace fathom::python
