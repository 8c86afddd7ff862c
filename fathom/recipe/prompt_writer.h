// fathom/recipe/prompt_writer.h
// A prompt being written: text that is told which of its bytes are special tokens. Nothing that is written with text()
// ever becomes one, whatever it spells. Source: spec/recipe.md 6.5.
#pragma once
#include <string>
#include <string_view>

#include "fathom/recipe/fixed_texts.h"
#include "fathom/recipe/prompt.h"
#include "fathom/recipe/python_json.h"

namespace fathom::recipe {

class PromptWriter {
 public:
  /// `spellings` must outlive the writer. `bytes`: about how long the prompt will be.
  PromptWriter(ModelVersion version, const TokenSpellings& spellings, size_t bytes)
      : version_(version), spellings_(spellings) {
    prompt_.text.reserve(bytes);
  }

  ModelVersion version() const { return version_; }
  /// For what appends to a string: plain text.
  std::string& out() { return prompt_.text; }
  void text(std::string_view text) { prompt_.text += text; }
  /// Small numbers of schemas and arguments: V4 has 0.00001 and 1e-7, V4.1 has 1e-05 and 1e-07.
  void json(const Json& value) {
    version_ == ModelVersion::v4 ? append_spaced_json(prompt_.text, value) : append_python_json(prompt_.text, value);
  }

  void token(SpecialToken token) {
    const std::string& spelling = spellings_[token];
    const int64_t begin = int64_t(prompt_.text.size());
    prompt_.text += spelling;
    if (!spelling.empty()) prompt_.special.push_back({begin, begin + int64_t(spelling.size())});
  }

  /// Text in which images stand at their offsets. An image without a token in the text keeps its place in the list.
  void content(const Message& message) {
    const std::string_view all = message.content;
    const std::string& spelling = spellings_[SpecialToken::image];
    size_t done = 0;
    for (const ImageSource& image : message.images) {
      prompt_.images.push_back(image);
      const size_t at = size_t(image.offset);
      if (image.offset < int64_t(done) || at > all.size() || !all.substr(at).starts_with(spelling)) continue;
      text(all.substr(done, at - done));
      token(SpecialToken::image);
      done = at + spelling.size();
    }
    text(all.substr(done));
  }

  /// A template of fixed_texts.h; `subject()` writes what it is about.
  template <class Subject>
  void fixed_text(std::string_view text, Subject subject) {
    const fixed::CallWords& words = fixed::call_words(version_);
    for (size_t begin = 0; begin < text.size();) {
      size_t end = begin;
      while (end < text.size() && (text[end] > fixed::kSeparator || text[end] <= 0)) ++end;
      this->text(text.substr(begin, end - begin));
      if (end < text.size()) {
        switch (text[end]) {
          case fixed::kDsml: token(SpecialToken::dsml); break;
          case fixed::kThinkingStart: token(SpecialToken::thinking_start); break;
          case fixed::kThinkingEnd: token(SpecialToken::thinking_end); break;
          case fixed::kBlock: this->text(words.block); break;
          case fixed::kSeparator: this->text(words.separator); break;
          default: subject();
        }
      }
      begin = end + 1;
    }
  }

  Prompt take() { return std::move(prompt_); }

 private:
  ModelVersion version_;
  const TokenSpellings& spellings_;
  Prompt prompt_;
};

}  // namespace fathom::recipe
