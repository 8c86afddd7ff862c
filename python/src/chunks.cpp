// PromptUsage, InferenceFinishReason, InferenceChunk.
#include "python/src/chunks.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/src/errors.h"

namespace fathom::python {
namespace {

using recipe::BackendFinish;
using recipe::PromptUsage;
using recipe::TokenLogprob;

constexpr uint64_t kMost = INT64_MAX;
int64_t limited(uint64_t number) { return int64_t(number < kMost ? number : kMost); }
/// An id that no tokenizer has stays one that no tokenizer has.
int32_t id_of(uint32_t id) { return id <= INT32_MAX ? int32_t(id) : -1; }

using Alternative = std::pair<uint32_t, double>;
using Logprob = std::pair<double, std::vector<Alternative>>;

PyChunk tokens(const std::vector<uint32_t>& ids, const std::optional<std::vector<Logprob>>& logprobs) {
  TokensChunk chunk;
  for (const uint32_t id : ids) chunk.ids.push_back(id_of(id));
  if (!logprobs) return {std::move(chunk)};
  for (const auto& [logprob, top] : *logprobs) {
    // More log-probabilities than ids are refused by the processor, which says how many there are.
    const size_t at = chunk.logprobs.size();
    TokenLogprob entry{at < chunk.ids.size() ? chunk.ids[at] : -1, float(logprob), {}};
    for (const auto& [id, value] : top) entry.top.emplace_back(id_of(id), float(value));
    chunk.logprobs.push_back(std::move(entry));
  }
  return {std::move(chunk)};
}

const char* kind_of(const PyChunk& self) {
  constexpr const char* kNames[] = {"ready", "text", "tokens", "finish"};
  return kNames[self.chunk.index()];
}

/// A property that one kind of chunk has.
template <class Kind, class Get>
auto of(Get get) {
  return [get](const PyChunk& self) -> nb::object {
    const Kind* chunk = std::get_if<Kind>(&self.chunk);
    return chunk != nullptr ? nb::object(nb::cast(get(*chunk))) : nb::object(nb::none());
  };
}

void bind_chunk(nb::module_& module) {
  nb::class_<PyChunk>(module, "InferenceChunk")
      .def_static(
          "ready",
          [](const PromptUsage* usage, std::optional<std::string> fingerprint) {
            return PyChunk{ReadyChunk{usage != nullptr ? *usage : PromptUsage{}, std::move(fingerprint)}};
          },
          nb::kw_only(), "prompt_usage"_a = nb::none(), "system_fingerprint"_a = nb::none())
      .def_static(
          "text",
          [](std::string content, uint64_t token_count) {
            return PyChunk{TextChunk{std::move(content), limited(token_count)}};
          },
          "content"_a, "token_count"_a = 0)
      .def_static("tokens", &tokens, "token_ids"_a, "logprobs"_a = nb::none())
      .def_static(
          "finish", [](BackendFinish reason) { return PyChunk{reason}; }, "finish_reason"_a)
      .def_prop_ro("kind", &kind_of)
      .def_prop_ro("content", of<TextChunk>([](const TextChunk& chunk) { return chunk.content; }))
      .def_prop_ro("token_count", of<TextChunk>([](const TextChunk& chunk) { return chunk.token_count; }))
      .def_prop_ro("token_ids", of<TokensChunk>([](const TokensChunk& chunk) { return chunk.ids; }))
      .def_prop_ro("finish_reason", of<BackendFinish>([](BackendFinish reason) { return reason; }))
      .def_prop_ro("prompt_usage", of<ReadyChunk>([](const ReadyChunk& chunk) { return chunk.prompt; }))
      .def_prop_ro("system_fingerprint", of<ReadyChunk>([](const ReadyChunk& chunk) { return chunk.fingerprint; }));
}

}  // namespace

void bind_chunks(nb::module_& module) {
  nb::class_<PromptUsage>(module, "PromptUsage")
      .def(
          "__init__",
          [](PromptUsage* self, uint64_t prompt, uint64_t cached) {
            new (self) PromptUsage{limited(prompt), limited(cached)};
          },
          nb::kw_only(), "prompt_tokens"_a = 0, "prompt_cache_hit_tokens"_a = 0)
      .def_ro("prompt_tokens", &PromptUsage::prompt_tokens)
      .def_ro("prompt_cache_hit_tokens", &PromptUsage::cached_tokens);
  nb::enum_<BackendFinish>(module, "InferenceFinishReason")
      .value("Stop", BackendFinish::stop)
      .value("Length", BackendFinish::length)
      .value("ContentFilter", BackendFinish::content_filter);
  bind_chunk(module);
}

}  // namespace fathom::python
