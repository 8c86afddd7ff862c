// fathom/recipe/api/responses/patch_input.h
// The custom tool apply_patch takes plain text, the model calls it with JSON: {"input": "…"}. This takes the JSON as it
// comes and gives the text as early as it is certain. Source: spec/recipe.md 9 (apply_patch input).
#pragma once
#include <string>
#include <string_view>

namespace fathom::recipe {

/// The beginning is held while it can still become `{"input":"` (white space between the parts is allowed). From there
/// on the string's value comes, unescaped, up to its closing quote, and nothing after it. An escape that is none
/// (`\q`, half of a surrogate pair) comes as it stands, with the character that broke it. Arguments that begin in
/// another way come raw, from the first byte on.
class PatchInput {
 public:
  /// Takes more of the arguments; appends what is certain now.
  void push(std::string_view arguments, std::string& out);
  /// The end of the arguments: appends what is still held.
  void finish(std::string& out);

 private:
  enum class Stage { prefix, value, done, raw };
  void push_prefix(std::string_view arguments, std::string& out);
  void push_value(std::string_view arguments, std::string& out);
  /// One more character of an escape; appends when it is complete or broken.
  void push_escape(char c, std::string& out);

  Stage stage_ = Stage::prefix;
  size_t matched_ = 0;  // bytes of the beginning
  std::string held_;    // prefix: the raw text; value: an unfinished escape
};

}  // namespace fathom::recipe
