// python/src/words.h
// Arguments that are one of a few words. An unknown one is a ValueError that lists the choices.
#pragma once
#include <initializer_list>
#include <string>
#include <string_view>

#include "fathom/recipe/codec.h"
#include "fathom/recipe/conversation.h"
#include "python/src/errors.h"

namespace fathom::python {

template <class T>
T read_word(std::string_view argument, std::string_view given, std::initializer_list<T> values) {
  std::string choices;
  size_t number = 0;
  for (const T value : values) {
    if (given == name_of(value)) return value;
    if (++number > 1) choices += number < values.size() ? ", " : values.size() == 2 ? " or " : ", or ";
    choices.append("\"").append(name_of(value)).append("\"");
  }
  raise_value_error(
      std::string("invalid ").append(argument).append(" \"").append(given).append("\"; expected ").append(choices));
}

inline recipe::Policy read_policy(std::string_view given) {
  return read_word("policy", given, {recipe::Policy::lenient, recipe::Policy::strict});
}

inline recipe::ImageDetail read_detail(std::string_view given) {
  using enum recipe::ImageDetail;
  return read_word("detail", given, {low, high, original, automatic});
}

}  // namespace fathom::python
