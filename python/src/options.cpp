// ModelVersion, the two behaviours, ConversionOptions, ParsingOptions, InferenceOptions, OutputConstraint.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <string>

#include "fathom/recipe/settings.h"
#include "python/src/converted.h"
#include "python/src/json_object.h"
#include "python/src/module.h"
#include "python/src/words.h"

namespace fathom::python {
namespace {

using recipe::ConversionOptions;
using recipe::ModelVersion;
using recipe::Parsing;
using recipe::ThinkingStage;
using recipe::TokenSpellings;
using WebSearch = ConversionOptions::WebSearch;

enum class ReasoningContent { fill_empty, reject };

ReasoningContent reasoning_content(const ConversionOptions& options) {
  return options.reject_missing_reasoning ? ReasoningContent::reject : ReasoningContent::fill_empty;
}

/// Options like these with one thing changed: what every with_… gives.
template <class Change>
ConversionOptions changed(ConversionOptions options, Change change) {
  change(options);
  return options;
}

void set_alias(ConversionOptions& options, std::string name, ModelVersion version) {
  const auto same = [&](const auto& model) { return model.first == name; };
  const auto found = std::find_if(options.models.begin(), options.models.end(), same);
  if (found != options.models.end()) {
    found->second = version;
  } else {
    options.models.emplace_back(std::move(name), version);
  }
}

/// In the order of the dict.
void set_models(ConversionOptions& options, const nb::dict& models) {
  options.models.clear();
  for (const auto& [name, version] : models) {
    if (!PyUnicode_Check(name.ptr())) throw nb::type_error("model_versions_by_name: keys must be str");
    if (!nb::isinstance<ModelVersion>(version)) {
      throw nb::type_error("model_versions_by_name: values must be ModelVersion");
    }
    options.models.emplace_back(utf8_of(name), nb::cast<ModelVersion>(version));
  }
}

void bind_enums(nb::module_& module) {
  nb::enum_<ModelVersion>(module, "ModelVersion")
      .value("DeepseekV4Pro", ModelVersion::v4)
      .value("DeepseekV41Flash", ModelVersion::v41);
  nb::enum_<WebSearch>(module, "WebSearchBehavior").value("Drop", WebSearch::drop).value("Reject", WebSearch::reject);
  nb::enum_<ReasoningContent>(module, "ReasoningContentBehavior")
      .value("FillEmpty", ReasoningContent::fill_empty)
      .value("Reject", ReasoningContent::reject);
  nb::enum_<ThinkingStage>(module, "ThinkingInitialStage")
      .value("ReasoningStart", ThinkingStage::reasoning_start)
      .value("ReasoningContinuation", ThinkingStage::reasoning_continuation)
      .value("ContentContinuation", ThinkingStage::content_continuation)
      .def("starts_in_reasoning", [](ThinkingStage stage) { return stage != ThinkingStage::content_continuation; });
}

void bind_conversion_options(nb::module_& module) {
  using Options = ConversionOptions;
  nb::class_<Options>(module, "ConversionOptions")
      .def(
          "__init__",
          [](Options* self, bool thinking, ReasoningContent reasoning, WebSearch responses, WebSearch messages,
             uint32_t thinking_bound, uint32_t other_bound, std::string_view policy) {
            Options made;
            made.policy = read_policy(policy);
            made.default_thinking = thinking;
            made.reject_missing_reasoning = reasoning == ReasoningContent::reject;
            made.responses_web_search = responses;
            made.messages_web_search = messages;
            made.thinking_max_tokens = thinking_bound;
            made.non_thinking_max_tokens = other_bound;
            new (self) Options(std::move(made));
          },
          nb::kw_only(), "default_thinking_mode"_a = true,
          "reasoning_content_behavior"_a = ReasoningContent::fill_empty, "responses_web_search"_a = WebSearch::drop,
          "messages_web_search"_a = WebSearch::reject,
          "thinking_max_tokens_upper_bound"_a = Options{}.thinking_max_tokens,
          "non_thinking_max_tokens_upper_bound"_a = Options{}.non_thinking_max_tokens, "policy"_a = "default")
      .def_prop_ro("policy", [](const Options& self) { return name_of(self.policy); })
      .def_ro("default_thinking_mode", &Options::default_thinking)
      .def_prop_ro("reasoning_content_behavior", [](const Options& self) { return reasoning_content(self); })
      .def_ro("responses_web_search", &Options::responses_web_search)
      .def_ro("messages_web_search", &Options::messages_web_search)
      .def_ro("thinking_max_tokens_upper_bound", &Options::thinking_max_tokens)
      .def_ro("non_thinking_max_tokens_upper_bound", &Options::non_thinking_max_tokens)
      .def_prop_ro("special_tokens", [](const Options& self) { return self.spellings; })
      .def_prop_ro("model_versions_by_name",
                   [](const Options& self) {
                     nb::dict out;
                     for (const auto& [name, version] : self.models) out[nb::cast(name)] = nb::cast(version);
                     return out;
                   })
      .def(
          "with_policy",
          [](const Options& self, std::string_view policy) {
            return changed(self, [&](Options& o) { o.policy = read_policy(policy); });
          },
          "policy"_a)
      .def(
          "with_default_thinking_mode",
          [](const Options& self, bool value) {
            return changed(self, [&](Options& o) { o.default_thinking = value; });
          },
          "default_thinking_mode"_a)
      .def(
          "with_reasoning_content_behavior",
          [](const Options& self, ReasoningContent value) {
            return changed(self, [&](Options& o) { o.reject_missing_reasoning = value == ReasoningContent::reject; });
          },
          "reasoning_content_behavior"_a)
      .def(
          "with_responses_web_search",
          [](const Options& self, WebSearch value) {
            return changed(self, [&](Options& o) { o.responses_web_search = value; });
          },
          "responses_web_search"_a)
      .def(
          "with_messages_web_search",
          [](const Options& self, WebSearch value) {
            return changed(self, [&](Options& o) { o.messages_web_search = value; });
          },
          "messages_web_search"_a)
      .def(
          "with_special_tokens",
          [](const Options& self, const TokenSpellings& value) {
            return changed(self, [&](Options& o) { o.spellings = value; });
          },
          "special_tokens"_a)
      .def(
          "with_model_alias",
          [](const Options& self, std::string name, ModelVersion version) {
            return changed(self, [&](Options& o) { set_alias(o, std::move(name), version); });
          },
          "model"_a, "model_version"_a)
      .def(
          "with_model_versions_by_name",
          [](const Options& self, const nb::dict& models) {
            return changed(self, [&](Options& o) { set_models(o, models); });
          },
          "model_versions_by_name"_a)
      .def(
          "with_thinking_max_tokens_upper_bound",
          [](const Options& self, uint32_t value) {
            return changed(self, [&](Options& o) { o.thinking_max_tokens = value; });
          },
          "thinking_max_tokens_upper_bound"_a)
      .def(
          "with_non_thinking_max_tokens_upper_bound",
          [](const Options& self, uint32_t value) {
            return changed(self, [&](Options& o) { o.non_thinking_max_tokens = value; });
          },
          "non_thinking_max_tokens_upper_bound"_a);
}

void bind_parsing_options(nb::module_& module) {
  using Stops = std::vector<std::string>;
  nb::class_<Parsing>(module, "ParsingOptions")
      .def(
          "__init__",
          [](Parsing* self, bool tool_calls, bool starts_in_tool_calls, bool json_output,
             std::optional<ThinkingStage> stage, std::optional<Stops> stops, const TokenSpellings* spellings,
             std::string_view policy) {
            Parsing made;
            made.policy = read_policy(policy);
            made.tool_calls = tool_calls;
            made.starts_in_tool_calls = starts_in_tool_calls;
            made.json_output = json_output;
            made.stage = stage;
            if (stops) made.stop_sequences = std::move(*stops);
            if (spellings != nullptr) made.spellings = *spellings;
            new (self) Parsing(std::move(made));
          },
          nb::kw_only(), "parse_tool_calls"_a = true, "starts_in_tool_calls"_a = false, "parse_json_output"_a = false,
          "thinking_initial_stage"_a = nb::none(), "stop_sequences"_a = nb::none(), "special_tokens"_a = nb::none(),
          "policy"_a = "default")
      .def_prop_rw(
          "policy", [](const Parsing& self) { return name_of(self.policy); },
          [](Parsing& self, std::string_view policy) { self.policy = read_policy(policy); })
      .def_rw("parse_tool_calls", &Parsing::tool_calls)
      .def_rw("starts_in_tool_calls", &Parsing::starts_in_tool_calls)
      .def_rw("parse_json_output", &Parsing::json_output)
      .def_prop_rw(
          "thinking_initial_stage", [](const Parsing& self) { return self.stage; },
          [](Parsing& self, std::optional<ThinkingStage> stage) { self.stage = stage; },
          nb::for_setter(nb::arg("value").none()))
      .def_prop_rw(
          "stop_sequences", [](const Parsing& self) { return self.stop_sequences; },
          [](Parsing& self, Stops stops) { self.stop_sequences = std::move(stops); })
      .def_prop_rw(
          "special_tokens", [](const Parsing& self) { return TokenSpellings(self.spellings); },
          [](Parsing& self, const TokenSpellings& spellings) { self.spellings = spellings; },
          nb::for_getter(nb::rv_policy::move));
}

void bind_inference_options(nb::module_& module) {
  using grammar::Constraint;
  nb::class_<Constraint>(module, "OutputConstraint")
      .def_prop_ro("kind", [](const Constraint& self) { return name_of(self.kind); })
      .def_prop_ro("schema", [](const Constraint& self) { return self.text; })
      .def("__repr__", [](const Constraint& self) {
        return std::string("OutputConstraint(kind=\"") + name_of(self.kind) +
               "\", schema=" + to_string(Json::of(self.text)) + ")";
      });
  nb::class_<PyInference>(module, "InferenceOptions")
      .def_prop_ro("max_tokens", [](const PyInference& self) { return self.inference.max_tokens; })
      .def_prop_ro("temperature", [](const PyInference& self) { return self.resolved(self.inference.temperature); })
      .def_prop_ro("top_p", [](const PyInference& self) { return self.resolved(self.inference.top_p); })
      .def_prop_ro("frequency_penalty", [](const PyInference& self) { return self.inference.frequency_penalty; })
      .def_prop_ro("presence_penalty", [](const PyInference& self) { return self.inference.presence_penalty; })
      .def_prop_ro("logprobs", [](const PyInference& self) { return self.inference.logprobs; })
      .def_prop_ro("top_logprobs", [](const PyInference& self) { return self.inference.top_logprobs; })
      .def_prop_ro("seed", [](const PyInference& self) { return self.inference.seed; })
      .def_prop_ro("output_constraint", [](const PyInference& self) { return self.inference.constraint; });
}

}  // namespace

void bind_options(nb::module_& module) {
  bind_enums(module);
  bind_conversion_options(module);
  bind_parsing_options(module);
  bind_inference_options(module);
}

}  // namespace fathom::python
