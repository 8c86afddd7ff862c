// Tokenizer, RenderedPrompt and the two encodings.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <utility>

#include "fathom/recipe/prompt.h"
#include "python/src/conversation.h"
#include "python/src/errors.h"
#include "python/src/tokenizer.h"

namespace fathom::python {
namespace {

using recipe::Conversation;
using recipe::ModelVersion;
using recipe::Prompt;
using recipe::TokenSpellings;
using Ids = std::vector<int32_t>;

// -- tokenizer
// ----------------------------------------------------------------------------------------------------------

PyTokenizer loaded(Result<Tokenizer> result) {
  if (!result) raise_runtime_error(to_string(result.error()));
  return {std::make_shared<const Tokenizer>(std::move(*result))};
}

void bind_tokenizer(nb::module_& module) {
  nb::class_<PyTokenizer>(module, "Tokenizer")
      .def_static(
          "from_file",
          [](const std::string& path) {
            auto result = [&] {
              nb::gil_scoped_release others;
              return Tokenizer::open(path);
            }();
            return loaded(std::move(result));
          },
          "path"_a)
      .def_static(
          "from_str",
          [](std::string_view text) {
            auto result = [&] {
              nb::gil_scoped_release others;
              return Tokenizer::parse(text, "tokenizer.json");
            }();
            return loaded(std::move(result));
          },
          "text"_a)
      .def_static(
          "from_pretrained",
          [](const std::string&, const std::optional<std::string>&, const std::optional<std::string>&) -> PyTokenizer {
            raise(PyExc_NotImplementedError,
                  "fathom_recipe downloads nothing: fetch tokenizer.json yourself (for example with huggingface_hub's "
                  "hf_hub_download) and give its path to Tokenizer.from_file");
          },
          "identifier"_a, "revision"_a = nb::none(), "token"_a = nb::none())
      .def(
          "encode",
          [](const PyTokenizer& self, std::string_view text) {
            nb::gil_scoped_release others;
            return self.tokenizer->encode(text);
          },
          "text"_a)
      .def(
          "decode",
          [](const PyTokenizer& self, const Ids& ids) {
            // Ill-formed UTF-8 is replaced, so that this is always a str.
            return self.tokenizer->decode(ids);
          },
          "token_ids"_a);
}

// -- prompts
// ------------------------------------------------------------------------------------------------------------

/// Pairs of str indices.
nb::list code_point_ranges(const Prompt& prompt) {
  nb::list out;
  int64_t at = 0, code_points = 0;
  const auto count_to = [&](int64_t byte) {
    for (; at < byte; ++at) code_points += (uint8_t(prompt.text[size_t(at)]) & 0xC0) != 0x80;
    return code_points;
  };
  for (const SpecialRange& range : prompt.special) {
    const int64_t begin = count_to(range.begin);
    out.append(nb::make_tuple(begin, count_to(range.end)));
  }
  return out;
}

template <ModelVersion kVersion>
struct Encoding {
  TokenSpellings spellings;
  std::shared_ptr<const Tokenizer> tokenizer;

  Prompt render(const Conversation& conversation) const { return recipe::render(conversation, kVersion, spellings); }
};

template <ModelVersion kVersion>
Ids encode(const Encoding<kVersion>& self, const Conversation& conversation) {
  if (!self.tokenizer) raise_runtime_error("no tokenizer is attached to the encoding");
  auto ids = [&] {
    nb::gil_scoped_release others;
    return recipe::encode(self.render(conversation), *self.tokenizer);
  }();
  if (!ids) raise_runtime_error("failed to encode conversation: " + ids.error().message);
  return std::move(*ids);
}

template <ModelVersion kVersion>
void bind_encoding(nb::module_& module, const char* name) {
  using Self = Encoding<kVersion>;
  nb::class_<Self>(module, name)
      .def(nb::init<>())
      .def(
          "with_tokenizer",
          [](const Self& self, const PyTokenizer& tokenizer) {
            return Self{self.spellings, tokenizer.tokenizer};
          },
          "tokenizer"_a)
      .def(
          "with_special_tokens",
          [](const Self& self, const TokenSpellings& spellings) {
            return Self{spellings, self.tokenizer};
          },
          "special_tokens"_a)
      .def(
          "render_conversation",
          [](const Self& self, const Conversation& conversation) {
            nb::gil_scoped_release others;
            return self.render(conversation);
          },
          "conversation"_a)
      .def("encode", &encode<kVersion>, "conversation"_a);
}

}  // namespace

void bind_prompts(nb::module_& module) {
  bind_tokenizer(module);
  nb::class_<Prompt>(module, "RenderedPrompt")
      .def_prop_ro("prompt", [](const Prompt& self) { return nb::str(self.text.data(), self.text.size()); })
      .def_prop_ro("special_ranges", &code_point_ranges)
      .def_prop_ro("image_sources", [](const Prompt& self) { return objects_of(self.images); })
      .def("__repr__", [](const Prompt& self) {
        return "RenderedPrompt(" + std::to_string(self.text.size()) + " bytes, " + std::to_string(self.special.size()) +
               " special tokens, " + std::to_string(self.images.size()) + " images)";
      });
  bind_encoding<ModelVersion::v4>(module, "DeepseekV4Encoding");
  bind_encoding<ModelVersion::v41>(module, "DeepseekV41Encoding");
}

}  // namespace fathom::python
