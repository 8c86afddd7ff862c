#include "fathom/checkpoint/tensor_spec.h"

namespace fathom {

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (const int64_t dim : shape.dims()) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(dim);
  }
  return text + "]";
}

std::string with_commas(int64_t number) {
  std::string text = std::to_string(number);
  const int64_t first_digit = number < 0 ? 1 : 0;
  for (int64_t at = int64_t(text.size()) - 3; at > first_digit; at -= 3) text.insert(size_t(at), 1, ',');
  return text;
}

}  // namespace fathom
